import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.maths.fairness import alpha_fair, fair_weights
from trimol.simplex import min_norm


def gradients(objectives, kind, seed):
    """Independent, nearly opposed or aligned gradients with norms 1e-8 … 1e8."""
    generator = torch.Generator().manual_seed(seed)
    J = torch.randn(objectives, objectives + 3, generator=generator, dtype=torch.float64)
    if kind == "nearly opposed":
        J[-1] = -J[0] * (1 + 1e-3) + 1e-3 * J[-1]
    if kind == "aligned":
        J = J[:, : max(1, objectives // 2)].abs()
    powers = torch.randint(-8, 9, (objectives, 1), generator=generator).double()
    return J * 10**powers if kind == "scaled" else J


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    st.integers(1, 9),
    st.sampled_from(["plain", "nearly opposed", "aligned", "scaled"]),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]),
)
def test_solves_the_equation_to_rounding(objectives, kind, seed, alpha):
    J = gradients(objectives, kind, seed)
    G = J @ J.T
    weights = fair_weights(G, alpha)
    assert (weights > 0).all()
    error = (G @ weights - weights ** (-1 / alpha)).abs()
    assert (error <= 1e-12 * (G.abs() @ weights)).all()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_orthogonal_gradients_have_a_closed_form(alpha):
    squared = torch.tensor([1e-16, 1.0, 1e4, 1e16], dtype=torch.float64)
    expected = squared ** (-alpha / (1 + alpha))
    found = fair_weights(torch.diag(squared), alpha)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


def test_two_objectives_of_the_nash_game_have_a_closed_form():
    """Normalised, a = 1/√(1 + cos) for both: the bisector."""
    for cosine in (-0.999, -0.3, 0.0, 0.8, 1.0):
        norms = torch.tensor([3.0, 0.01], dtype=torch.float64)
        cosines = torch.tensor([[1.0, cosine], [cosine, 1.0]], dtype=torch.float64)
        found = fair_weights(cosines * torch.outer(norms, norms), 1.0)
        torch.testing.assert_close(found, 1 / norms / (1 + cosine) ** 0.5, rtol=1e-12, atol=0)


def test_limits_are_the_mean_and_max_min_fairness():
    J = torch.randn(3, 5, dtype=torch.float64) + 1
    G = J @ J.T
    nearly_mean = fair_weights(G, 1e-3)
    assert (nearly_mean / nearly_mean.sum()).tolist() == pytest.approx([1 / 3] * 3, rel=0.01)
    nearly_equal = fair_weights(G, 200.0)
    torch.testing.assert_close(nearly_equal / nearly_equal.sum(), min_norm(G), rtol=0, atol=0.02)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_scaling_all_losses(alpha):
    J = gradients(4, "plain", 1)
    G = J @ J.T
    for scale in (1e-8, 1e8):
        expected = fair_weights(G, alpha) * scale ** (-2 * alpha / (1 + alpha))
        torch.testing.assert_close(fair_weights(scale**2 * G, alpha), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stationary_points_get_the_min_norm_weights(dtype):
    J = torch.tensor([[1.0, 0.0], [-0.5, 0.7], [-0.5, -0.5]], dtype=dtype)
    for rows in (J, torch.zeros(3, 2, dtype=dtype), J * torch.tensor([[1], [1], [0]])):
        G = rows @ rows.T
        weights = fair_weights(G, 1.0)
        torch.testing.assert_close(weights, min_norm(G.double()), rtol=0, atol=1e-6)
        assert (weights @ rows.double()).norm() < 1e-6


def test_is_a_pure_function():
    G = torch.eye(3, dtype=torch.float64).numpy()
    before = G.copy()
    alpha_fair(G, 2.0)
    assert (before == G).all()
