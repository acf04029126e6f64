"""Linear programs over the simplex, against all vertices of their polytopes."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimol.maths import _linear as linear
from trimol.maths._linear import over_simplex


def best_vertex(objective, rows, least):
    """The largest cᵀα over all points where as many constraints as there are entries are tight."""
    size = len(objective)
    sides = [(row, b) for row, b in zip(rows, least, strict=True) if np.isfinite(b)]
    sides += [(row, 0.0) for row in np.eye(size)]
    best = -np.inf
    for tight in itertools.combinations(sides, size - 1):
        system = np.array([np.ones(size), *(row for row, _ in tight)])
        if np.linalg.matrix_rank(system) < size:
            continue
        alpha = np.linalg.solve(system, [1.0, *(b for _, b in tight)])
        if all(row @ alpha >= b - 1e-9 for row, b in sides):
            best = max(best, float(objective @ alpha))
    return best


@settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(1, 4), st.integers(0, 10**6), st.sampled_from([1e-12, 1.0, 1e12]))
@pytest.mark.parametrize("enumerated", [0, 300])
def test_no_vertex_is_better(monkeypatch, enumerated, size, seed, scale):
    monkeypatch.setattr(linear, "_VERTICES", enumerated)
    rng = np.random.default_rng(seed)
    objective, rows = rng.standard_normal(size), rng.standard_normal((3, size))
    least = rng.choice([-np.inf, -1.0, 0.0, 0.5], 3) * np.where(rng.random(3) < 0.5, 1, 0.3)
    found = over_simplex(scale * objective, scale * rows, scale * least)
    best = best_vertex(objective, rows, least)
    if found is None:
        assert best == -np.inf
    else:
        assert found.sum() == pytest.approx(1)
        assert (found >= 0).all()
        assert (rows @ found >= least - 1e-9).all()
        assert objective @ found == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize("enumerated", [0, 300])
def test_a_free_variable_is_the_least_of_the_rows(monkeypatch, enumerated):
    """Raise t with Aα ≥ t: the value of a game, here paper, scissors, stone."""
    monkeypatch.setattr(linear, "_VERTICES", enumerated)
    game = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    rows = np.column_stack([game, -np.ones(3)])
    found = over_simplex(np.array([0, 0, 0, 1.0]), rows, np.zeros(3), free=1)
    assert found == pytest.approx(np.full(3, 1 / 3))
