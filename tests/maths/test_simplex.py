"""trimol.simplex and its solvers against exact references, on nasty inputs.

The references share no code with the library and round nothing, for they compute with rational
numbers: the projection, the min-norm point (M ≤ 5, every support tried) and the optimality
conditions (any M). No error below is blurred by an error of the reference.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import scipy
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimol import simplex
from trimol.maths import min_norm as solver
from trimol.maths.projection import projected, projected_on_host

EPS = 2.0**-52
RHOS = [0.0, 1e-12, 1e-3, 1.0, 1e6]

exhaustive = settings(derandomize=True, deadline=None, max_examples=200)
quick = settings(derandomize=True, deadline=None, max_examples=100)


# --- references -----------------------------------------------------------------------------------


def exact_projection(v: list[float]) -> list[Fraction]:
    """Project in rational arithmetic: the one θ = (sum over S - 1)/|S| that reproduces S."""
    values = [Fraction(x) for x in v]
    for size in range(1, len(values) + 1):
        largest = sorted(values, reverse=True)[:size]
        theta = (sum(largest) - 1) / size
        weights = [max(x - theta, Fraction(0)) for x in values]
        if sum(weights) == 1:
            return weights
    raise AssertionError("no threshold found")


def rational(gramian: Tensor, rho: float) -> list[list[Fraction]]:
    """(G + Gᵀ)/2 + ρI, exactly."""
    G = [[Fraction(x) for x in row] for row in gramian.double().tolist()]
    size = range(len(G))
    return [[(G[i][j] + G[j][i]) / 2 + Fraction(rho) * (i == j) for j in size] for i in size]


def kkt_failure(gramian: Tensor, rho: float, weights: Tensor) -> float:
    """How far weights are from optimal, in units of the rounding of evaluating the conditions.

    Optimal: g_i ≥ s for all i, = s where λ_i > 0, with g = Hλ and s = λᵀHλ. A float λ cannot do
    better than eps · (Σ_j |H_ij| λ_j + λᵀ|H|λ) in entry i.
    """
    H = rational(gramian, rho)
    w = [Fraction(x) for x in weights.double().tolist()]
    total = sum(w)
    w = [x / total for x in w]
    g = [sum(h * x for h, x in zip(row, w, strict=True)) for row in H]
    a = [sum(abs(h) * x for h, x in zip(row, w, strict=True)) for row in H]
    s = sum(x * y for x, y in zip(w, g, strict=True))
    magnitude = sum(x * y for x, y in zip(w, a, strict=True))
    worst = Fraction(0)
    for x, y, b in zip(w, g, a, strict=True):
        gap = abs(y - s) if x > 0 else s - y
        if gap > 0:
            worst = max(worst, gap / (b + magnitude))
    return float(worst) / EPS


def objective(gramian: Tensor, rho: float, weights: list[float] | list[Fraction]) -> Fraction:
    return quadratic(rational(gramian, rho), [Fraction(x) for x in weights])


def quadratic(H: list[list[Fraction]], w: list[Fraction]) -> Fraction:
    return sum(
        (x * y * h for x, row in zip(w, H, strict=True) for y, h in zip(w, row, strict=True)),
        Fraction(0),
    )


def reference_min_norm(gramian: Tensor, rho: float) -> list[Fraction]:
    """The best of the stationary points of all faces, exactly.

    Some minimiser is the only stationary point of its face, so faces with many need not be seen.
    """
    H = rational(gramian, rho)
    candidates = []
    for size in range(1, len(H) + 1):
        for support in itertools.combinations(range(len(H)), size):
            weights = stationary_point(H, support)
            if weights is not None:
                candidates.append((quadratic(H, weights), weights))
    return min(candidates)[1]


def stationary_point(H: list[list[Fraction]], support: tuple[int, ...]) -> list[Fraction] | None:
    """Solve H_SS λ = s·1, 1ᵀλ = 1; None if singular or not in the simplex."""
    one, zero = Fraction(1), Fraction(0)
    rows = [[*(H[i][j] for j in support), one, zero] for i in support]
    solution = solve_exactly([*rows, [*(one for _ in support), zero, one]])
    if solution is None or min(solution[:-1]) < 0:
        return None
    weights = [zero] * len(H)
    for i, x in zip(support, solution, strict=False):
        weights[i] = x
    return weights


def solve_exactly(system: list[list[Fraction]]) -> list[Fraction] | None:
    """Gauss-Jordan elimination of an augmented system; None if singular."""
    size = len(system)
    for k in range(size):
        pivot = next((i for i in range(k, size) if system[i][k]), None)
        if pivot is None:
            return None
        system[k], system[pivot] = system[pivot], system[k]
        head = [x / system[k][k] for x in system[k]]
        system = [
            head if i == k else [x - row[k] * y for x, y in zip(row, head, strict=True)]
            for i, row in enumerate(system)
        ]
    return [row[-1] for row in system]


# --- nasty inputs ---------------------------------------------------------------------------------


@st.composite
def gramians(draw: Callable, smallest: int = 1, largest: int = 5) -> Tensor:
    """Gramians of any rank with zero, repeated, opposite, parallel and badly scaled rows."""
    size = draw(st.integers(smallest, largest))
    rank = draw(st.integers(1, size + 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        jacobian = rng.standard_normal((size, rank))
    else:
        jacobian = rng.integers(-3, 4, (size, rank)).astype(np.float64)
    edits = st.sampled_from(["zero", "repeat", "oppose", "shorten", "nearly repeat"])
    for edit in draw(st.lists(edits, max_size=3)):
        source, target = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
        row = jacobian[source]
        jacobian[target] = {
            "zero": 0 * row,
            "repeat": row,
            "oppose": -row,
            "shorten": row * 0.25,
            "nearly repeat": row * (1 + 1e-9) + 1e-10,
        }[edit]
    if draw(st.booleans()):
        exponents = draw(st.lists(st.integers(-8, 8), min_size=size, max_size=size))
        jacobian = jacobian * 10.0 ** np.array(exponents)[:, None]
    gramian = jacobian @ jacobian.T
    gramian = (gramian + gramian.T) / 2 * draw(st.sampled_from([1.0, 1e-12, 1e12]))
    return torch.from_numpy(gramian)


def well_posed(seed: int, size: int, exponent: int) -> Tensor:
    """A Gramian with a unique minimiser, well conditioned but for rows scaled by 1e±exponent."""
    rng = np.random.default_rng(seed)
    jacobian = rng.standard_normal((size, 3 * size))
    jacobian *= 10.0 ** rng.uniform(-exponent, exponent, (size, 1))
    gramian = jacobian @ jacobian.T
    return torch.from_numpy((gramian + gramian.T) / 2)


def assert_weights(weights: Tensor, shape: tuple[int, ...]) -> None:
    assert weights.shape == shape
    assert (weights >= 0).all()
    sums = weights.double().sum(-1)
    torch.testing.assert_close(
        sums, torch.ones_like(sums), rtol=0, atol=torch.finfo(weights.dtype).eps * 5
    )


# --- project --------------------------------------------------------------------------------------

entries = st.one_of(
    st.floats(-2, 2),
    st.floats(-1e12, 1e12),
    st.floats(-1e-12, 1e-12),
    st.sampled_from([0.0, 1.0, 0.5, 0.25, 1e12, -1e12, 1e-12, -1e300, 1e300, 1 / 3]),
)


@exhaustive
@given(st.lists(entries, min_size=1, max_size=9))
def test_projection_is_exact(v):
    weights = simplex.project(torch.tensor(v, dtype=torch.float64))
    assert_weights(weights, (len(v),))
    for found, exact in zip(weights.tolist(), exact_projection(v), strict=True):
        assert abs(Fraction(found) - exact) <= 4 * EPS


@quick
@given(st.integers(0, 2**32 - 1), st.integers(2, 3000), st.sampled_from([1e-3, 0.3, 1.0, 1e6]))
@example(224, 115, 0.3)  # a correction that reached entries without weight
def test_projection_of_many_entries_sums_to_one(seed, size, spread):
    v = np.random.default_rng(seed).standard_normal(size) * spread
    v[0] += 0.5
    weights = simplex.project(torch.from_numpy(v))
    assert_weights(weights, (size,))
    # Optimal: v - λ is the same on the support and no larger elsewhere.
    rest = torch.from_numpy(v) - weights
    theta = rest[weights > 0]
    assert theta.max() - theta.min() <= 4 * EPS * max(1.0, float(np.abs(v).max()))
    outside = rest[weights == 0]
    assert outside.numel() == 0 or outside.max() <= theta.max() + 4 * EPS


def test_small_entries_keep_their_digits():
    weights = simplex.project(torch.tensor([1.0, 1e-12], dtype=torch.float64))
    assert weights[1].item() == pytest.approx(5e-13, rel=1e-15, abs=0)


@quick
@given(
    st.lists(entries, min_size=1, max_size=9),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
)
def test_projecting_twice_is_projecting_once(v, dtype):
    limit = torch.finfo(dtype).max
    once = simplex.project(torch.tensor(v, dtype=torch.float64).clamp(-limit, limit).to(dtype))
    assert once.dtype == dtype
    assert torch.equal(simplex.project(once), once)


@pytest.mark.parametrize(
    "weights", [[0.2, 0.3, 0.5], [1 / 3] * 3, [0.1] * 10, [1.0], [0.0, 1.0, 0.0], [0.7, 0.1, 0.2]]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_weights_come_back_bit_for_bit(weights, dtype):
    given_weights = torch.tensor(weights, dtype=dtype)
    assert torch.equal(simplex.project(given_weights), given_weights)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.3, 0.1, 1e12, -1e12, 1e-12, -1e300])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 49])
def test_uniform_stays_uniform(value, size):
    weights = simplex.project(torch.full((size,), value, dtype=torch.float64))
    assert len(set(weights.tolist())) == 1
    assert weights[0].item() == pytest.approx(1 / size, rel=1e-15 * size, abs=0)


def test_project_takes_batches_and_vmaps():
    v = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    v[0, 0] *= 1e12
    weights = simplex.project(v)
    assert_weights(weights, (4, 5, 6))
    for row, expected in zip(v.reshape(-1, 6), weights.reshape(-1, 6), strict=True):
        assert torch.equal(simplex.project(row), expected)
    assert torch.equal(torch.func.vmap(torch.func.vmap(projected))(v), weights)
    assert simplex.project(torch.empty(0, 3)).shape == (0, 3)


def test_project_detaches_and_promotes_integers():
    assert not simplex.project(torch.ones(3, requires_grad=True)).requires_grad
    weights = simplex.project(torch.tensor([3, 0, 0]))
    assert weights.dtype == torch.get_default_dtype()
    assert weights.tolist() == [1, 0, 0]


def test_unchecked_projection_keeps_nan_to_its_row():
    v = torch.tensor([[0.5, torch.nan], [0.5, torch.inf], [0.5, 0.5]])
    weights = projected(v)
    assert weights[:2].isnan().all()
    assert weights[2].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("v", "error", "message"),
    [
        ([0.5, 0.5], TypeError, "v must be a torch.Tensor, found list"),
        (torch.ones(2, dtype=torch.complex64), TypeError, "v must be real, found dtype torch.comp"),
        (torch.tensor(1.0), ValueError, r"v must have shape \(..., M\) with M >= 1, found \(\)"),
        (torch.ones(3, 0), ValueError, r"with M >= 1, found \(3, 0\)"),
        (
            torch.tensor([1.0, torch.nan]),
            ValueError,
            r"v must be finite, found nan at .* \(1,\)",
        ),
        (torch.tensor([[1.0], [-torch.inf]]), ValueError, r"finite, found -inf at index \(1, 0\)"),
    ],
)
def test_project_names_what_is_wrong(v, error, message):
    with pytest.raises(error, match=message) as raised:
        simplex.project(v)
    assert "\n" not in str(raised.value)


# --- min_norm against the references --------------------------------------------------------------


@pytest.mark.slow
@exhaustive
@given(gramians(1, 5), st.sampled_from(RHOS))
def test_min_norm_reaches_the_optimum(gramian, rho):
    weights = simplex.min_norm(gramian, rho)
    assert_weights(weights, gramian.shape[:1])
    assert kkt_failure(gramian, rho, weights) <= 32

    found, best = weights.tolist(), reference_min_norm(gramian, rho)
    excess = objective(gramian, rho, found) - objective(gramian, rho, best)
    assert excess <= 8 * EPS * natural_scale(gramian, rho, found, best)


def natural_scale(gramian: Tensor, rho: float, *points: list[float] | list[Fraction]) -> Fraction:
    """What a relative error of 1 in every entry of H, |E_ij| = √(H_ii H_jj), does to the value."""
    norms = [Fraction(math.sqrt(x + rho)) for x in gramian.diagonal().tolist()]
    sums = [sum(n * Fraction(x) for n, x in zip(norms, w, strict=True)) for w in points]
    return sum((x * x for x in sums), Fraction(0))


@exhaustive
@given(gramians(6, 12), st.sampled_from(RHOS))
def test_min_norm_is_optimal_beyond_enumeration(gramian, rho):
    weights = simplex.min_norm(gramian, rho)
    assert_weights(weights, gramian.shape[:1])
    assert kkt_failure(gramian, rho, weights) <= 32


@pytest.mark.parametrize("size", [32, 100])
@pytest.mark.parametrize("exponent", [0, 8])
def test_min_norm_is_optimal_for_many_objectives(size, exponent):
    gramian = well_posed(seed=size, size=size, exponent=exponent)
    assert kkt_failure(gramian, 0.0, simplex.min_norm(gramian)) <= 8


@quick
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.sampled_from([0, 4, 8]))
def test_every_weight_has_all_its_digits_where_the_problem_is_well_posed(seed, size, exponent):
    gramian = well_posed(seed, size, exponent)
    best = reference_min_norm(gramian, 0.0)
    for weights in (simplex.min_norm(gramian), simplex.min_norm(gramian[None])[0]):
        for found, exact in zip(weights.tolist(), best, strict=True):
            assert abs(Fraction(found) - exact) <= 1e-12 * exact
        value = objective(gramian, 0.0, weights.tolist())
        assert value <= objective(gramian, 0.0, best) * (1 + 4 * EPS)


def test_orthogonal_gradients_get_inverse_square_weights():
    squares = torch.tensor([1e-16, 1.0, 4.0, 1e16], dtype=torch.float64)
    inverse = 1 / squares
    for rho in (0.0, 1.0):
        inverse = 1 / (squares + rho)
        weights = simplex.min_norm(torch.diag(squares), rho)
        torch.testing.assert_close(weights, inverse / inverse.sum(), rtol=4 * EPS, atol=0)


# --- min_norm: closed forms and special gradients -------------------------------------------------


@exhaustive
@given(gramians(2, 2), st.sampled_from(RHOS))
def test_two_objectives_follow_the_closed_form(gramian, rho):
    H = rational(gramian, rho)
    first, second = H[1][1] - H[0][1], H[0][0] - H[0][1]
    if first <= 0 or second <= 0:  # one gradient is the shortest point, or both are the same
        exact = Fraction(first > second) if first != second else Fraction(1, 2)
    else:
        exact = first / (first + second)
    for weights in (simplex.min_norm(gramian, rho), simplex.min_norm(gramian[None], rho)[0]):
        assert_weights(weights, (2,))
        # ρ is added once, with one rounding: of the size of the terms, not of their difference.
        noise = Fraction(rho) + abs(first) + abs(second)
        tolerance = 4 * EPS * (1 + (noise / (first + second) if first + second > 0 else 0))
        assert abs(Fraction(weights[0].item()) - exact) <= tolerance


def test_one_objective_gets_all():
    for value in (0.0, 1e-12, 3.0):
        assert simplex.min_norm(torch.tensor([[value]])).tolist() == [1.0]
    assert simplex.min_norm(torch.ones(2, 1, 1)).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 9])
def test_zero_gramian_gives_uniform_weights(size):
    zeros = torch.zeros(size, size, dtype=torch.float64)
    uniform = torch.full((size,), 1 / size, dtype=torch.float64)
    assert torch.equal(simplex.min_norm(zeros), uniform)
    assert torch.equal(simplex.min_norm(zeros.expand(2, -1, -1)), uniform.expand(2, -1))
    torch.testing.assert_close(simplex.min_norm(zeros, 1e-3), uniform, rtol=4 * EPS, atol=0)


@pytest.mark.parametrize("size", [2, 4, 7])
def test_zero_gradients_share_the_weight(size):
    jacobian = torch.randn(size, 9, generator=torch.Generator().manual_seed(size))
    jacobian[1:3] = 0
    gramian = jacobian @ jacobian.T
    expected = torch.zeros(size)
    expected[1:3] = 1 / len(expected[1:3])
    assert torch.equal(simplex.min_norm(gramian), expected)
    assert torch.equal(simplex.min_norm(gramian[None]), expected[None])


def test_equal_gradients_get_equal_weights_with_rho():
    gramian = torch.ones(4, 4, dtype=torch.float64)
    for rho in (1e-12, 1.0, 1e12):
        uniform = torch.full((4,), 0.25, dtype=torch.float64)
        torch.testing.assert_close(simplex.min_norm(gramian, rho), uniform, rtol=1e-3, atol=0)
        assert kkt_failure(gramian, rho, simplex.min_norm(gramian, rho)) <= 4


@pytest.mark.parametrize("size", [3, 5, 8])
def test_stationary_points_have_value_zero(size):
    jacobian = torch.randn(size, size - 1, generator=torch.Generator().manual_seed(size))
    jacobian = jacobian.double()
    jacobian[-1] = -(jacobian[:-1] * torch.rand(size - 1, 1).double()).sum(0)
    gramian = jacobian @ jacobian.T
    for weights in (simplex.min_norm(gramian), simplex.min_norm(gramian[None])[0]):
        assert_weights(weights, (size,))
        assert (weights @ jacobian).norm() <= 1e-7 * jacobian.norm()  # √eps: a Gramian's limit
        assert kkt_failure(gramian, 0.0, weights) <= 32


# --- min_norm: symmetries -------------------------------------------------------------------------


@quick
@given(gramians(2, 8), st.sampled_from([0.0, 1.0]), st.integers(-60, 60))
def test_scaling_all_gradients_by_powers_of_two_changes_no_bit(gramian, rho, exponent):
    factor = 4.0**exponent
    scaled = simplex.min_norm(gramian * factor, rho * factor)
    assert torch.equal(scaled, simplex.min_norm(gramian, rho))


@quick
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.randoms(use_true_random=False))
def test_relabelling_objectives_relabels_weights(seed, size, random):
    gramian = well_posed(seed, size, exponent=2)
    order = list(range(size))
    random.shuffle(order)
    relabelled = simplex.min_norm(gramian[order][:, order])
    torch.testing.assert_close(relabelled, simplex.min_norm(gramian)[order], rtol=1e-12, atol=0)


def test_large_rho_gives_uniform_weights_and_no_rho_the_paper_s_limit():
    gramian = well_posed(seed=0, size=4, exponent=0)
    nearly_uniform = simplex.min_norm(gramian, 1e12)
    torch.testing.assert_close(nearly_uniform, torch.full_like(nearly_uniform, 0.25))
    small = simplex.min_norm(gramian, 1e-13)
    torch.testing.assert_close(small, simplex.min_norm(gramian), rtol=1e-11, atol=1e-13)


# --- many problems at once ------------------------------------------------------------------------


@quick
@given(st.data(), st.integers(1, 9), st.sampled_from(RHOS))
def test_a_batch_agrees_with_one_by_one(data, size, rho):
    rows = data.draw(st.lists(gramians(size, size), min_size=1, max_size=4))
    batch = torch.stack(rows)
    weights = simplex.min_norm(batch, rho)
    assert_weights(weights, batch.shape[:-1])
    for gramian, row in zip(rows, weights, strict=True):
        assert kkt_failure(gramian, rho, row) <= 32
        found, alone = row.tolist(), simplex.min_norm(gramian, rho).tolist()
        gap = abs(objective(gramian, rho, found) - objective(gramian, rho, alone))
        assert gap <= 8 * EPS * natural_scale(gramian, rho, found, alone)


@pytest.mark.parametrize("size", [2, 3, 5, 6, 10])
def test_a_batch_gives_the_same_weights_where_they_are_unique(size):
    rows = [well_posed(seed, size, exponent=8 * (seed % 2)) for seed in range(24)]
    batch = torch.stack(rows).reshape(2, 3, 4, size, size)
    weights = simplex.min_norm(batch)
    assert weights.shape == (2, 3, 4, size)
    one_by_one = torch.stack([simplex.min_norm(row) for row in rows])
    torch.testing.assert_close(weights.reshape(24, size), one_by_one, rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_small_problems_vmap(size):
    batch = torch.stack([well_posed(seed, size, exponent=4) for seed in range(6)])
    mapped = torch.func.vmap(lambda gramian: solver.min_norm_batched(gramian, 0.5))(batch)
    torch.testing.assert_close(mapped, simplex.min_norm(batch, 0.5), rtol=1e-14, atol=0)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_an_empty_batch_gives_no_weights(size):
    assert simplex.min_norm(torch.empty(0, size, size)).shape == (0, size)


def test_a_batch_longer_than_a_chunk(monkeypatch):
    monkeypatch.setattr(solver, "_CHUNK", 5)
    for size in (3, 7):
        batch = torch.stack([well_posed(seed, size, exponent=1) for seed in range(13)])
        one_by_one = torch.stack([simplex.min_norm(row) for row in batch])
        torch.testing.assert_close(simplex.min_norm(batch), one_by_one, rtol=1e-12, atol=0)


def test_what_the_batched_active_set_leaves_is_solved_alone(monkeypatch):
    batch = torch.stack([well_posed(seed, 7, exponent=8) for seed in range(4)])
    expected = simplex.min_norm(batch)
    active_set = solver.active_set

    def failing(C, c, support):
        y, residual = active_set(C, c, support)
        return torch.ones_like(y), torch.full_like(residual, 1e-3)

    monkeypatch.setattr(solver, "active_set", failing)
    torch.testing.assert_close(simplex.min_norm(batch), expected, rtol=1e-12, atol=0)


# --- what NNLS does not solve is repaired ---------------------------------------------------------


def out_of_iterations(A, b):
    raise RuntimeError("Maximum number of iterations reached.")


def wrong_support(A, b):
    return np.ones(A.shape[1]), 0.0


def no_support(A, b):
    return np.zeros(A.shape[1]), 1.0


@pytest.mark.parametrize("nnls", [out_of_iterations, wrong_support, no_support])
@pytest.mark.parametrize("size", [3, 4, 6, 12])
@pytest.mark.parametrize("exponent", [0, 8])
def test_a_failure_of_nnls_is_caught_and_repaired(monkeypatch, nnls, size, exponent):
    gramian = well_posed(seed=size, size=size, exponent=exponent)
    expected = simplex.min_norm(gramian)
    monkeypatch.setattr(scipy.optimize, "nnls", nnls)
    torch.testing.assert_close(simplex.min_norm(gramian), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("size", "seed", "rho"),
    [
        # Here NNLS, and the active set on the Gramian as it is, stop far from the optimum.
        *((6, seed, 0.0) for seed in (79, 98, 768, 835, 1070, 1077, 1262)),
        *((6, seed, 1e-12) for seed in (324, 390, 555, 898, 1003)),
        (5, 169, 1e-12),  # here the batched solution needs its refinement
    ],
)
def test_exactly_dependent_gradients_of_all_scales(size, seed, rho):
    rng = np.random.default_rng(seed)
    jacobian = rng.integers(-1, 2, (size, 2)) * 10.0 ** rng.integers(-8, 9, (size, 1))
    gramian = torch.from_numpy(jacobian @ jacobian.T)
    for weights in (simplex.min_norm(gramian, rho), simplex.min_norm(gramian[None], rho)[0]):
        assert_weights(weights, (size,))
        assert kkt_failure(gramian, rho, weights) <= 32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [3, 5, 8])
def test_gramians_indefinite_by_rounding_are_solved_to_their_rounding(dtype, size):
    generator = torch.Generator().manual_seed(size)
    indefinite = 0
    for _ in range(40):
        jacobian = torch.randn(size, 2, generator=generator)
        gramian = (jacobian @ jacobian.T).to(dtype)
        indefinite += int(torch.linalg.eigvalsh(gramian.double())[0] < -100 * EPS)
        for weights in (simplex.min_norm(gramian), simplex.min_norm(gramian[None])[0]):
            assert weights.dtype == dtype
            assert_weights(weights, (size,))
            assert kkt_failure(gramian, 0.0, weights) * EPS <= 2 * torch.finfo(dtype).eps
    assert indefinite > 10  # the test is about something


# --- dtypes, devices, errors ----------------------------------------------------------------------

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_weights_keep_dtype_and_device(device, dtype, size):
    gramian = well_posed(seed=1, size=size, exponent=0).to(device, dtype).requires_grad_()
    for weights in (simplex.min_norm(gramian), simplex.min_norm(gramian[None])[0]):
        assert weights.dtype == dtype
        assert weights.device == gramian.device
        assert not weights.requires_grad
        assert_weights(weights, (size,))


def test_integer_gramians_give_the_default_dtype():
    weights = simplex.min_norm(torch.tensor([[1, 0], [0, 4]]))
    assert weights.dtype == torch.get_default_dtype()
    torch.testing.assert_close(weights, torch.tensor([0.8, 0.2]))


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e306])
def test_extreme_scales_neither_overflow_nor_vanish(size, scale):
    gramian = well_posed(seed=3, size=size, exponent=0)
    gramian = gramian / gramian.max()
    expected = simplex.min_norm(gramian)
    for weights in (simplex.min_norm(gramian * scale), simplex.min_norm(gramian[None] * scale)[0]):
        torch.testing.assert_close(weights, expected, rtol=1e-12, atol=0)


def test_norms_that_underflow_are_zero_gradients():
    jacobian = torch.tensor([[1e-25, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert simplex.min_norm(jacobian @ jacobian.T).tolist() == [1.0, 0.0, 0.0]


def test_rounding_asymmetry_is_accepted():
    gramian = well_posed(seed=2, size=4, exponent=4)
    noisy = gramian * (1 + 1e-8 * torch.tensor(np.triu(np.ones((4, 4)), 1)))
    torch.testing.assert_close(
        simplex.min_norm(noisy), simplex.min_norm(gramian), rtol=1e-6, atol=0
    )


def changed(index: tuple[int, ...], value: float, size: int = 3) -> Tensor:
    gramian = torch.eye(size, dtype=torch.float64)
    gramian[index] = value
    return gramian


@pytest.mark.parametrize(
    ("gramian", "error", "message"),
    [
        ([[1.0]], TypeError, "gramian must be a torch.Tensor, found list"),
        (torch.eye(2, dtype=torch.complex64), TypeError, "gramian must be real, found dtype"),
        (torch.ones(3), ValueError, r"gramian must have shape \(..., M, M\) .* found \(3,\)"),
        (torch.ones(2, 3), ValueError, r"gramian must have shape .* found \(2, 3\)"),
        (torch.ones(4, 0, 0), ValueError, r"gramian must have shape .* M >= 1, found \(4, 0, 0\)"),
        (
            changed((1, 2), torch.nan),
            ValueError,
            r"must be finite, found nan at .*\(1, 2\)",
        ),
        (changed((0, 0), torch.inf), ValueError, r"be finite, found inf at index \(0, 0\)"),
        (changed((0, 1), torch.inf, 2), ValueError, r"be finite, found inf at index \(0, 1\)"),
        (
            changed((1, 1), -1.0),
            ValueError,
            r"negative squared norm .* found -1.0 at .*\(1, 1\)",
        ),
        (changed((1, 1), -1e-310, 2), ValueError, r"no negative squared norm .* at .*\(1, 1\)"),
        (-torch.ones(1, 1), ValueError, "no negative squared norm"),
        (
            changed((0, 2), 1e-4),
            ValueError,
            r"found 0.0001 at .*\(0, 2\) but 0.0 at \(2",
        ),
        (
            torch.stack([torch.eye(2), torch.tensor([[1.0, 0.5], [0.0, 1.0]])]),
            ValueError,
            r"be symmetric, found 0.5 at index \(1, 0, 1\) but 0.0 at \(1, 1, 0\)",
        ),
        (
            torch.tensor([[1.0, 2.0], [2.0, 1.0]]),
            ValueError,
            r"gramian must be positive semi-definite, .* found 2.0 at index \(0, 1\)",
        ),
    ],
)
def test_min_norm_names_what_is_wrong(gramian, error, message):
    with pytest.raises(error, match=message) as raised:
        simplex.min_norm(gramian)
    assert "\n" not in str(raised.value)


def test_asymmetry_is_judged_on_each_row_s_own_scale():
    gramian = torch.diag(torch.tensor([1e-16, 1e-16, 1e16], dtype=torch.float64))
    gramian[0, 1] = 1e-19  # nothing beside 1e16, but 1e-3 of its own row and column
    with pytest.raises(ValueError, match="symmetric"):
        simplex.min_norm(gramian)


@pytest.mark.parametrize(
    ("rho", "error", "message"),
    [
        (-1e-3, ValueError, "rho must be finite and at least 0, found -0.001"),
        (float("nan"), ValueError, "rho must be .* found nan"),
        (float("inf"), ValueError, "rho must be .* found inf"),
        ("1", TypeError, "rho must be a real number, found str"),
        (None, TypeError, "rho must be a real number, found NoneType"),
    ],
)
def test_min_norm_names_a_wrong_rho(rho, error, message):
    with pytest.raises(error, match=message):
        simplex.min_norm(torch.eye(3), rho)


@given(st.lists(gramians(2, 2), min_size=1, max_size=4), st.sampled_from(RHOS))
def test_pairs_on_the_host_are_those_in_torch_to_the_bit(batch, rho):
    stacked = torch.stack(batch)
    expected = solver._min_norm_pairs(stacked, rho)
    found = torch.from_numpy(solver.min_norm_pairs_on_host(stacked.numpy(), rho))
    assert torch.equal(found, expected)


@given(
    st.integers(1, 7).flatmap(
        lambda size: st.lists(
            st.lists(st.floats(-1e20, 1e20), min_size=size, max_size=size), min_size=1, max_size=4
        )
    ),
    st.sampled_from([1.0, 1e-19, 1e-21]),
)
def test_projection_on_the_host_is_that_in_torch_to_the_bit(rows, scale):
    v = torch.tensor(rows, dtype=torch.float64) * scale
    assert torch.equal(projected_on_host(v), projected(v))
    weights = projected(v)
    assert torch.equal(projected_on_host(weights), weights)


def test_projection_on_the_host_keeps_nan_to_its_row():
    v = torch.tensor([[0.3, float("nan")], [2.0, 0.0]], dtype=torch.float64)
    found = projected_on_host(v)
    assert found[0].isnan().all()
    assert found[1].tolist() == [1.0, 0.0]
