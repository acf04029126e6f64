"""Every statistic on made-up data whose verdict is known; all three verdicts can be reached."""

from typing import get_args

import numpy as np
import polars
import pytest

from trimol.paper import _verdicts as verdicts
from trimol.paper._verdicts import all_of, choose, get
from trimol.runs.statistics import Interval


def curves(*means, spread=0.01, units=20, seed=0):
    """Units × x: a curve with noise."""
    random = np.random.default_rng(seed)
    rows = [
        {"x": float(i + 1), "unit": unit, "y": mean + spread * random.standard_normal()}
        for unit in range(units)
        for i, mean in enumerate(means)
    ]
    return polars.DataFrame(rows)


def verdict(name, table, **arguments):
    return get(name)(table, **arguments).verdict


@pytest.mark.parametrize(
    ("means", "spread", "expected"),
    [
        ((3, 2, 1), 0.01, "holds"),
        ((1, 2, 3), 0.01, "does not hold"),
        ((1, 1, 1), 5.0, "inconclusive"),
    ],
)
def test_change(means, spread, expected):
    arguments = {"x": "x", "y": "y", "unit": "unit"}
    table = curves(*means, spread=spread)
    assert verdict("change", table, direction="falls", **arguments) == expected
    other = {"holds": "does not hold", "does not hold": "holds"}.get(expected, expected)
    assert verdict("change", table, direction="rises", **arguments) == other


def test_change_is_the_paired_difference_of_the_ends():
    found = get("change")(curves(1, 9, 3), x="x", y="y", unit="unit", direction="rises")
    assert found.interval.estimate == pytest.approx(2, abs=0.02)
    assert found.interval.n == 20
    assert found.words == "change of y from x = 1 to 3"


@pytest.mark.parametrize(
    ("means", "spread", "expected"),
    [
        ((1, 5, 1.01), 0.001, "holds"),
        ((1, 1, 3), 0.01, "does not hold"),
        ((1, 1, 1), 3.0, "inconclusive"),
    ],
)
def test_flat(means, spread, expected):
    table = curves(*means, spread=spread)
    assert verdict("flat", table, x="x", y="y", unit="unit", tolerance=0.2) == expected


@pytest.mark.parametrize(
    ("means", "spread", "expected"),
    [
        ((3, 1, 2), 0.01, "holds"),
        ((1, 2, 3), 0.01, "does not hold"),
        ((3, 2, 1), 0.01, "does not hold"),
        ((1.2, 1, 1.2), 3.0, "inconclusive"),
    ],
)
def test_falls_then_rises(means, spread, expected):
    table = curves(*means, spread=spread, seed=4)
    assert verdict("falls_then_rises", table, x="x", y="y", unit="unit") == expected


@pytest.mark.parametrize(
    ("small", "spread", "expected"),
    [
        ((0.01, 1, 2), 0.001, "holds"),
        ((2, 1, 1), 0.001, "does not hold"),
        ((0.2, 1, 1), 0.5, "inconclusive"),
    ],
)
def test_small_while_large(small, spread, expected):
    table = curves(*small, spread=spread).with_columns(
        curves(5, 4, 3, spread=0.001)["y"].alias("other")
    )
    arguments = {"x": "x", "small": "y", "large": "other", "unit": "unit", "fraction": 0.2}
    assert verdict("small_while_large", table, **arguments) == expected


def test_small_while_large_needs_the_other_to_be_large():
    table = curves(0.01, 1, 2, spread=0.001).with_columns(
        curves(1, 4, 9, spread=0.001)["y"].alias("other")
    )
    arguments = {"x": "x", "small": "y", "large": "other", "unit": "unit", "fraction": 0.2}
    assert verdict("small_while_large", table, **arguments) == "does not hold"


@pytest.mark.parametrize(
    ("happened", "expected"), [(40, "holds"), (5, "does not hold"), (20, "inconclusive")]
)
def test_share_at_least(happened, expected):
    table = polars.DataFrame({"arrival": [7] * happened + [None] * (40 - happened)})
    assert verdict("share", table, event="arrival", at_least=0.5) == expected
    other = {"holds": "does not hold", "does not hold": "holds"}.get(expected, expected)
    assert verdict("share", table, event="arrival", at_most=0.5) == other


