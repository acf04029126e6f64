"""Means and intervals over seeds, against the slow exact ones."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimol.report._numbers import estimated
from trimol.runs.statistics import finite_mean, interval, quantile

finite = st.floats(-1e6, 1e6, allow_subnormal=False)  # whose halves are not rounded away


@settings(deadline=None, max_examples=100)
@given(st.lists(finite, min_size=2, max_size=12))
def test_mean_and_half_width_are_the_exact_ones(values):
    mean = finite_mean(values)
    scale = max(map(abs, values)) or 1.0
    assert mean.estimate == pytest.approx(statistics.mean(values), rel=1e-9, abs=1e-12 * scale)
    half = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    assert mean.half == pytest.approx(half, rel=1e-6, abs=1e-9 * scale)
    assert mean.half == pytest.approx(interval(values), rel=1e-6, abs=1e-9 * scale)
    assert mean.n == len(values)
    assert mean.low <= mean.estimate <= mean.high
    assert mean.band == (mean.low, mean.high)


def test_values_that_are_not_finite_are_counted_but_not_averaged():
    mean = finite_mean([1.0, math.nan, 3.0, math.inf, -math.inf])
    assert (mean.estimate, mean.n) == (2.0, 2)
    assert mean.half == pytest.approx(interval([1.0, 3.0]))
    assert estimated(mean, 5) == "2 ± 13 (2 of 5 finite)"


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, math.nan]])
def test_no_finite_value_is_no_number(values):
    mean = finite_mean(values)
    assert math.isnan(mean.estimate)
    assert (mean.half, mean.n) == (None, 0)
    assert estimated(mean, len(values)).startswith("NaN (0 of" if values else "–")


def test_one_value_has_no_interval():
    mean = finite_mean([2.0])
    assert (mean.estimate, mean.half, *mean.band) == (2.0, None, 2.0, 2.0)


def test_huge_values_do_not_overflow():
    mean = finite_mean([1e308, 1.2e308, 1.4e308])
    assert mean.estimate == pytest.approx(1.2e308)
    assert math.isfinite(mean.half)
