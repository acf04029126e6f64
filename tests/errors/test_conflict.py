"""E_ca and E_caw against their definitions, for one run and over runs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimol import simplex
from trimol.errors import conflict_over_runs
from trimol.errors._conflict import conflict_direction, conflicting, cosines, weight_distance

exact = settings(derandomize=True, deadline=None, max_examples=60)


def direction_distance(jacobian: Tensor, weights: Tensor, avoiding: Tensor) -> float:
    """E_ca."""
    return float(conflict_direction(jacobian, weights, avoiding).square().sum())


@exact
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_direction_distance_is_its_definition(seed: int, objectives: int) -> None:
    random = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(objectives, 7, generator=random, dtype=torch.float64)
    weights, avoiding = torch.rand(2, objectives, generator=random, dtype=torch.float64)
    difference = weights - avoiding
    by_gramian = (difference @ jacobian @ jacobian.T @ difference).item()
    assert direction_distance(jacobian, weights, avoiding) == pytest.approx(by_gramian, abs=1e-12)


def test_no_distance_from_itself() -> None:
    weights = torch.tensor([0.2, 0.8])
    assert direction_distance(torch.eye(2).double(), weights, weights) == 0
    assert weight_distance(weights, weights) == 0


def test_weight_distance_is_squared() -> None:
    assert weight_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])) == 2


def test_direction_distance_is_the_same_for_every_minimiser() -> None:
    # Three equal gradients: every λ is a minimiser, and no direction differs from another.
    jacobian = torch.ones(3, 2, dtype=torch.float64)
    avoiding = simplex.min_norm(jacobian @ jacobian.T)
    for weights in torch.eye(3):
        assert direction_distance(jacobian, weights, avoiding) == pytest.approx(0, abs=1e-28)


# --- over runs ------------------------------------------------------------------------------------


@exact
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 5))
def test_the_readings_over_runs_are_their_definitions(seed: int, runs: int, width: int) -> None:
    random = torch.Generator().manual_seed(seed)
    vectors = torch.randn(runs, width, generator=random, dtype=torch.float64)
    found = conflict_over_runs(list(vectors))
    pairs = [vectors[i] @ vectors[j] for i in range(runs) for j in range(runs) if i != j]
    assert found.definition == pytest.approx(vectors.mean(0).square().sum().item())
    assert found.mean_square == pytest.approx(vectors.square().sum(1).mean().item())
    assert found.unbiased == pytest.approx(sum(p.item() for p in pairs) / len(pairs), abs=1e-12)
    # Jensen: the definition is below the mean of the squares.
    assert found.definition <= found.mean_square + 1e-12
    assert found.runs == runs


def test_the_definition_is_biased_by_the_variance_over_n_and_the_estimate_is_not() -> None:
    random = torch.Generator().manual_seed(0)
    mean, runs = torch.tensor([0.3, 0.0, 0.4], dtype=torch.float64), 4
    trials = [
        conflict_over_runs(mean + torch.randn(runs, 3, generator=random, dtype=torch.float64))
        for _ in range(4000)
    ]
    truth, variance = 0.25, 3.0
    plain = sum(t.definition for t in trials) / len(trials)
    corrected = sum(t.unbiased or 0.0 for t in trials) / len(trials)
    assert plain == pytest.approx(truth + variance / runs, abs=0.04)
    assert corrected == pytest.approx(truth, abs=0.04)


def test_one_run_has_no_unbiased_estimate() -> None:
    found = conflict_over_runs([torch.tensor([3.0, 4.0])])
    assert (found.definition, found.mean_square, found.unbiased) == (25.0, 25.0, None)


def test_runs_may_come_from_a_generator() -> None:
    vectors = [torch.tensor([1.0]), torch.tensor([3.0])]
    assert conflict_over_runs(v for v in vectors) == conflict_over_runs(vectors)


@pytest.mark.parametrize(
    ("directions", "message"),
    [
        ([], "directions must hold at least one vector, found none"),
        ([torch.ones(2), torch.ones(3)], "directions must be of one length, found 2 and 3"),
        ([torch.ones(2, 2)], r"directions must be vectors, found \(2, 2\) at place 0"),
        ([[1.0]], r"directions must be vectors, found \[1.0\] at place 0"),
        ([torch.tensor([math.nan])], "directions must be finite, found NaN or infinity at place 0"),
    ],
)
def test_directions_that_will_not_do(directions: list[Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conflict_over_runs(directions)


# --- cosines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_cosines_at_any_scale(scale: float) -> None:
    rows = scale * torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    found = cosines(rows @ rows.T)
    half = 2**-0.5
    expected = [[1.0, -half, 0.0], [-half, 1.0, half], [0.0, half, 1.0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert conflicting(rows @ rows.T) == pytest.approx(1 / 3)


def test_a_zero_gradient_has_no_cosine_and_no_conflict() -> None:
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    found = cosines(rows @ rows.T)
    assert found[0].isnan().all()
    assert found[:, 0].isnan().all()
    assert found[1:, 1:].tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    assert conflicting(rows @ rows.T) == pytest.approx(1 / 3)


def test_one_objective_has_no_pairs() -> None:
    assert conflicting(torch.ones(1, 1)) == 0.0
