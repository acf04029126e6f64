import itertools
import math

import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from known_fronts import FRONTS, descended, on_the_ray

import trimol
from covering import in_turn
from trimol.methods.epo import epo_weights

CENTRES = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)


def from_the_paper(jacobian, losses, prefer, eps):
    """The linear program of the paper's Algorithm 1: its objective, constraints, and whose turn."""
    size = len(losses)
    terms = [p * f for p, f in zip(prefer, losses, strict=True)]
    shares = [term / sum(terms) for term in terms]
    uneven = sum(share * math.log(share * size) for share in shares)
    anchor = torch.tensor(
        [p * (math.log(s * size) - uneven) for p, s in zip(prefer, shares, strict=True)]
    ).double()
    C = jacobian @ jacobian.T
    pulled = C @ anchor
    if uneven <= eps:
        return C.sum(0), C, torch.zeros(size).double(), "descend"
    least = torch.where(pulled > 0, -torch.inf, pulled)
    if not (pulled > 0).any():
        least = torch.zeros_like(pulled)
    least[terms.index(max(terms))] = 0
    return pulled, C, least, "balance"


@settings(derandomize=True, deadline=None, max_examples=80)
@given(jacobians, st.integers(0, 10**6), st.sampled_from([1e-4, 10.0]))
def test_weights_solve_the_program(jacobian, seed, eps):
    """No vertex that the constraints allow is better, on nasty gradients too."""
    size = len(jacobian)
    generator = torch.Generator().manual_seed(seed)
    losses, prefer = (torch.rand(2, size, generator=generator) + 0.05).double()
    alpha = epo_weights(jacobian @ jacobian.T, losses, prefer, eps)
    assert alpha.sum().item() == pytest.approx(1)
    assert (alpha >= 0).all()
    objective, C, least, mode = from_the_paper(jacobian, losses.tolist(), prefer.tolist(), eps)
    size = C.diagonal().max().item() or 1.0
    allowed = 1e-7 * size * prefer.sum().item()
    assert (C @ alpha >= least - allowed).all()
    if mode == "balance":  # the descent is bound to the ray besides, where that is possible
        best = max(
            (objective @ point for point in vertices(C / size, least / size)), default=-math.inf
        )
        assert objective @ alpha >= best - 10 * allowed


def vertices(C, least):
    """Points of the simplex where two entries at most are not zero, and all constraints hold."""
    size = len(C)
    for i, j in itertools.combinations_with_replacement(range(size), 2):
        for share in torch.linspace(0, 1, 21).tolist():
            point = torch.zeros(size).double()
            point[i] += share
            point[j] += 1 - share
            if (C @ point >= least).all():
                yield point


@pytest.mark.parametrize(
    ("front", "share", "start"),
    [
        (*case, at)
        for case, at in in_turn(itertools.product(FRONTS, [0.2, 0.6]), [(0.3, -0.5), (-0.6, -0.6)])
    ],
)
def test_it_ends_where_the_front_crosses_the_ray(front, share, start):
    """From off the front, and from a point of the front far from the ray."""
    losses, prefer = FRONTS[front], [share, 1 - share]
    x, _ = descended(trimol.EPO, losses, prefer=prefer, start=start)
    torch.testing.assert_close(losses(x), on_the_ray(losses, prefer), rtol=0, atol=0.02)
    terms = torch.tensor(prefer) * losses(x)
    assert terms[0].item() == pytest.approx(terms[1].item(), rel=0.04)  # 3 % are μ = 1e-4
    assert (x[0] - x[1]).abs() < 1e-3  # on the front


def test_a_smaller_eps_is_nearer_to_the_ray():
    losses, prefer = FRONTS["convex"], [0.2, 0.8]
    x, _ = descended(trimol.EPO, losses, prefer=prefer, steps=600, eps=1e-7)
    torch.testing.assert_close(losses(x), on_the_ray(losses, prefer), rtol=0, atol=2e-3)


def test_three_objectives_and_an_ideal_point():
    """f_m = ‖x − c_m‖² with p_m f_m equal: what Tchebycheff's minimiser is, by a grid."""
    prefer = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)

    def losses(x):
        return (x - CENTRES).square().sum(-1)

    x, _ = descended(
        trimol.EPO, lambda x: losses(x) + 1, prefer=prefer, ideal=[1.0] * 3, start=(1.5, 1.5)
    )
    axes = torch.linspace(0, 2, 401).double()
    grid = torch.cartesian_prod(axes, axes)
    worst = (prefer * (grid[:, None] - CENTRES).square().sum(-1)).amax(-1)
    torch.testing.assert_close(x, grid[worst.argmin()], rtol=0, atol=0.03)
    terms = prefer * losses(x)
    assert terms.max() / terms.min() < 1.05


def test_balancing_raises_a_low_loss_but_never_the_one_that_is_too_high():
    x = torch.tensor([-0.6, -0.6], dtype=torch.float64, requires_grad=True)
    losses = FRONTS["convex"](x)
    epo = trimol.EPO([x], 2)
    (gradient,) = torch.autograd.grad(epo(losses), x)
    after = FRONTS["convex"]((x - 0.01 * gradient).detach())
    assert losses[0] > losses[1]
    assert after[0] < losses[0]
    assert after[1] > losses[1]


def test_the_order_of_independent_objectives_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        jacobian = torch.randn(4, 6, generator=generator, dtype=torch.float64)
        losses, prefer = (torch.rand(2, 4, generator=generator) + 0.1).double()
        order = torch.randperm(4, generator=generator)
        gramian = jacobian @ jacobian.T
        first = epo_weights(gramian, losses, prefer, 1e-4)
        second = epo_weights(gramian[order][:, order], losses[order], prefer[order], 1e-4)
        torch.testing.assert_close(second, first[order])


def test_a_loss_below_its_ideal_is_named():
    x = torch.ones(2, requires_grad=True)
    epo = trimol.EPO([x], ["ctr", "cvr"], ideal=[0.0, 2.0])
    with pytest.raises(ValueError, match=r"above their ideal.*found -1 for objective 'cvr'"):
        epo(x.square())


def test_bad_hyperparameters():
    with pytest.raises(ValueError, match="eps must be a finite number above 0, found 0"):
        trimol.EPO([torch.zeros(2, requires_grad=True)], 2, eps=0.0)
    with pytest.raises(ValueError, match="chunk must be a whole number of at least 1, found 0"):
        trimol.EPO([torch.zeros(2, requires_grad=True)], 2, chunk=0)
