"""R: the shortest convex combination of the gradients, against brute force and closed forms."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trimol.errors._pareto import combined, stationarity

exact = settings(derandomize=True, deadline=None, max_examples=60)


def jacobians(objectives: int, width: int) -> st.SearchStrategy[Tensor]:
    entry = st.floats(-3, 3, allow_nan=False, width=32)
    row = st.lists(entry, min_size=width, max_size=width)
    rows = st.lists(row, min_size=objectives, max_size=objectives)
    return rows.map(lambda found: torch.tensor(found, dtype=torch.float64))


def simplex_grid(objectives: int, parts: int) -> Tensor:
    counts = itertools.product(range(parts + 1), repeat=objectives - 1)
    rows = [(*c, parts - sum(c)) for c in counts if sum(c) <= parts]
    return torch.tensor(rows, dtype=torch.float64) / parts


@pytest.mark.parametrize(("objectives", "parts"), [(2, 2000), (3, 120)])
@exact
@given(data=st.data())
def test_is_the_least_norm_on_a_grid(objectives: int, parts: int, data: st.DataObject) -> None:
    jacobian = data.draw(jacobians(objectives, 4))
    best = (simplex_grid(objectives, parts) @ jacobian).norm(dim=1).min().item()
    # The grid has a point within √M/parts of the minimiser, so it is that much too large at most.
    slack = objectives**0.5 / parts * torch.linalg.matrix_norm(jacobian, 2).item()
    found = stationarity(jacobian)
    assert found <= best + 1e-12
    assert found >= best - slack - 1e-12


def test_one_objective_is_the_gradients_norm() -> None:
    assert stationarity(torch.tensor([[3.0, 4.0]], dtype=torch.float64)) == 5.0


def test_two_orthogonal_gradients() -> None:
    assert stationarity(torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double()) == pytest.approx(2.4)


@exact
@given(jacobians(2, 5), st.floats(0.01, 0.99))
def test_is_zero_to_rounding_where_zero_is_in_the_hull(first: Tensor, share: float) -> None:
    closing = -(first[0] * share + first[1] * (1 - share)) * 2.5
    jacobian = torch.vstack([first, closing])
    assert stationarity(jacobian) <= 1e-13 * max(1.0, jacobian.abs().max().item())


def test_keeps_digits_that_the_gramian_loses() -> None:
    # √(λᵀGλ) would be rounding noise of 1e-8 here.
    jacobian = torch.tensor([[1.0, 1e-11], [-1.0, 1e-11]], dtype=torch.float64)
    assert stationarity(jacobian) == pytest.approx(1e-11, rel=1e-4)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales_with_the_gradients(scale: float) -> None:
    jacobian = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0], [2.0, 0.0, 3.0]]).double()
    assert stationarity(scale * jacobian) == pytest.approx(scale * stationarity(jacobian), rel=1e-9)


def test_combined_is_the_weighted_sum() -> None:
    jacobian = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double()
    assert combined(jacobian, torch.tensor([0.5, 2.0])).tolist() == [6.5, 9.0]
