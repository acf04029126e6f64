import itertools

import numpy as np
import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network
from scipy.optimize import minimize

import trimol
from trimol.methods.preference import preference_multipliers

CENTRES = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)


def quadratics(x):
    """f_m = ‖x − c_m‖²: the Pareto set is the triangle of the centres."""
    return (x - CENTRES).square().sum(1)


def descend(start, steps=600, lr=0.05, **options):
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    method = trimol.Preference([x], 3, kappa=4.0, **options)
    path = []
    for _ in range(steps):
        losses = quadratics(x)
        path.append(losses.detach())
        (gradient,) = torch.autograd.grad(method(losses), x)
        with torch.no_grad():
            x -= lr * gradient
    return x.detach(), method, torch.stack(path)


def by_enumeration(H, q, cap):
    """min ½νᵀHν − qᵀν over the box, from every choice of what is free, at 0 and at the cap."""
    best, least = None, torch.inf
    for sides in itertools.product((0, 1, 2), repeat=len(q)):
        side = torch.tensor(sides)
        nu = (side == 1).to(q) * cap
        free = side == 2
        if free.any():
            solve = torch.linalg.pinv(H[free][:, free], hermitian=True)
            nu[free] = solve @ (q - H @ nu)[free]
        nu = nu.clamp(0, cap)
        value = (0.5 * nu @ H @ nu - q @ nu).item()
        if value < least:
            best, least = nu, value
    return best, least


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=150)
@given(jacobians, st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 100.0]))
def test_multipliers_solve_the_quadratic_problem(jacobian, seed, cap):
    """No worse than the best of all 3^k vertices and faces, on nasty Gramians too."""
    jacobian = jacobian[:5]
    gramian = jacobian @ jacobian.T
    generator = torch.Generator().manual_seed(seed)
    demand = torch.randn(len(gramian), generator=generator, dtype=torch.float64)
    found = preference_multipliers(gramian, demand, torch.full_like(demand, cap))
    assert (found >= 0).all()
    assert (found <= cap).all()
    moving = gramian.diagonal() > 0  # what does not move has no multiplier
    H, q, nu = gramian[moving][:, moving], demand[moving], found[moving]
    assert not found[~moving].any()
    if len(q):
        value = (0.5 * nu @ H @ nu - q @ nu).item()
        _, least = by_enumeration(H, q, cap)
        assert value <= least + 1e-9 * abs(least)


