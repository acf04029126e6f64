"""The min-norm point by products: what is claimed of a λ is so, whatever the Gramian."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trimol
from trimol.maths._by_products import Asked, MinNorm, Surrogate, approach, exact_gap

EPS = float(np.finfo(np.float64).eps)
SEEDS = st.integers(0, 2**32 - 1)


def jacobian(size: int, seed: int, kind: str) -> np.ndarray:
    """Gradients that are ordinary, few-dimensional, repeated, opposed, or of any length."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(size, 3 if kind == "flat" else 2 * size))
    if kind == "repeated":
        rows[size // 2 :] = rows[: size - size // 2]
    if kind == "opposed":
        rows[0] = -rows[1]
    if kind == "scales":
        rows *= 10.0 ** random.uniform(-6, 6, size=(size, 1))
    if kind == "zero":
        rows[0] = 0
    return rows


def plain_gap(gramian: np.ndarray, weights: np.ndarray, rho: float = 0.0) -> float:
    slope = gramian @ weights + rho * weights
    return float(1 - slope.min() / (weights @ slope))


KINDS = ["ordinary", "flat", "repeated", "opposed", "scales", "zero"]


def solved(gramian, guess, gap, rho=0.0, most=math.inf, rounding=EPS):
    """What products led to, whether the gap was reached, and what was asked."""
    asked = Asked(lambda weights: gramian @ weights, guess, lambda: rounding)
    found, reached = approach(asked, MinNorm(rho), gap, lambda count: count < most)
    return found, reached, asked


def gap_of(gramian, weights, rho=0.0):
    return exact_gap(gramian, weights, MinNorm(rho).judge(weights, gramian @ weights))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(SEEDS, st.integers(2, 9), st.sampled_from(KINDS))
def test_a_surrogate_maps_what_it_has_seen_and_is_semi_definite(seed, size, kind):
    """From any guess: B S = Y and xᵀBx ≥ 0, relative to the gradients' own lengths."""
    rows, random = jacobian(size, seed, kind), np.random.default_rng(seed + 1)
    gramian, guess = rows @ rows.T, np.cov(random.normal(size=(size, 2 * size)))
    surrogate, seen = Surrogate(guess), []
    for _ in range(size):
        weights = random.dirichlet(np.ones(size))
        if surrogate.see(weights, gramian @ weights, EPS):
            seen.append(weights)
        scale = np.sqrt(surrogate.gramian.diagonal().clip(1e-300))
        least = np.linalg.eigvalsh(surrogate.gramian / scale / scale[:, None])[0]
        assert least > -1e-8
        largest = np.abs(gramian).max()
        for each in seen:
            off = surrogate.gramian @ each - gramian @ each
            assert np.abs(off).max() <= 1e-8 * largest


def test_a_surrogate_is_the_gramian_after_all_directions():
    rows = jacobian(6, 0, "ordinary")
    surrogate = Surrogate(np.eye(6))
    for unit in np.eye(6):
        assert surrogate.see(unit, rows @ (rows.T @ unit), EPS)
    np.testing.assert_allclose(surrogate.gramian, rows @ rows.T, rtol=1e-10, atol=1e-10)
    assert not surrogate.see(np.full(6, 1 / 6), (rows @ rows.T).mean(1), EPS)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(SEEDS, st.integers(2, 9), st.sampled_from(KINDS), st.sampled_from([0.5, 0.1, 1e-3]))
def test_the_gap_is_true_and_bounds_the_distance(seed, size, kind, gap):
    """What is reached is so by the Gramian itself: ⟨g, d⟩ ≥ (1 − gap)‖d‖², ‖d − d*‖² ≤ gap‖d‖²."""
    rows = jacobian(size, seed, kind)
    gramian = rows @ rows.T
    guess = np.cov(np.random.default_rng(seed + 1).normal(size=(size, 2 * size)))
    found, reached, _ = solved(gramian, guess, gap, most=5 * size)
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    if not reached:
        return
    direction = found.weights @ rows
    squared = direction @ direction
    assert found.gap <= gap
    assert (rows @ direction >= (1 - found.gap) * squared - 1e-9 * squared).all()
    best = trimol.simplex.min_norm(torch.from_numpy(gramian)).numpy() @ rows
    off = direction - best
    assert off @ off <= found.gap * squared + 1e-9 * squared


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_gap_is_reached_by_at_most_as_many_products_as_objectives(rho):
    for seed in range(20):
        rows = jacobian(8, seed, "ordinary")
        found, reached, asked = solved(rows @ rows.T, np.eye(8), 1e-6, rho)
        assert reached
        assert asked.count <= 9
        assert found.gap == pytest.approx(
            max(plain_gap(rows @ rows.T, found.weights, rho), 0), abs=1e-12
        )


def test_a_good_guess_takes_one_product():
    rows = jacobian(8, 0, "ordinary")
    assert solved(rows @ rows.T, rows @ rows.T, 1e-6)[2].count == 1


def test_no_more_products_than_allowed():
    rows = jacobian(9, 0, "ordinary")
    _, reached, asked = solved(rows @ rows.T, np.eye(9), 1e-9, most=2)
    assert (asked.count, reached) == (2, False)


def test_what_rounding_hides_is_not_claimed():
    """Gradients that cancel to 1e-4 of their lengths: in float32, no gap of 10 % can be seen."""
    random = np.random.default_rng(0)
    common, rest = random.normal(size=40), 1e-4 * random.normal(size=(6, 40))
    rows = np.array([common, common, common, -common, -common, -common]) + rest
    gramian = rows @ rows.T
    assert solved(gramian, gramian, 0.1, most=20)[1]
    _, reached, asked = solved(gramian, gramian, 0.1, most=20, rounding=1.2e-7)
    assert (reached, asked.count) == (False, 1)


@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1e30, 1e120])
def test_gradients_of_any_length(scale):
    rows = jacobian(6, 0, "ordinary") * scale
    _, reached, asked = solved(rows @ rows.T, np.eye(6) * scale**2, 0.01)
    assert reached
    assert np.isfinite(asked.surrogate.remembered()).all()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(SEEDS, st.integers(3, 9), st.sampled_from(KINDS), st.sampled_from([0.0, 1.0]))
def test_the_exact_solution_has_no_gap(seed, size, kind, rho):
    rows = jacobian(size, seed, kind)
    gramian = rows @ rows.T
    weights = trimol.simplex.min_norm(torch.from_numpy(gramian), rho).numpy()
    assert gap_of(gramian, weights, rho) <= 1e-9


def test_the_gap_of_other_weights():
    rows = jacobian(5, 3, "ordinary")
    uniform = np.full(5, 0.2)
    assert gap_of(rows @ rows.T, uniform, 0.1) == pytest.approx(
        plain_gap(rows @ rows.T, uniform, 0.1), rel=1e-12
    )
