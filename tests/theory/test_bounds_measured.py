"""What is measured on problems whose constants are known does not exceed the bounds.

Two quadratics f_{z,m}(x) = ½ b_m xᵀAx − c_m zᵀx in the plane, and MoDo with three draws of one
sample, many runs side by side; and the paper's two examples for the lower bounds. Nothing here uses
trimol but the bounds.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from trimol.theory import Constants, bounds

A = np.diag([0.5, 1.0])
B, C = np.array([1.0, 1.5]), np.array([1.0, 2.0])
MU, SMOOTH, M = 0.5, 1.5, 2


def gradients(x, z):
    """∇F_z(x) of every run: (runs, d, M), from x (runs, d) and z (runs, d)."""
    return (x @ A)[:, :, None] * B - z[:, :, None] * C


def longest(x, data):
    """The longest gradient of any run, sample and objective."""
    curved = x @ A
    squares = ((curved[:, None, None] * B[:, None] - data[None, :, None] * C[:, None]) ** 2).sum(-1)
    return math.sqrt(squares.max())


def min_norm(jacobian, rho=0.0):
    """λ*_ρ for two objectives, in closed form."""
    g, h = jacobian[..., 0], jacobian[..., 1]
    top = ((h - g) * h).sum(-1) + rho
    bottom = ((h - g) ** 2).sum(-1) + 2 * rho
    first = np.clip(top / np.maximum(bottom, 1e-300), 0, 1)
    return np.stack([first, 1 - first], -1)


def project(v):
    """Onto the simplex of two objectives."""
    first = np.clip((1 + v[:, 0] - v[:, 1]) / 2, 0, 1)
    return np.stack([first, 1 - first], -1)


@dataclass
class Runs:
    """What runs of MoDo on one data set showed."""

    x: np.ndarray
    weights: np.ndarray
    longest: float = 0.0
    squares: list = field(default_factory=list)  # E R_opt², by step
    directions: list = field(default_factory=list)  # E_ca, by step
    last_full: np.ndarray | None = None  # ∇F_S at the last step


def modo(data, draws, *, alpha, gamma, rho=0.0, start=(2.0, -1.0)):
    """Runs on ``data`` (n, d) with the samples ``draws`` (T, 3, runs)."""
    runs = Runs(np.tile(start, (draws.shape[2], 1)), np.full((draws.shape[2], M), 0.5))
    everyone = data.mean(0)
    for i, j, k in draws:
        full = gradients(runs.x, np.broadcast_to(everyone, runs.x.shape))
        one, two, three = (gradients(runs.x, data[index]) for index in (i, j, k))
        runs.longest = max(runs.longest, longest(runs.x, data))
        step = np.einsum("rdm,rd->rm", one, np.einsum("rdm,rm->rd", two, runs.weights))
        runs.weights = project(runs.weights - gamma * (step + rho * runs.weights))
        best = np.einsum("rdm,rm->rd", full, min_norm(full))
        runs.squares.append((best**2).sum(1).mean())
        apart = np.einsum("rdm,rm->rd", full, runs.weights - min_norm(full, rho))
        runs.directions.append((apart.mean(0) ** 2).sum())
        runs.last_full = full
        runs.x = runs.x - alpha * np.einsum("rdm,rm->rd", three, runs.weights)
    return runs


def problem(n, runs, T, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(1.0, 1.0, (n, 2)), rng.integers(0, n, (T, 3, runs))


def gap(data, start=(2.0, -1.0)):
    """F_S(x_1) λ_1 − min F_S λ_1 for equal weights, in closed form."""
    x, z = np.array(start), data.mean(0)
    matrix, vector = A * B.mean(), z * C.mean()
    value = 0.5 * x @ matrix @ x - vector @ x
    lowest = -0.5 * vector @ np.linalg.solve(matrix, vector)
    return value - lowest


def constants(data, longest, n):
    return Constants(
        ell_f=longest, ell_f1=SMOOTH, M=M, n=n, c_F=gap(data), mu=MU, G=math.sqrt(M) * longest
    )


@pytest.mark.parametrize(
    ("alpha", "gamma", "rho"), [(0.05, 0.0, 0.0), (0.05, 1e-3, 0.0), (0.2, 1e-2, 0.1)]
)
def test_optimization(alpha, gamma, rho):
    data, draws = problem(n=20, runs=200, T=300)
    runs = modo(data, draws, alpha=alpha, gamma=gamma, rho=rho)
    c = constants(data, runs.longest, 20)
    bound = bounds.optimization(c, alpha=alpha, gamma=gamma, T=300, rho=rho)
    assert np.mean(runs.squares) <= sum(bound.terms.values())
    assert math.sqrt(min(runs.squares)) <= float(bound)
    last = bounds.optimization_last(c, alpha=alpha, gamma=gamma, T=300, rho=rho)
    assert math.sqrt(runs.squares[-1]) <= float(last)


def test_the_optimization_bound_is_not_far_off():
    """Static weights on a problem without noise and far from its end: within a factor of 2.

    A bound that were a hundred times too large, or that forgot the start, would fail.
    """
    data, draws = problem(n=1, runs=1, T=20)
    runs = modo(data, draws, alpha=0.05, gamma=0.0, start=(40.0, 40.0))
    c = Constants(ell_f=runs.longest, ell_f1=SMOOTH, M=M, n=1, c_F=gap(data, (40.0, 40.0)))
    bound = bounds.optimization(c, alpha=0.05, gamma=0.0, T=20)
    measured = math.sqrt(np.mean(runs.squares))
    assert measured <= float(bound) <= 2 * measured


@pytest.mark.parametrize(("alpha", "gamma", "rho"), [(1e-4, 0.01, 0.0), (0.01, 0.05, 0.1)])
def test_conflict(alpha, gamma, rho):
    data, draws = problem(n=20, runs=200, T=300)
    runs = modo(data, draws, alpha=alpha, gamma=gamma, rho=rho)
    bound = bounds.conflict(
        constants(data, runs.longest, 20), alpha=alpha, gamma=gamma, T=300, rho=rho
    )
    assert np.mean(runs.directions) <= float(bound)


def test_conflict_weight():
    """With small steps and a strong ρ the bound says something: less than the simplex is wide."""
    T = 500
    data, draws = problem(n=20, runs=100, T=T)
    data = 0.1 * data
    start, rho, alpha, gamma = (0.2, -0.1), 0.2, 1e-5, 0.05
    runs = modo(data, draws, alpha=alpha, gamma=gamma, rho=rho, start=start)
    c = Constants(ell_f=runs.longest, ell_f1=SMOOTH, M=M, n=20)
    bound = bounds.conflict_weight(c, alpha=alpha, gamma=gamma, T=T, rho=rho)
    apart = (runs.weights - min_norm(runs.last_full, rho)).mean(0)
    assert (apart**2).sum() <= float(bound) < 2


def twins(n, runs, T, *, alpha, gamma, seed=0):
    """Runs on neighbouring data sets with the same indices; the mean squared distance."""
    data, draws = problem(n, runs, T, seed)
    other = data.copy()
    other[0] += 3.0
    one, two = (modo(d, draws, alpha=alpha, gamma=gamma) for d in (data, other))
    distance = ((one.x - two.x) ** 2).sum(1).mean()
    return distance, max(one.longest, two.longest), data


def test_stability_without_convexity():
    n, T, alpha = 50, 4, 0.3
    distance, longest, data = twins(n, 500, T, alpha=alpha, gamma=0.01)
    measured = distance * ((np.linalg.eigvalsh(A).max() * B) ** 2).sum()  # at least ε_F²
    bound = bounds.stability(constants(data, longest, n), T=T)
    assert measured <= float(bound)


def test_stability_with_strong_convexity():
    n, T = 50, 200
    alpha = MU / (2 * SMOOTH**2)
    distance, longest, data = twins(n, 200, T, alpha=alpha, gamma=0.0)
    c = constants(data, longest, n)
    gamma = bounds.largest_gamma(c, T)
    moved, longest, data = twins(n, 200, T, alpha=alpha, gamma=gamma)
    for measured, step in ((distance, 0.0), (moved, gamma)):
        bound = bounds.argument_stability(
            constants(data, longest, n), alpha=alpha, gamma=min(step, gamma), T=T
        )
        assert 0 < measured <= float(bound)


def test_lower_bound_of_the_strongly_convex_example():
    """The example along its eigenvector v, where it is one-dimensional."""
    n, T, runs = 512, 64, 8192
    mu = 16 * n ** (-1 / 3)
    b = np.array([1.0, 1 + math.sqrt(2)])
    ell_f = 7 * mu + mu * b.max() + b.max()  # no gradient μx − c b_m is longer
    gamma = 1 / (2 * 2 * T * math.sqrt(2) * ell_f**2)
    alpha = 1 / (4 * mu * T)
    # Every sample as often as every other, at every step: less noise in the mean.
    rng, evenly = np.random.default_rng(0), np.arange(runs) % n
    draws = [[rng.permutation(evenly) for _ in range(3)] for _ in range(T)]
    ends = []
    for shift in (0.0, 1.0):
        x, weights = np.full(runs, 7.0), np.full((runs, 2), 0.5)
        for indices in draws:
            one, two, three = (mu - shift * (i == 0) for i in indices)
            along = mu * x - two * (weights @ b)
            step = (mu * x[:, None] - one[:, None] * b) * along[:, None]
            weights = project(weights - gamma * step)
            x = x - alpha * (mu * x - three * (weights @ b))
        ends.append(x)
    measured = np.abs(ends[0] - ends[1]).mean()
    for reading in ("derived", "printed"):
        lower = bounds.stability_lower_sc(n=n, gamma=gamma, T=T, ell_f=ell_f, reading=reading)
        assert measured >= float(lower)
    derived = bounds.stability_lower_sc(n=n, gamma=gamma, T=T, ell_f=ell_f)
    assert measured <= 1.1 * float(derived)  # the recursion's solution, up to sampling


def test_lower_bound_of_the_non_convex_example():
    """sin(x + z), two samples a step."""
    n, T, runs = 20, 10, 10_000
    draws = np.random.default_rng(0).integers(0, n, (T, 2, runs))
    x, other = np.full(runs, math.pi / 4), np.full(runs, math.pi / 4)
    for indices in draws:
        shift = -math.pi / 8 * (indices == 0)
        x = x - math.pi / 80 * np.cos(x)
        other = other - math.pi / 80 * np.cos(other + shift).mean(0)
    z = np.linspace(-math.pi, math.pi, 100)[:, None]
    measured = 2 * ((np.cos(x + z) - np.cos(other + z)) ** 2).mean(1).max()
    assert measured >= float(bounds.stability_lower(T=T, n=n))


def test_iterates_stay_where_the_lemma_says():
    data, draws = problem(n=20, runs=100, T=300)
    alpha = 1 / SMOOTH
    runs = modo(data, draws, alpha=alpha, gamma=0.05)
    # Minimizers of F_z λ: A⁻¹z times a ratio of c to b between the smallest and the largest.
    largest = (C / B).max() * np.linalg.norm(np.linalg.solve(A, data.T), axis=0).max()
    bound = bounds.trajectory_gradient(
        ell_f1=SMOOTH, mu=MU, optimum_radius=largest, start_radius=math.hypot(2.0, -1.0)
    )
    assert runs.longest <= bound
