"""What a few seeds allow to say: against scipy's own tests, and by simulation."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimol.maths.fronts import hypervolume
from trimol.runs.statistics import (
    Paired,
    bootstrap,
    fraction,
    holm,
    interval,
    mean,
    p_value,
    slope,
    steps_apart,
)

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@given(VALUES)
@settings(deadline=None, max_examples=50)
def test_intervals_are_scipys(values: list[float]) -> None:
    found = interval(values)
    assert found is not None
    want = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    assert found == pytest.approx(want, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("n", [2, 5, 6])
def test_p_values_are_scipys_or_the_chance_of_collapses(n: int) -> None:
    """Against every way in which n differences are −1, 0 (at twice the chance) and 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        of_all = [
            (abs(np.mean(each)) / (np.std(each, ddof=1) / n**0.5) if any(each) else 0.0)
            for each in product((-1, 0, 0, 1), repeat=n)
        ]
    for seed in range(5):
        values = np.random.default_rng(seed).normal(2.0, 1, size=n)
        found = stats.ttest_1samp(values, 0)
        chance = np.mean(np.array(of_all) >= found.statistic)
        assert p_value(list(values)) == pytest.approx(max(found.pvalue, chance))


def test_one_seed_says_nothing_about_its_spread() -> None:
    assert interval([1.0]) is None
    assert p_value([1.0]) is None


def test_differences_without_spread() -> None:
    assert p_value([0.0, 0.0]) == 1
    assert p_value([0.5] * 5) == pytest.approx(2 / 4**5)
    assert p_value([0.5, 0.5], resolution=0.5) == 1
    assert p_value([-0.5, -0.5], resolution=0.25) == pytest.approx(2 * stats.t.sf(8**0.5, 1))
    assert interval([0.5, 0.5], resolution=0.25) == pytest.approx(stats.t.ppf(0.975, 1) / 32**0.5)


@given(st.integers(50, 2000), st.lists(st.integers(0, 40), min_size=2), st.booleans())
@settings(deadline=None, max_examples=50)
def test_the_step_of_an_accuracy(n: int, hits: list[int], rounded: bool) -> None:
    """Against the greatest common divisor of whole numbers."""
    values = [(n - k) / n for k in hits]
    distances = np.diff(sorted(set(hits)))
    found = steps_apart([float(np.float32(value)) if rounded else value for value in values])
    if len(distances):
        assert found * n == pytest.approx(np.gcd.reduce(distances), rel=1e-2)
    else:
        assert found == pytest.approx(2.0**-23 * values[0])


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([], 0.0),
        ([0.0, 0.0], 0.0),
        ([3.0], 3 * 2.0**-23),
        ([math.nan, 1.0, math.inf], 2.0**-23),
        ([1.0, 1 + 1e-9], 2.0**-23),  # rounding
        ([-1.0, 1.0], 2.0),
        ([1e12, 2e12, 4e12], 1e12),
        ([1e-12, 3e-12, 7e-12], 2e-12),
    ],
)
def test_steps_of_odd_values(values: list[float], step: float) -> None:
    assert steps_apart(values) == pytest.approx(step, rel=1e-6)


def test_a_continuous_number_has_no_step() -> None:
    dice = np.random.default_rng(0)
    for size in (4, 6, 10, 20):
        for _ in range(20):
            values = dice.lognormal(size=size)
            assert steps_apart(values) < 0.01 * values.std()


@pytest.mark.filterwarnings("error")
def test_pairs_of_numbers_that_are_too_large_too_small_or_none() -> None:
    for bad in (math.nan, math.inf, 1e308):  # the last: a difference that overflows
        pair = Paired([1.0, 2.0, -bad], [2.0, 3.0, bad])
        assert (pair.p, pair.ci) == (None, None)
    usual = Paired([1, 2, 3], [15, 17, 19])
    for scale in (1e-300, 1e160, 5e306):
        pair = Paired([scale * x for x in usual.base], [scale * x for x in usual.own])
        assert pair.step / scale == pytest.approx(usual.step)
        assert pair.p == pytest.approx(usual.p)
    assert Paired([0.0, 0.0, 0.0], [5e-324] * 3).p == 1.0


def test_holm_by_hand() -> None:
    # Sorted: 0.01·4, 0.02·3, 0.03·2 (not below the one before), 0.9·1.
    assert holm([0.9, 0.01, 0.03, 0.02]) == pytest.approx([0.9, 0.04, 0.06, 0.06])
    assert holm([None, 0.5]) == [None, 0.5]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_false_differences_rare() -> None:
    """Twenty comparisons of equals: at most about one table in twenty shows a difference."""
    dice = np.random.default_rng(0)
    tables = dice.normal(size=(200, 20, 5))
    plain = [[p_value(list(row)) for row in table] for table in tables]
    assert np.mean([min(p for p in row if p is not None) < 0.05 for row in plain]) > 0.5
    found = np.mean([min(p for p in holm(row) if p is not None) < 0.05 for row in plain])
    assert found < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


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


def test_the_bootstrap_covers_its_truth():
    random = np.random.default_rng(3)
    hits = []
    for seed in range(150):
        drawn = random.exponential(1.0, 60)
        found = bootstrap(lambda at, x=drawn: np.median(x[at]), 60, resamples=200, seed=seed)
        hits.append(covered(found, np.log(2)))
    assert 0.88 < np.mean(hits) < 0.99


def test_the_bootstrap_of_a_hypervolume_ends_at_the_hypervolume():
    """A resample holds no point that the whole does not: its interval lies at or below it."""
    points = np.random.default_rng(0).random((5, 4, 2))  # 5 seeds, 4 points each
    found = bootstrap(
        lambda at: hypervolume(points[at].reshape(-1, 2), np.ones(2)), 5, resamples=200
    )
    assert found.low < found.high <= found.estimate == hypervolume(points.reshape(-1, 2), [1, 1])
    assert bootstrap(lambda at: 1.0, 1).half is None


def test_one_value_has_no_interval():
    assert mean(np.array([3.0])).low == -np.inf
    assert mean(np.array([3.0])).estimate == 3.0


def test_bad_input_is_one_clear_line():
    with pytest.raises(ValueError, match="values must be finite numbers in one dimension"):
        mean(np.array([np.nan]))
    with pytest.raises(ValueError, match="units must be at least 1, found 0"):
        bootstrap(len, 0)
    with pytest.raises(ValueError, match="events must not be empty"):
        fraction(np.array([], dtype=bool))
    with pytest.raises(ValueError, match=r"y must have shape units × 2, found \(3,\)"):
        slope(np.array([1.0, 2.0]), np.ones(3))
    with pytest.raises(ValueError, match="y must have positive means over units"):
        slope(np.array([1.0, 2.0]), -np.ones((3, 2)))
