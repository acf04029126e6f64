"""The rule that says whether a method is better: against slow references, and on pure noise."""

import math
import random
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimol.runs._sentences import change, compared, percent
from trimol.runs.statistics import Paired
from trimol.runs.verdict import MARGIN, Gain, Pair, judge

WAYS = {"accuracy": "higher", "loss": "lower"}


def noisy(level: float, spread: float, n: int, seed: int) -> list[float]:
    drawn = random.Random(seed)
    return [level + spread * drawn.gauss(0, 1) for _ in range(n)]


def pair(method, metric, shift, *, level=1.0, noise=0.001, n=6, seed=0):
    base = noisy(level, 0.01, n, seed)
    own = [b + shift + e for b, e in zip(base, noisy(0, noise, n, seed + 1), strict=True)]
    return Pair(method, metric, Paired(base, own))


def test_better_on_one_and_worse_on_none_wins():
    found = judge(
        [pair("a", "accuracy", 0.05), pair("a", "loss", 0.0, seed=5)], WAYS, baseline="static"
    )
    assert (found.use, found.kind("a")) == ("a", "wins")


def test_the_way_decides():
    found = judge([pair("a", "loss", 0.05)], WAYS, baseline="static")
    assert (found.use, found.kind("a")) == ("static", "loses")
    found = judge([pair("a", "loss", -0.05)], WAYS, baseline="static")
    assert (found.use, found.kind("a")) == ("a", "wins")


def test_a_clear_gain_within_the_margin_changes_nothing():
    found = judge([pair("a", "accuracy", 0.8 * MARGIN, noise=1e-5)], WAYS, baseline="static")
    (gain,) = found.gains
    assert gain.clear
    assert not gain.better
    assert (found.use, found.kind("a")) == ("static", "alike")


def test_a_gain_that_noise_may_have_lifted_above_the_margin_changes_nothing():
    """The interval of the gain, not its mean, must be above the margin."""
    unsure = judge([pair("a", "accuracy", 1.5 * MARGIN, noise=0.0035)], WAYS, baseline="static")
    (gain,) = unsure.gains
    assert gain.clear
    assert gain.share > MARGIN > gain.share - gain.ci / gain.base
    assert (gain.better, unsure.use) == (False, "static")
    sure = judge([pair("a", "accuracy", 1.5 * MARGIN, noise=1e-4)], WAYS, baseline="static")
    assert sure.use == "a"


def test_harm_counts_without_correction():
    """p = 0.03 is no finding among many, and yet reason enough not to say: nothing lost."""
    apart = [-0.010, -0.001, -0.008, -0.002, -0.006, -0.0013]
    base = noisy(1.0, 0.01, 6, 3)
    harmed = Paired(base, [b + a for b, a in zip(base, apart, strict=True)])
    assert 0.01 < harmed.p < 0.05
    pairs = [pair("a", "loss", -0.05), Pair("a", "accuracy", harmed)]
    others = [pair(f"m{i}", "loss", 0.0, seed=i) for i in range(20)]
    found = judge([*pairs, *others], WAYS, baseline="static")
    assert found.kind("a") == "trades"
    assert found.use == "static"
    (told, *_) = compared(found, judge([], {}, baseline="static"))
    assert "a is better than static beyond noise (loss −0.04" in told
    assert "but may be worse elsewhere (accuracy −0.00" in told


def test_worse_is_said_of_what_differs_beyond_noise_only():
    """One judgement: what is said to be worse is a clear difference, in view of all comparisons."""
    pairs = [pair(f"m{i}", "loss", 0.002, noise=0.003, seed=i) for i in range(20)]
    found = judge(pairs, WAYS, baseline="static")
    assert any(gain.may_be_worse and not gain.clear for gain in found.gains)
    assert all(gain.clear for gain in found.gains if gain.worse)
    assert {found.kind(method) for method in found.methods} <= {"alike", "loses"}


def test_a_trade_is_no_win():
    pairs = [pair("a", "accuracy", 0.05), pair("a", "loss", 0.05, seed=7)]
    found = judge(pairs, WAYS, baseline="static")
    assert (found.use, found.kind("a")) == ("static", "trades")


