"""Intervals cover the truth as often as they say, and slopes are those of power laws."""

import numpy as np
import pytest

from trimol.runs.statistics import fraction, mean, slope


def covered(interval, truth):
    return interval.low <= truth <= interval.high


def test_the_mean_covers_its_truth_at_the_nominal_rate():
    random = np.random.default_rng(0)
    hits = [covered(mean(random.normal(2.0, 1.0, 8)), 2.0) for _ in range(1000)]
    assert 0.93 < np.mean(hits) < 0.97


def test_the_fraction_covers_its_truth():
    random = np.random.default_rng(1)
    hits = [covered(fraction(random.random(20) < 0.3), 0.3) for _ in range(1000)]
    assert 0.92 < np.mean(hits) < 0.98


def test_the_slope_covers_its_truth():
    random = np.random.default_rng(2)
    x = np.geomspace(10, 1000, 6)
    hits = []
    for seed in range(200):
        y = 3 * x**-0.7 * random.lognormal(0, 0.3, (30, 6))
        hits.append(covered(slope(x, y, resamples=400, seed=seed), -0.7))
    assert 0.88 < np.mean(hits) < 0.99


def test_one_value_has_no_interval():
    assert mean(np.array([3.0])).low == -np.inf
    assert mean(np.array([3.0])).estimate == 3.0


def test_bad_input_is_one_clear_line():
    with pytest.raises(ValueError, match="values must be finite numbers in one dimension"):
        mean(np.array([np.nan]))
    with pytest.raises(ValueError, match="events must not be empty"):
        fraction(np.array([], dtype=bool))
    with pytest.raises(ValueError, match=r"y must have shape units × 2, found \(3,\)"):
        slope(np.array([1.0, 2.0]), np.ones(3))
    with pytest.raises(ValueError, match="y must have positive means over units"):
        slope(np.array([1.0, 2.0]), -np.ones((3, 2)))
