"""Means and intervals over seeds, against the slow exact ones."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.report._means import estimate
from trimol.runs.statistics import interval

finite = st.floats(-1e6, 1e6, allow_subnormal=False)  # whose halves are not rounded away


@settings(deadline=None, max_examples=100)
@given(st.lists(finite, min_size=2, max_size=12))
def test_mean_and_half_width_are_the_exact_ones(values):
    found = estimate(values)
    scale = max(map(abs, values)) or 1.0
    assert found.mean == pytest.approx(statistics.mean(values), rel=1e-9, abs=1e-12 * scale)
    assert found.half == pytest.approx(interval(values), rel=1e-6, abs=1e-9 * scale)
    assert (found.n, found.total) == (len(values), len(values))
    assert found.low <= found.mean <= found.high


def test_values_that_are_not_finite_are_counted_but_not_averaged():
    found = estimate([1.0, math.nan, 3.0, math.inf, -math.inf])
    assert (found.mean, found.n, found.total) == (2.0, 2, 5)
    assert found.half == pytest.approx(interval([1.0, 3.0]))


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, math.nan]])
def test_no_finite_value_is_no_number(values):
    found = estimate(values)
    assert math.isnan(found.mean)
    assert (found.half, found.n, found.total) == (None, 0, len(values))


def test_one_value_has_no_interval():
    found = estimate([2.0])
    assert (found.mean, found.half, found.low, found.high) == (2.0, None, 2.0, 2.0)


def test_huge_values_do_not_overflow():
    found = estimate([1e308, 1.2e308, 1.4e308])
    assert found.mean == pytest.approx(1.2e308)
    assert math.isfinite(found.half)