def test_the_largest_gain_is_used():
    pairs = [pair("a", "accuracy", 0.05), pair("b", "accuracy", 0.09, seed=4)]
    assert judge(pairs, WAYS, baseline="static").use == "b"
    assert judge(pairs[::-1], WAYS, baseline="static").use == "b"


def test_one_seed_and_no_pairs_decide_nothing():
    found = judge([pair("a", "accuracy", 0.5, n=1)], WAYS, baseline="static")
    assert (found.use, found.kind("a"), found.limit) == ("static", "unknown", None)
    assert judge([], WAYS, baseline="static").use == "static"
    assert compared(found, found) == [
        "one seed cannot tell a difference from luck: 5 seeds at least to name one (of 1 compared)."
    ]


def test_four_seeds_name_nothing():
    few = judge([pair("a", "accuracy", 0.5, n=4)], WAYS, baseline="static")
    assert (few.use, few.kind("a")) == ("static", "unknown")
    assert judge([pair("a", "accuracy", 0.5, n=5)], WAYS, baseline="static").use == "a"


def test_numbers_that_nobody_judges_by_count_in_the_correction_only():
    """Holm's p by hand: the smallest of k times k."""
    seen = pair("a", "accuracy", 0.01, noise=0.006)
    other = [pair("a", f"x{i}", 0.0, seed=i + 20, noise=0.01) for i in range(9)]
    (alone,) = judge([seen], WAYS, baseline="static").gains
    (among,) = judge([seen, *other], WAYS, baseline="static").gains
    assert among.p == pytest.approx(min(1, 10 * alone.p))


@pytest.mark.parametrize("count", [1, 5])
def test_the_limit_is_the_upper_end_for_all_comparisons(count):
    pairs = [pair(f"m{i}", "accuracy", 0.001 * i, seed=3 * i, noise=0.004) for i in range(count)]
    ends = []
    for one in pairs:
        apart, base = one.both.apart, fmean(one.both.base)
        t = stats.t.ppf(1 - 0.05 / count / 2, len(apart) - 1)
        ends.append((fmean(apart) + t * stdev(apart) / math.sqrt(len(apart))) / base)
    limit = judge(pairs, WAYS, baseline="static").limit
    assert limit.most == pytest.approx(max(ends), rel=1e-6)


@pytest.mark.slow
def test_on_noise_a_method_is_named_in_one_study_in_twenty_at_most():
    """Four methods, three metrics, no difference but noise; large noise, so that the margin holds
    nothing back.
    """
    drawn = np.random.default_rng(0)
    ways = {"a": "higher", "b": "lower", "c": "lower"}
    named, studies = 0, 800
    for _ in range(studies):
        base = {metric: 1 + 0.3 * drawn.standard_normal(5) for metric in ways}
        pairs = [
            Pair(f"m{i}", metric, Paired(list(base[metric]), list(own)))
            for i in range(4)
            for metric in ways
            for own in [1 + 0.3 * drawn.standard_normal(5)]
        ]
        named += judge(pairs, ways, baseline="static").use != "static"
    assert named / studies <= 0.05


values = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=6),
    st.sampled_from(["higher", "lower"]),
)
def test_nasty_numbers_have_a_verdict_and_words(rows, way):
    both = Paired([a for a, _ in rows], [b for _, b in rows])
    ways = {"x": way}
    found = judge([Pair("m", "x", both)], ways, baseline="static")
    (gain,) = found.gains
    assert not (gain.better and gain.worse)
    assert found.use == ("m" if gain.better else "static")
    assert change(gain).startswith("x ")
    (sentence, *_) = compared(found, found)
    assert sentence.endswith(".")
    turned = judge(
        [Pair("m", "x", both)],
        {"x": {"higher": "lower", "lower": "higher"}[way]},
        baseline="static",
    ).gains[0]
    assert turned.mean == -gain.mean
    assert (turned.p, turned.ci) == (gain.p, gain.ci)


@given(st.floats(1e-9, 1e3))
def test_a_limit_is_never_rounded_down(share):
    shown = float(percent(share).removesuffix(" %"))
    assert 100 * share * (1 - 1e-9) <= shown <= 100 * share * 1.11


def test_a_baseline_of_zero_has_no_shares():
    gain = Gain("m", "x", "higher", 0.0, 0.5, 0.1, 0.2, 5, 0.001)
    assert gain.share == math.inf
    assert gain.better
