"""The statistics of claims about theorems: bounds, exponents, and printed tables of them."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars

from trimol._failures import BadValue
from trimol.paper._verdicts import Finding, Verdict, above, all_of, below, exactly, statistic
from trimol.runs.statistics import Interval, mean, quantile

VACUOUS = 1000.0  # a bound further off than this says nothing
_FALLS = Literal["falls", "rises"]


@statistic
def bounded(
    table: polars.DataFrame, *, measured: str = "measured", bound: str = "bound"
) -> Finding:
    """Whether no measured value exceeds its bound; vacuous where none is within 1/1000 of it."""
    known = table.drop_nulls(bound)
    ratio = (known[measured] / known[bound]).to_numpy()
    least, most = float(ratio.min()), float(ratio.max())
    words = "largest measured / bound (interval: smallest to largest)"
    return Finding(Interval(most, least, most, len(ratio)), _of_bound(most <= 1, most), words)


@statistic
def bounded_above(table: polars.DataFrame, *, bound: str) -> Finding:
    """Whether no measured value, a mean of runs with its error, is over its upper bound."""
    most = max(_ratios(table, bound), key=lambda each: each.high)
    verdict = below(most, 1)
    if verdict == "holds":
        verdict = _of_bound(True, most.estimate)
    return Finding(most, verdict, "largest measured / upper bound")


@statistic
def bounded_below(table: polars.DataFrame, *, bound: str) -> Finding:
    """Whether no measured value, a mean of runs with its error, is under its lower bound."""
    least = min(_ratios(table, bound), key=lambda each: each.low)
    verdict = above(least, 1)
    if verdict == "holds":
        verdict = _of_bound(True, 1 / least.estimate)
    return Finding(least, verdict, "least measured / lower bound")


@statistic
def exponent(
    table: polars.DataFrame,
    *,
    slack: float = 0.1,
    side: Literal["at least", "at most"] = "at least",
) -> Finding:
    """Whether a measured exponent (one row, with its interval) is at least the one promised.

    Or at most, for a lower bound. Up to a fraction ``slack`` of it: a rate is about T → ∞, and T is
    finite. For that reason a slope that is not there yet does not refute a rate, which allows any
    constant: it is *inconclusive*. What can refute a theorem is its bound with its constants.
    """
    line = _one(table, "exponent")
    fitted = _interval(line)
    room = slack * abs(line["promised"])
    reached = (
        above(fitted, line["promised"] - room)
        if side == "at least"
        else below(fitted, line["promised"] + room)
    )
    less = "less" if side == "at least" else "more"
    promised = f"promised: {side} {line['promised']:g}, and {slack:.0%} {less} is let pass"
    words = f"exponent of {line['error']} in {line['in']} ({promised})"
    return Finding(fitted, "holds" if reached == "holds" else "inconclusive", words)


@statistic
def slower(table: polars.DataFrame, *, first: str, second: str) -> Finding:
    """Whether an error falls more slowly along the first course than along the second.

    Shows the first's exponent; the intervals of the two must not meet.
    """
    one, two = (
        _interval(_one(table.filter(polars.col("course") == name), "slower"))
        for name in (first, second)
    )
    verdict: Verdict = "holds" if one.high < two.low else "inconclusive"
    if one.low > two.high:
        verdict = "does not hold"
    error = table["error"][0]
    words = f"exponent of {error} along the course for {first} (for {second}: {two})"
    return Finding(one, verdict, words)


@statistic
def arrows(table: polars.DataFrame, **expected: _FALLS) -> Finding:
    """Whether each error falls or rises with n as an arrow says, in every row (with its interval).

    Shows the exponent e of n^-e that agrees least: the arrow down asks for e > 0, up for e < 0.
    """
    margins: list[tuple[float, str, Interval, Verdict]] = []
    for error, arrow in expected.items():
        for line in table.filter(polars.col("error") == error).to_dicts():
            power = _interval(line)
            falls = arrow == "falls"
            verdict = above(power, 0) if falls else below(power, 0)
            margins.append((power.low if falls else -power.high, error, power, verdict))
    if len({error for _, error, _, _ in margins}) < len(expected):
        raise BadValue(f"arrows needs rows for {', '.join(expected)}, found not all of them")
    _, error, power, _ = min(margins, key=lambda each: each[0])
    agree = {
        name: f"{sum(v == 'holds' for _, own, _, v in margins if own == name)} of "
        f"{sum(own == name for _, own, _, _ in margins)}"
        for name in expected
    }
    told = ", ".join(f"{name} {expected[name]} in {count}" for name, count in agree.items())
    words = f"exponent e of {error} ~ n^-e, which agrees least ({told})"
    return Finding(power, all_of(*(verdict for *_, verdict in margins)), words)


@statistic
def cells(table: polars.DataFrame) -> Finding:
    """Whether every cell of a printed table is what follows from the theorems: all, or it fails.

    Shows the fraction that agrees, and tells those that do not.
    """
    apart = table.filter(polars.col("ours") != polars.col("paper")).to_dicts()
    share = exactly(1 - len(apart) / table.height, table.height)
    told = "; ".join(
        f"{each['row']}, {each['column']}: {each['ours']} for {each['paper']}" for each in apart
    )
    words = f"fraction of cells that are as printed ({told or 'all'})"
    return Finding(share, "does not hold" if apart else "holds", words)


@statistic
def constant(table: polars.DataFrame, *, x: str, by: str, unit: str, tolerance: float) -> Finding:
    """Whether, for one group at least, a number neither vanishes nor grows: Θ(1).

    The group is the one with the largest number at the largest x. Shows its change from the middle
    x to the largest relative to it, which must be 0 up to a tolerance.
    """
    at = sorted(table[x].unique().to_list())
    last = table.filter(polars.col(x) == at[-1])
    levels = last.group_by(by).agg(polars.col("measured").mean()).sort("measured")
    name, level = levels.row(-1)
    own = table.filter(polars.col(by) == name)
    ends = [
        dict(own.filter(polars.col(x) == each).select(unit, "measured").iter_rows())
        for each in (at[len(at) // 2], at[-1])
    ]
    drift = mean(np.array([(ends[1][key] - ends[0][key]) / level for key in sorted(ends[1])]))
    far = drift.low > tolerance or drift.high < -tolerance
    near = max(abs(drift.low), abs(drift.high)) <= tolerance
    verdict: Verdict = "does not hold" if far else "holds" if near else "inconclusive"
    words = f"change from {x} = {at[len(at) // 2]:g} to {at[-1]:g}, relative to {level:.3g} "
    return Finding(drift, verdict, words + f"({by} {name}; none: up to {tolerance:g})")


@statistic
def somewhere_above(table: polars.DataFrame, *, by: str, within: str, bound: str) -> Finding:
    """Whether in every group there is a member whose mean is at least a lower bound.

    Shows the group that fares worst, with its best member.
    """
    best: dict[str, tuple[Interval, str]] = {}
    for (group,), rows in table.group_by([by], maintain_order=True):
        members = {
            str(name): mean((own["measured"] / own[bound]).to_numpy())
            for (name,), own in rows.group_by([within], maintain_order=True)
        }
        highest = max(members, key=lambda name: members[name].estimate)
        best[str(group)] = (members[highest], highest)
    worst = min(best, key=lambda group: best[group][0].low)
    ratio, member = best[worst]
    verdict = all_of(*(above(each, 1) for each, _ in best.values()))
    words = f"largest measured / lower bound over {within} ({member}), on the problem {worst}"
    return Finding(ratio, verdict, words)


@statistic
def may_lose(table: polars.DataFrame, *, promised: float) -> Finding:
    """Whether a ratio of two errors grows with n like the theory allows (one row, its exponent).

    It would be 0 if nothing were lost, and ``promised`` if all that the bounds allow were: nearer
    to the latter by its whole interval, it holds. What *may* happen is not refuted by one problem
    where it does not: *inconclusive* then, and the words say so.
    """
    line = _one(table, "may_lose")
    power = Interval(-line["exponent"], -line["high"], -line["low"], line["n"])
    words = f"exponent of {line['error']} in {line['in']} (nothing lost: 0, all: {promised:g})"
    seen = above(power, promised / 2)
    if seen == "does not hold":
        words = f"{words}: not on this problem"
    return Finding(power, "holds" if seen == "holds" else "inconclusive", words)


def _of_bound(kept: bool, ratio: float) -> Verdict:
    """The verdict on a bound: measured / bound is ``ratio`` where it is nearest."""
    if not kept:
        return "does not hold"
    return "holds, vacuous" if ratio < 1 / VACUOUS else "holds"


def _ratios(table: polars.DataFrame, bound: str) -> list[Interval]:
    """Each row's measured mean over its bound, with the interval of its error."""
    ratios = []
    for line in table.drop_nulls(bound).to_dicts():
        centre = line["measured"] / line[bound]
        half = quantile(line["runs"] - 1) * line["error"] / line[bound]
        ratios.append(Interval(centre, centre - half, centre + half, line["runs"]))
    return ratios


def _interval(line: Mapping[str, Any]) -> Interval:
    """A fitted exponent, as a row of the slopes has it."""
    return Interval(line["exponent"], line["low"], line["high"], line["n"])


def _one(table: polars.DataFrame, name: str) -> dict[str, Any]:
    """The one row that there must be."""
    if table.height != 1:
        raise BadValue(f"{name} needs one row, found {table.height}")
    return table.to_dicts()[0]
