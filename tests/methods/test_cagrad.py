import math

import pytest
import torch
from gramians import jacobians
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import batch, flat_gradient, naive_jacobian, network
from scipy.optimize import minimize

import trimol
from trimol.methods.cagrad import cagrad_weights
from trimol.testing import low_rank


def slow(gramian, c):
    """The dual over the simplex, by SLSQP: w, then the weights of g₀ + r g_w / ‖g_w‖."""
    size = len(gramian)
    G = gramian.numpy()
    mean = G.mean(1)
    radius = c * math.sqrt(mean.mean())
    found = minimize(
        lambda w: mean @ w + radius * math.sqrt(w @ G @ w),
        [1 / size] * size,
        jac=lambda w: mean + radius * G @ w / math.sqrt(w @ G @ w),
        bounds=[(0, 1)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-15, "maxiter": 1000},
    ).x
    return torch.from_numpy(1 / size + radius / math.sqrt(found @ G @ found) * found)


@pytest.mark.parametrize("c", [0.1, 0.4, 0.9])
def test_one_step_is_algorithm_1(c):
    model = network()
    params = list(model.parameters())
    jacobian = naive_jacobian(model.losses(batch()), params)
    weights = slow(jacobian @ jacobian.T, c)
    losses = model.losses(batch())
    cagrad = trimol.CAGrad(params, 3, c=c)
    scalar = cagrad(losses)
    scalar.backward()
    torch.testing.assert_close(cagrad.weights, weights, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(flat_gradient(params), cagrad.weights @ jacobian)
    assert scalar.item() == pytest.approx((cagrad.weights @ losses).item(), rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(jacobians, st.sampled_from([0.05, 0.4, 1.0, 3.0]))
def test_primal_and_dual_meet(J, c):
    """d is in the ball, and no w certifies that a better d exists: optimal, without a solver."""
    size, G = len(J), J @ J.T
    weights = cagrad_weights(G, c)
    v, mean = weights - 1 / size, J.mean(0)
    radius = c * mean.norm()
    d = weights @ J
    magnitude = J.norm(dim=1).max() * (weights.abs() @ J.norm(dim=1))
    assert (v >= 0).all()
    assert (v @ J).norm() <= radius * (1 + 1e-7) + 1e-7 * J.norm(dim=1).min()
    shortest = trimol.simplex.min_norm(G)
    candidates = [v / v.sum(), shortest] if v.any() else [shortest]
    bound = min((w @ J) @ mean + radius * (w @ J).norm() for w in candidates)
    assert (J @ d).min() >= bound - 1e-7 * magnitude


@settings(derandomize=True, deadline=None, max_examples=100)
@given(jacobians)
def test_a_ball_that_holds_zero_gives_no_conflict(J):
    weights = cagrad_weights(J @ J.T, 1.0)
    gradients = J.norm(dim=1)
    assert (J @ (weights @ J) >= -1e-7 * gradients * (weights @ gradients)).all()


@pytest.mark.parametrize("c", [0.4, 1.0])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_float32_gradients_of_low_rank_give_what_float64_gives(rank, c):
    """4 × 3: in a float32 Gramian the mean gradient vanished, or Newton found no support."""
    for seed in range(30):
        J = low_rank(4, 3, rank, None, seed).float()
        x = torch.zeros(3, requires_grad=True)
        cagrad = trimol.CAGrad([x], 4, c=c)
        cagrad(J @ x).backward()
        wide = J.double()
        size = wide.norm(dim=1).max()
        reached = (wide @ x.grad.double()).min()
        assert reached >= (wide @ (cagrad_weights(wide @ wide.T, c) @ wide)).min() - 1e-6 * size**2


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e8])
def test_does_not_depend_on_the_scale(scale):
    torch.manual_seed(1)
    J = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(
        cagrad_weights(scale**2 * J @ J.T, 0.5), cagrad_weights(J @ J.T, 0.5)
    )


def test_c_zero_is_the_mean():
    J = torch.randn(5, 7, dtype=torch.float64)
    assert cagrad_weights(J @ J.T, 0.0).tolist() == [0.2] * 5


def test_one_objective_steps_one_plus_c_times():
    found = cagrad_weights(torch.tensor([[1e-9]], dtype=torch.float64), 0.5)
    assert found.item() == pytest.approx(1.5, rel=1e-14)


def test_stationary_points():
    """All zero: the mean. 0 inside the hull: d = 0. 0 on its boundary: along the third alone."""
    assert cagrad_weights(torch.zeros(3, 3).double(), 0.5).tolist() == [1 / 3] * 3
    J = torch.tensor([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.5]], dtype=torch.float64)
    assert (cagrad_weights(J @ J.T, 1.0) @ J).norm() < 1e-12
    J = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.5, 0.75]], dtype=torch.float64)
    d = cagrad_weights(J @ J.T, 1.0) @ J
    torch.testing.assert_close(
        d, torch.tensor([0.0, 0.25], dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_bad_c():
    with pytest.raises(ValueError, match="c must be a finite number of at least 0, found -1"):
        trimol.CAGrad([torch.zeros(1, requires_grad=True)], 2, c=-1.0)