def test_share_of_a_comparison():
    table = polars.DataFrame({"left": [10, 20, None]})
    found = get("share")(table, event="left<15", at_most=0.0)
    assert found.interval.estimate == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="share needs one of at_least and at_most"):
        get("share")(table, event="left")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([0.05] * 40, "holds"),
        ([3.0] * 40, "does not hold"),
        ([0.5] * 40, "depends on the threshold"),
    ],
)
def test_share_at_several_thresholds(ends, expected):
    table = polars.DataFrame({"away": ends})
    found = get("share")(table, event="away", thresholds=[0.1, 0.3, 1.0], at_least=0.8)
    assert found.verdict == expected
    assert found.words.startswith("fraction of runs with away < 0.3 (")
    assert found.words.count(" for ") == 3


@pytest.mark.parametrize(
    ("behind", "noise", "expected"),
    [(0.0, 0.01, "holds"), (1.0, 0.01, "does not hold"), (0.3, 2.0, "inconclusive")],
)
def test_as_near_as_those_who_arrived(behind, noise, expected):
    """Only the second start is behind: one is enough to fail. No number of ours decides."""
    random = np.random.default_rng(2)
    rows = []
    for start in (0, 1):
        for seed in range(10):
            there = 0.1 + 0.05 * random.random()
            moved = noise * random.standard_normal() * start
            rows.append({"who": "a", "start": start, "seed": seed,
                         "away": there + behind * start + moved})  # fmt: skip
            rows.append({"who": "b", "start": start, "seed": seed, "away": there})
    pair = {"metric": "away", "unit": "seed", "first": {"who": "a"}, "second": {"who": "b"}}
    found = get("as_near")(polars.DataFrame(rows), by="start", within=[0.2, 5.0], **pair)
    assert found.verdict == expected
    assert "(worst: start 1)" in found.words or expected == "holds"
    assert "of 20 runs of the former" in found.words
    if expected == "does not hold":
        assert found.words.endswith("10 within 0.2, 20 within 5")


@pytest.mark.parametrize(
    ("lower", "expected"), [(18, "holds"), (2, "does not hold"), (10, "inconclusive")]
)
def test_less_in_most_is_not_moved_by_outliers(lower, expected):
    ones = [0.5] * lower + [1e6] * (20 - lower)
    table = polars.DataFrame(
        {"who": ["a"] * 20 + ["b"] * 20, "start": [0, 2] * 20, "seed": [*range(20)] * 2,
         "m": [*ones, *[1.0] * 20]}
    )  # fmt: skip
    pair = {"metric": "m", "unit": ["start", "seed"], "first": {"who": "a"}, "second": {"who": "b"}}
    found = get("less_in_most")(table, **pair)
    assert found.verdict == expected
    assert found.interval.estimate == lower / 20
    with pytest.raises(ValueError, match="less_in_most needs units that both have, found none"):
        get("less_in_most")(table, **{**pair, "unit": ["who", "seed"]})


@pytest.mark.parametrize(
    ("shift", "expected"),
    [(0.01, "holds"), (1.0, "does not hold"), (0.14, "depends on the threshold")],
)
def test_comparable_is_relative_and_tried_at_several_fractions(shift, expected):
    random = np.random.default_rng(1)
    base = 10 + 0.01 * random.standard_normal(10)
    table = polars.DataFrame(
        {"who": ["a"] * 10 + ["b"] * 10, "seed": [*range(10)] * 2,
         "m": [*(base * (1 + shift)), *base]}
    )  # fmt: skip
    pair = {"metric": "m", "unit": "seed", "first": {"who": "a"}, "second": {"who": "b"}}
    found = get("comparable")(table, thresholds=[0.05, 0.1, 0.2], **pair)
    assert found.verdict == expected
    assert found.interval.estimate == pytest.approx(shift, abs=1e-3)


@pytest.mark.parametrize(
    ("shift", "spread", "expected"),
    [(-1.0, 0.1, "holds"), (1.0, 0.1, "does not hold"), (0.0, 1.0, "inconclusive")],
)
def test_less_is_paired(shift, spread, expected):
    random = np.random.default_rng(1)
    base = 100 * random.standard_normal(30)  # what differs between units cancels
    tables = [
        polars.DataFrame({"who": who, "seed": range(30), "m": values})
        for who, values in (("b", base), ("a", base + shift + spread * random.standard_normal(30)))
    ]
    arguments = {"metric": "m", "unit": "seed", "first": {"who": "a"}, "second": {"who": "b"}}
    assert verdict("less", polars.concat(tables), **arguments) == expected