def test_a_rounded_gramian_of_equal_gradients_is_no_trap():
    """Float32 Gramians can be indefinite by their rounding."""
    gramian = torch.tensor([[1.0, 1 + 1e-7], [1 + 1e-7, 1.0]], dtype=torch.float64)
    one = torch.ones(2, dtype=torch.float64)
    found = preference_multipliers(gramian, one, 100 * one)
    torch.testing.assert_close(found.sum(), torch.tensor(1.0).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bounds", [{0: 0.3}, {0: 0.3, 2: 0.5}])
def test_one_step_by_hand(bounds):
    model = network()
    params = list(model.parameters())
    prefer = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    losses = model.losses(batch())
    jacobian = naive_jacobian(losses, params)
    rows, keys = jacobian[list(bounds)], list(bounds)
    above = losses.detach()[keys] - torch.tensor(list(bounds.values()), dtype=torch.float64)
    nu, _ = by_enumeration(rows @ rows.T, 9 * above - rows @ (prefer @ jacobian), 100.0)
    assert nu.any()
    weights = prefer.clone()
    weights[keys] += nu
    weights = weights / weights.sum()
    method = trimol.Preference(params, 3, prefer=prefer, bounds=bounds, kappa=9.0)
    scalar = method(model.losses(batch()))
    scalar.backward()
    torch.testing.assert_close(method.weights, weights)
    torch.testing.assert_close(flat_gradient(params), weights @ jacobian)
    assert scalar.item() == pytest.approx((weights @ losses).item(), rel=1e-9)
    direction = flat_gradient(params) * (1 + nu.sum())
    assert (rows @ direction >= 9 * above - 1e-9).all()  # the demand is met


@pytest.mark.parametrize("start", [[0.1, 0.05], [3.0, -2.0], [-1.0, 2.0]])
def test_an_active_bound_is_met_and_the_rest_minimised(start):
    """min f_1 with f_0 ≤ 0.25: the point of the segment at distance ½ from c_0."""
    x, method, path = descend(start, prefer=[0.0, 1.0, 0.0], bounds={0: 0.25})
    torch.testing.assert_close(x, torch.tensor([0.5, 0.0]).double(), rtol=0, atol=1e-4)
    # KKT: 2ν(x − c_0) + 2(x − c_1) = 0 at ν = 3
    torch.testing.assert_close(
        method.weights, torch.tensor([0.75, 0.25, 0]).double(), atol=1e-3, rtol=0
    )
    above = path[:, 0] - 0.25
    if above[0] > 0:  # from outside the violation only falls
        assert (above.diff()[above[:-1] > 1e-3] < 0).all()
    else:  # from inside the bound holds all the way, to the step size's square
        assert above.max() < 1e-4


def test_two_active_bounds_meet_in_a_corner():
    """f_0 ≤ 1 and f_2 ≤ 1, as far towards c_1 as the lens allows: (√¾, ½)."""
    x, _, path = descend([0.0, 0.5], prefer=[0.0, 1.0, 0.0], bounds={0: 1.0, 2: 1.0})
    torch.testing.assert_close(x, torch.tensor([0.75**0.5, 0.5]).double(), rtol=0, atol=1e-3)
    assert path[:, [0, 2]].max() < 1 + 1e-3


def test_loose_bounds_leave_the_preferred_point():
    prefer = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    x, method, _ = descend([3.0, 3.0], prefer=prefer, bounds={0: 50.0, 1: 50.0})
    torch.testing.assert_close(x, prefer @ CENTRES)
    torch.testing.assert_close(method.weights, prefer)


@pytest.mark.slow
def test_bounds_out_of_reach_are_an_exact_penalty():
    """f_0 ≤ −1 and f_1 ≤ −1 contradict: C(f_0 + f_1) + f_2, by weights C, C, 1."""
    x, method, _ = descend(
        [1.0, 1.0], prefer=[0.0, 0.0, 1.0], bounds={0: -1.0, 1: -1.0}, penalty=10.0
    )
    weights = torch.tensor([10.0, 10.0, 1.0]).double() / 21
    torch.testing.assert_close(method.weights, weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(x, weights @ CENTRES, rtol=0, atol=1e-6)


def test_without_bounds_it_is_static_weighting():
    model = network()
    method = trimol.Preference(model.parameters(), 3, prefer=[0.2, 0.3, 0.5])
    static = trimol.Static(model.parameters(), 3, weights=[0.2, 0.3, 0.5])
    assert not method.due
    assert torch.equal(method(model.losses(batch())), static(model.losses(batch())))


def primary_weights(jacobian, **options):
    """λ of one step with these gradients, the first objective preferred."""
    x = torch.zeros(jacobian.shape[1], dtype=torch.float64, requires_grad=True)
    prefer = [1.0] + [0.0] * (len(jacobian) - 1)
    method = trimol.Preference([x], len(jacobian), prefer=prefer, **options)
    method(jacobian @ x + 1).backward()
    return method.weights


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_progress_is_the_program_solved_in_the_parameters(seed, share):
    """min ½‖d − g₀‖² with ⟨g_j, d⟩ ≥ τ‖g_j‖‖g₀‖, by a general solver that knows no dual."""
    rows = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).double()
    rows[1] -= rows[0]  # a conflict with the primary
    J, primary = rows.numpy(), rows[0].numpy()
    lengths = np.linalg.norm(J, axis=1)
    found = minimize(
        lambda d: 0.5 * ((d - primary) ** 2).sum(),
        primary,
        jac=lambda d: d - primary,
        constraints={
            "type": "ineq",
            "fun": lambda d: J[1:] @ d - share * lengths[1:] * lengths[0],
            "jac": lambda d: J[1:],
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    weights = primary_weights(rows, progress=share)
    ours = (weights / weights[0]) @ rows  # d = g₀ + Σ ν_j g_j
    assert ours.numpy() == pytest.approx(found.x, abs=1e-5)
    assert (J[1:] @ ours.numpy() >= share * lengths[1:] * lengths[0] - 1e-9).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_progress_is_torchjds_pcd(seed, scale):
    """Its direction without its moving average, whatever the unit of a secondary loss."""
    aggregation = pytest.importorskip("torchjd.aggregation")
    rows = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).double()
    rows[1] = (rows[1] - rows[0]) * scale
    theirs = aggregation.PCD(tau=0.2, beta=0.0, eps=0.0)(rows)
    ours = primary_weights(rows, progress=0.2) @ rows
    torch.testing.assert_close(ours / ours.norm(), theirs / theirs.norm())


def test_progress_on_the_way_lowers_every_loss():
    """Alone, the first loss would raise the second at the start, and the third later."""
    _, _, path = descend([1.9, 0.9], prefer=[1.0, 0.0, 0.0], progress=0.05, steps=3, lr=0.005)
    assert (path.diff(dim=0) < 0).all()
    _, _, alone = descend([1.9, 0.9], prefer=[1.0, 0.0, 0.0], bounds={1: 50.0}, steps=3, lr=0.05)
    assert (alone.diff(dim=0) > 0).any()


def test_progress_and_a_bound_of_one_objective_both_hold():
    rows = torch.tensor([[1.0, 0.0], [-1.0, 1.0]], dtype=torch.float64)
    for bound in (-5.0, 0.5, 0.99):  # losses are 1: the demand is 6, 0.5 and 0.01
        both = primary_weights(rows, progress={1: 0.2}, bounds={1: bound})
        apart = [primary_weights(rows, progress={1: 0.2}), primary_weights(rows, bounds={1: bound})]
        torch.testing.assert_close(both, max(apart, key=lambda w: w[1].item()))


def test_progress_where_secondary_gradients_oppose_each_other_stays_finite():
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    weights = primary_weights(rows, progress=0.5)
    assert weights.isfinite().all()
    direction = weights @ rows
    torch.testing.assert_close(direction / direction.norm(), rows[0])


def test_state_of_a_fresh_instance_continues():
    model = network()
    whole, half = (trimol.Preference(model.parameters(), 3, bounds={0: 0.3}, every=2) for _ in "ab")
    whole(model.losses(batch()))
    half.load_state_dict(whole.state_dict())
    for method in (whole, half):
        method(model.losses(batch(seed=1)))
    assert torch.equal(whole.weights, half.weights)
    assert torch.equal(whole.step, half.step)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prefer": [1.0, 1.0, 1.0]}, "prefer must sum to 1, found a sum of 3"),
        ({"bounds": {3: 1.0}}, "bounds must be of objectives 0 to 2, found 3"),
        ({"bounds": {"a": 1.0}}, "bounds must be of objectives 0 to 2, found 'a'"),
        ({"bounds": {1: float("nan")}}, r"bounds\[1\] must be a finite number, found nan"),
        ({"bounds": [0.2, 0.3]}, r"bounds must be numbers by objective, as .*found \[0.2, 0.3\]"),
        ({"bounds": 0}, "bounds must be numbers by objective, as .*found 0"),
        ({"bounds": torch.ones(3)}, "bounds must be numbers by objective, as .*found tensor"),
        ({"bounds": {1: 10**400}}, r"bounds\[1\] must be a finite number, found 1000"),
        ({"bounds": {1: True}}, r"bounds\[1\] must be a finite number, found True"),
        ({"prefer": "first"}, "prefer must be numbers, one per objective, found 'first'"),
        ({"kappa": 10**400}, "kappa must be a finite number above 0, found 1000"),
        ({"kappa": 0.0}, "kappa must be a finite number above 0, found 0"),
        ({"penalty": -1.0}, "penalty must be a finite number above 0, found -1"),
        ({"progress": 0.5}, r"progress must name objectives.*prefer is 0 for none.*found 0.5"),
        ({"progress": {0: 1.5}}, "progress must be a number from 0 to 1, found 1.5"),
        ({"progress": {"a": 0.5}}, "progress must be of objectives 0 to 2, found 'a'"),
        ({"chunk": 0}, "chunk must be a whole number of at least 1, found 0"),
    ],
)
def test_bad_hyperparameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        trimol.Preference([torch.zeros(2, requires_grad=True)], 3, **arguments)
