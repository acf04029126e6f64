"""E_ca and E_caw against their definitions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol import simplex
from trimol.errors.conflict import direction_distance, weight_distance

exact = settings(derandomize=True, deadline=None, max_examples=60)


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