def test_equal_differences_of_an_accuracy_decide_nothing():
    """Three seeds, one image of twenty each: no spread is not no noise."""
    hits = {"a": (15, 16, 17), "b": (16, 17, 18)}
    table = polars.DataFrame(
        [
            {"method": method, "seed": seed, "accuracy": k / 20}
            for method, own in hits.items()
            for seed, k in enumerate(own)
        ]
    )
    pair = {"first": {"method": "a"}, "second": {"method": "b"}}
    found = get("less")(table, metric="accuracy", unit="seed", **pair)
    assert found.interval.estimate == pytest.approx(-0.05)
    assert found.interval.half == pytest.approx(4.302653 * 0.05 / 3**0.5)
    assert found.verdict == "inconclusive"


def test_same():
    table = polars.DataFrame(
        {"who": ["a", "b"] * 2, "seed": [0, 0, 1, 1], "m": [1.0, 1.0, 2.0, 2.5]}
    )
    arguments = {"metric": "m", "unit": "seed", "first": {"who": "a"}, "second": {"who": "b"}}
    assert verdict("same", table, tolerance=0.6, **arguments) == "holds"
    assert verdict("same", table, tolerance=0.4, **arguments) == "does not hold"


def test_every_verdict_has_its_meaning_in_one_place():
    assert set(verdicts.MEANING) == set(get_args(verdicts.Verdict))
    assert all(verdicts.MEANING.values())


def test_all_of():
    assert all_of("holds", "holds") == "holds"
    assert all_of("holds", "holds, vacuous") == "holds, vacuous"
    assert all_of("depends on the threshold", "holds") == "depends on the threshold"
    assert all_of("holds", "inconclusive") == "inconclusive"
    assert all_of("inconclusive", "does not hold") == "does not hold"


def test_thresholds_leave_the_borders_open():
    assert verdicts.above(Interval(1, 0.0, 2, 3), 0.0) == "inconclusive"
    assert verdicts.below(Interval(-1, -2, 0.0, 3), 0.0) == "inconclusive"


def test_choose():
    table = polars.DataFrame({"gamma": [None, 0.0, 1e-4], "start": [0, 1, 2]})
    assert choose(table, {"gamma": "null"})["start"].to_list() == [0]
    assert choose(table, {"gamma": [0.0, 1e-4], "start": [1]}).height == 1
    with pytest.raises(ValueError, match="rows must name columns of"):
        choose(table, {"alpha": 1})
    with pytest.raises(ValueError, match="rows must choose something"):
        choose(table, {"start": 7})


def test_an_unknown_statistic_is_one_clear_line():
    with pytest.raises(
        ValueError, match=r"statistic must be one of change, flat, .* found 'magic'"
    ):
        get("magic")


def test_less_is_open_where_it_did_not_happen_in_every_run():
    table = polars.DataFrame(
        {
            "method": ["a", "a", "b", "b"],
            "seed": [0, 1, 0, 1],
            "arrival": [10, 20, None, 50],
        }
    )
    found = get("less")(
        table, metric="arrival", unit="seed", first={"method": "a"}, second={"method": "b"}
    )
    assert found.verdict == "inconclusive"
    assert "did not happen in every run" in found.words


# --- several groups, several methods --------------------------------------------------------------


def grouped(**shifts):
    """Three metrics of six seeds for each method: a shift for each, and a little noise."""
    rows = [
        {"method": method, "metric": metric, "seed": seed, "y": shift + 0.01 * (seed * 5 % 6)}
        for method, own in {"static": (0.0, 0.0, 0.0), **shifts}.items()
        for metric, shift in zip("abc", own, strict=True)
        for seed in range(6)
    ]
    # The noise of each method is its own and has mean 0: paired differences have a spread.
    own = {"static": 1.0, "modo": -1.0, "mgda": 2.0}
    sign = polars.col("method").replace_strict(own) * (1.0 - 2 * (polars.col("seed") % 2))
    return polars.DataFrame(rows).with_columns(polars.col("y") + 0.001 * sign)


PAIR = {
    "metric": "y",
    "unit": "seed",
    "first": {"method": "modo"},
    "second": {"method": "static"},
    "by": "metric",
}


