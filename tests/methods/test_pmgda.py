import itertools

import pytest
import torch
from gramians import jacobians
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from known_fronts import FRONTS, angle_to_the_ray, descended, on_the_ray

import trimol
from covering import in_turn
from trimol.methods.pmgda import pmgda_weights
from trimol.simplex import min_norm

CENTRES = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)


def distance(losses, prefer):
    """h = ‖y − (uᵀy)u‖."""
    ray = (1 / prefer) / (1 / prefer).norm()
    return (losses - (losses @ ray) * ray).norm()


def parts(jacobian, losses, prefer):
    """The unit vectors of v, with ∇h by autograd, and the way in which v is judged."""
    leaf = losses.clone().requires_grad_()
    (slope,) = torch.autograd.grad(distance(leaf, prefer), leaf)
    rows = torch.cat([jacobian, (slope @ jacobian)[None]])
    lengths = rows.norm(dim=1, keepdim=True)
    return rows, rows / torch.where(lengths > 0, lengths, 1)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=80)
@given(jacobians, st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0]))
def test_corrections_solve_the_program(jacobian, seed, sigma):
    """No mixture of three unit vectors on a grid that goes to the ray as fast is better."""
    size = len(jacobian)
    assume(size in (2, 3, 4))
    assume(jacobian.norm(dim=1).min() > 1e-6 * jacobian.norm(dim=1).max())
    generator = torch.Generator().manual_seed(seed)
    losses, prefer = (torch.rand(2, size, generator=generator) + 0.05).double()
    rows, units = parts(jacobian, losses, prefer)
    assume(rows[-1].norm() > 1e-6 * jacobian.norm())
    v = pmgda_weights(jacobian @ jacobian.T, losses, prefer, sigma, 1e-6) @ jacobian
    v = v / (distance(losses, prefer) / losses.norm() * jacobian.norm(dim=1).mean())
    allowed = 1e-6 * jacobian.norm(dim=1).max()
    assert units[-1] @ v >= sigma - 1e-6
    worst = (jacobian @ v).min()
    for chosen in itertools.combinations(range(size + 1), min(3, size + 1)):
        for shares in grid(len(chosen)):
            other = shares @ units[list(chosen)]
            if units[-1] @ other >= sigma:
                assert worst >= (jacobian @ other).min() - allowed


def grid(entries, steps=8):
    """Points of the simplex."""
    for counts in itertools.product(range(steps + 1), repeat=entries):
        if sum(counts) == steps:
            yield torch.tensor(counts).double() / steps


def test_on_the_ray_it_is_mgda():
    jacobian = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).double()
    prefer = torch.tensor([0.2, 0.3, 0.5]).double()
    weights = pmgda_weights(jacobian @ jacobian.T, 7 / prefer, prefer, 0.8, 0.01)
    torch.testing.assert_close(weights, min_norm(jacobian @ jacobian.T))


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
    x, _ = descended(trimol.PMGDA, losses, prefer=prefer, start=start)
    assert angle_to_the_ray(losses(x), prefer) < 0.0105  # tol is 0.01
    torch.testing.assert_close(losses(x), on_the_ray(losses, prefer), rtol=0, atol=0.03)
    assert (x[0] - x[1]).abs() < 1e-3  # on the front


def test_a_smaller_tol_is_nearer_to_the_ray():
    losses, prefer = FRONTS["concave"], [0.2, 0.8]
    x, _ = descended(trimol.PMGDA, losses, prefer=prefer, steps=600, tol=1e-4)
    assert angle_to_the_ray(losses(x), prefer) < 2e-4


def test_three_objectives():
    prefer = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)

    def losses(x):
        return (x - CENTRES).square().sum(-1)

    x, _ = descended(trimol.PMGDA, losses, prefer=prefer, start=(1.5, 1.5))
    assert angle_to_the_ray(losses(x), prefer) < 0.0105


def test_the_order_of_independent_objectives_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        jacobian = torch.randn(4, 6, generator=generator, dtype=torch.float64)
        losses, prefer = (torch.rand(2, 4, generator=generator) + 0.1).double()
        order = torch.randperm(4, generator=generator)
        gramian = jacobian @ jacobian.T
        first = pmgda_weights(gramian, losses, prefer, 0.8, 0.01)
        second = pmgda_weights(gramian[order][:, order], losses[order], prefer[order], 0.8, 0.01)
        torch.testing.assert_close(second, first[order])


def test_bad_hyperparameters():
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="sigma must be a number from 0 to 1, found 2"):
        trimol.PMGDA([x], 2, sigma=2.0)
    with pytest.raises(ValueError, match="tol must be a finite number above 0, found 0"):
        trimol.PMGDA([x], 2, tol=0.0)