@pytest.mark.parametrize(
    ("shifts", "expected", "worst"),
    [
        ((-1.0, 0.0, 0.4), "holds", "c"),
        ((-1.0, 0.6, 0.0), "does not hold", "b"),
        ((-1.0, -1.0, 0.5), "inconclusive", "c"),
    ],
)
def test_not_worse_anywhere(shifts, expected, worst):
    found = get("not_worse_anywhere")(grouped(modo=shifts), **PAIR, margin=0.5, called="drop")
    assert found.verdict == expected
    assert f"({worst})" in found.words
    assert "largest drop" in found.words


@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ((0.2, -0.1, 0.3), "holds"),
        ((0.2, 0.1, 0.3), "does not hold"),
        ((0.2, 0.0, 0.3), "inconclusive"),
    ],
)
def test_less_somewhere(shifts, expected):
    found = get("less_somewhere")(grouped(modo=shifts), **PAIR)
    assert found.verdict == expected
    assert "(b)" in found.words
    assert "3 looked at" in found.words


def test_looking_at_more_groups_widens_the_interval():
    table = grouped(modo=(0.0, -0.1, 0.0))
    all_of_them = get("less_somewhere")(table, **PAIR).interval
    alone = get("less_somewhere")(choose(table, {"metric": "b"}), **PAIR).interval
    assert all_of_them.estimate == alone.estimate
    assert all_of_them.high - all_of_them.low > 1.2 * (alone.high - alone.low)


RIVALS = {"metric": "y", "unit": "seed", "first": "modo", "among": "method"}


@pytest.mark.parametrize(
    ("modo", "mgda", "expected"),
    [(0.2, 0.1, "holds"), (0.1, 0.2, "does not hold"), (0.1, 0.1, "inconclusive")],
)
def test_greatest(modo, mgda, expected):
    table = choose(grouped(modo=(modo,) * 3, mgda=(mgda,) * 3), {"metric": "a"})
    found = get("greatest")(table, **RIVALS)
    assert found.verdict == expected
    assert "modo minus mgda, the next highest" in found.words


@pytest.mark.parametrize(
    ("modo", "mgda", "expected"),
    [(-0.2, -0.1, "holds"), (-0.1, -0.2, "does not hold"), (-0.1, -0.1, "inconclusive")],
)
def test_least(modo, mgda, expected):
    table = choose(grouped(modo=(modo,) * 3, mgda=(mgda,) * 3), {"metric": "a"})
    found = get("least")(table, **RIVALS, called="ΔA_id")
    assert found.verdict == expected
    assert found.words == "ΔA_id: modo minus mgda, its strongest rival"
    with pytest.raises(ValueError, match="method must have others than 'modo', found none"):
        get("least")(choose(table, {"method": "modo"}), **RIVALS)


@pytest.mark.parametrize(
    ("modo", "expected", "ends"),
    [
        ((-0.2, -0.2, 0.2), "holds", (2, 2)),
        ((-0.2, 0.2, 0.2), "does not hold", (1, 1)),
        ((-0.2, 0.0, 0.2), "inconclusive", (1, 2)),
    ],
)
def test_least_on_most(modo, expected, ends):
    table = grouped(modo=modo, mgda=(0.1, 0.1, 0.1))
    found = get("least_on_most")(table, **RIVALS, by="metric")
    assert found.verdict == expected
    assert (found.interval.low, found.interval.high) == ends
    assert found.words.startswith("of 3, how many where modo has the lowest y")


def test_half_of_the_groups_is_not_most_of_them():
    table = choose(grouped(modo=(-0.2, 0.2, 0.0)), {"metric": ["a", "b"]})
    assert verdict("least_on_most", table, **RIVALS, by="metric") == "does not hold"


def test_average():
    table = polars.DataFrame({"seed": [0, 0, 1, 1, 2, 2], "w": [0.4, 0.8, 0.5, 0.7, 0.6, 0.61]})
    found = get("average")(table, metric="w", unit="seed", at_least=0.5)
    assert found.verdict == "holds"  # of each seed's mean: 0.6, 0.6, 0.605
    assert found.interval.estimate == pytest.approx(0.6016667, abs=1e-6)
    assert verdict("average", table, metric="w", unit="seed", at_least=0.7) == "does not hold"


def test_any_of():
    assert verdicts.any_of("does not hold", "holds") == "holds"
    assert verdicts.any_of("does not hold", "inconclusive") == "inconclusive"
    assert verdicts.any_of("does not hold") == "does not hold"
