"""The verdicts of the ledger of claims, and the statistics of runs that lead to them.

Every statistic takes a table (rows already chosen) and named arguments, and returns a `Finding`.
Verdicts come from intervals alone; `MEANING` says what each of them means. The statistics of
theorems (bounds, exponents, printed tables) are in `trimol.paper._theory_verdicts`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars

from trimol._failures import BadValue
from trimol.runs.statistics import LEVEL, Interval, Paired, fraction, interval, mean

Verdict = Literal[
    "does not hold",
    "depends on the threshold",
    "inconclusive",
    "holds, vacuous",
    "holds",
    "not tested",
]
# What a verdict means; in this order the ledger's page tells them, surprises first.
MEANING: Mapping[Verdict, str] = {
    "does not hold": "the whole 95 % interval contradicts the claim",
    "depends on the threshold": "a word of the claim ('near', 'comparable') is a number of ours, "
    "and the verdict is not the same for all numbers tried",
    "inconclusive": "the interval has both, or what was measured cannot decide it",
    "holds, vacuous": "a bound that is true, but more than 1000 times what was measured: so would "
    "be nearly any other",
    "holds": "the whole interval agrees with the claim",
    "not tested": "its study was not run",
}


@dataclass(frozen=True)
class Finding:
    """What a statistic found."""

    interval: Interval  # the number that decides, with its 95 % interval
    verdict: Verdict  # what follows for the claim
    words: str  # what the number is


Statistic = Callable[..., Finding]
Rows = dict[str, Any]  # which rows: values by column, as `choose` takes them
_STATISTICS: dict[str, Statistic] = {}


def statistic(function: Statistic) -> Statistic:
    """Make a function a statistic, by its name."""
    _STATISTICS[function.__name__] = function
    return function


def get(name: str) -> Statistic:
    """A statistic by name.

    >>> get("change").__name__
    'change'
    """
    if name not in _STATISTICS:
        raise BadValue(f"statistic must be one of {', '.join(_STATISTICS)}, found {name!r}")
    return _STATISTICS[name]


def above(interval: Interval, threshold: float) -> Verdict:
    """Whether a number is above a threshold.

    >>> above(Interval(1.0, 0.5, 1.5, 10), 0.0), above(Interval(1.0, -0.5, 2.5, 10), 0.0)
    ('holds', 'inconclusive')
    """
    if interval.low > threshold:
        return "holds"
    return "does not hold" if interval.high < threshold else "inconclusive"


def below(interval: Interval, threshold: float) -> Verdict:
    """Whether a number is below a threshold."""
    if interval.high < threshold:
        return "holds"
    return "does not hold" if interval.low > threshold else "inconclusive"


def within(interval: Interval, tolerance: float) -> Verdict:
    """Whether a number is zero, up to a tolerance (an equivalence test)."""
    if max(abs(interval.low), abs(interval.high)) <= tolerance:
        return "holds"
    far = interval.low > tolerance or interval.high < -tolerance
    return "does not hold" if far else "inconclusive"


def all_of(*verdicts: Verdict) -> Verdict:
    """A claim of several parts: one that fails is enough, one that is open keeps it open."""
    for verdict in MEANING:
        if verdict in verdicts:
            return verdict
    return "holds"


def at_all(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict at several thresholds: one word if they agree.

    >>> at_all(["holds", "holds"]), at_all(["holds", "inconclusive"])
    ('holds', 'depends on the threshold')
    """
    return verdicts[0] if len(set(verdicts)) == 1 else "depends on the threshold"


def any_of(*verdicts: Verdict) -> Verdict:
    """A claim that one of several parts is enough for.

    >>> any_of("does not hold", "holds"), any_of("does not hold", "inconclusive")
    ('holds', 'inconclusive')
    """
    for verdict in ("holds", "inconclusive"):
        if verdict in verdicts:
            return verdict
    return "does not hold"


# --- statistics -----------------------------------------------------------------------------------


@statistic
def change(
    table: polars.DataFrame, *, x: str, y: str, unit: str, direction: Literal["rises", "falls"]
) -> Finding:
    """Whether y rises (falls) from the smallest x to the largest, unit by unit."""
    at, values = _wide(table, x, y, unit)
    rise = mean(values[:, -1] - values[:, 0])
    verdict = above(rise, 0) if direction == "rises" else below(rise, 0)
    return Finding(rise, verdict, f"change of {y} from {x} = {at[0]:g} to {at[-1]:g}")


@statistic
def flat(table: polars.DataFrame, *, x: str, y: str, unit: str, tolerance: float) -> Finding:
    """Whether y changes by less than a fraction of its mean from the smallest x to the largest."""
    at, values = _wide(table, x, y, unit)
    rise = mean((values[:, -1] - values[:, 0]) / values.mean())
    words = f"change of {y} from {x} = {at[0]:g} to {at[-1]:g}, relative to its mean"
    return Finding(rise, within(rise, tolerance), f"{words} (little: up to {tolerance:g})")


@statistic
def falls_then_rises(table: polars.DataFrame, *, x: str, y: str, unit: str) -> Finding:
    """Whether y falls to an x inside the range, and rises after it; shows the weaker of the two."""
    at, values = _wide(table, x, y, unit)
    least = int(values.mean(0).argmin())
    fall, rise = mean(values[:, 0] - values[:, least]), mean(values[:, -1] - values[:, least])
    verdict = all_of(above(fall, 0), above(rise, 0))
    if least in (0, len(at) - 1):  # an end is no turning point, whatever the noise
        verdict = "does not hold"
    weaker = min(fall, rise, key=lambda each: each.low)
    return Finding(weaker, verdict, f"rise of {y} away from its least, at {x} = {at[least]:g}")


@statistic
def small_while_large(
    table: polars.DataFrame, *, x: str, small: str, large: str, unit: str, fraction: float
) -> Finding:
    """Whether, at the smallest x, one error is a small fraction of its largest, the other not."""
    at, values = _wide(table, x, small, unit)
    _, others = _wide(table, x, large, unit)
    one = mean(values[:, 0] / values.mean(0).max())
    other = mean(others[:, 0] / others.mean(0).max())
    verdict = all_of(below(one, fraction), above(other, 1 - fraction))
    words = f"{small} at {x} = {at[0]:g}, as a fraction of its largest ({large}: {other})"
    return Finding(one, verdict, words)


@statistic
def share(
    table: polars.DataFrame,
    *,
    event: str,
    at_least: float | None = None,
    at_most: float | None = None,
    thresholds: Sequence[float] = (),
) -> Finding:
    """Whether the fraction of runs for which something happened is at least, or at most, this.

    ``event`` is a column (it happened where it is not null) or ``column<number``. With several
    ``thresholds`` in place of the number all are tried; shows the middle one, and tells the others.
    """
    if (at_least is None) == (at_most is None):
        raise BadValue("share needs one of at_least and at_most")
    if thresholds:
        tried = {each: share(table, event=f"{event}<{each}", at_least=at_least, at_most=at_most)
                 for each in thresholds}  # fmt: skip
        middle = tried[sorted(thresholds)[len(thresholds) // 2]]
        told = ", ".join(f"{of.interval.estimate:.2f} for {each:g}" for each, of in tried.items())
        verdict = at_all([each.verdict for each in tried.values()])
        return Finding(middle.interval, verdict, f"{middle.words} ({told})")
    rate = fraction(_event(table, event))
    verdict = below(rate, at_most or 0.0) if at_least is None else above(rate, at_least)
    said = event.replace("<", " < ")
    return Finding(rate, verdict, f"fraction of runs with {said}")


@statistic
def as_near(
    table: polars.DataFrame,
    *,
    by: str,
    within: Sequence[float],
    **pair: Any,
) -> Finding:
    """Whether the first are as near to something as the second, which are known to have arrived.

    No threshold decides: in every group of rows the paired difference of the distances must not be
    above 0 (*does not hold*), and be less than the spread of the second, who keep moving about, for
    *holds*. Shows the group that is furthest behind; beside it how many of the first came within
    each of some distances, for the reader.
    """
    behind = {name: _difference(*_both(group, **pair)) for name, group in _groups(table, by)}
    arrived = choose(table, pair["second"])[pair["metric"]].to_numpy()
    spread = float(arrived.max())
    verdicts = [
        "does not hold" if each.low > 0 else below(each, spread) for each in behind.values()
    ]
    worst = max(behind, key=lambda name: (behind[name].low > 0, behind[name].estimate))
    distances = choose(table, pair["first"])[pair["metric"]].to_numpy()
    counts = ", ".join(f"{int((distances < each).sum())} within {each:g}" for each in within)
    words = f"{_minus('', **pair)} (worst: {by} {worst}); the latter end at {arrived.mean():.2g}, "
    words += f"at most {spread:.2g}; of {len(distances)} runs of the former {counts}"
    return Finding(behind[worst], all_of(*verdicts), words)


@statistic
def less_in_most(table: polars.DataFrame, *, called: str = "", **pair: Any) -> Finding:
    """Whether a number is less in the first rows than in the second in most units (a sign test).

    For what *may* happen, and for numbers whose mean is that of a few outliers.
    """
    one, two = _both(table, **pair)
    shared = sorted(one.keys() & two.keys())
    if not shared:
        raise BadValue("less_in_most needs units that both have, found none")
    rate = fraction(np.array([one[key] < two[key] for key in shared]))
    sides = " below ".join(_rows(pair[which]) for which in ("first", "second"))
    words = f"fraction of runs with {called or pair['metric']} of {sides}"
    return Finding(rate, above(rate, 0.5), words)


@statistic
def comparable(
    table: polars.DataFrame, *, thresholds: Sequence[float], called: str = "", **pair: Any
) -> Finding:
    """Whether two numbers differ by less than a fraction of the second, at several fractions."""
    one, two = _both(table, **pair)
    size = float(np.mean(list(two.values())))
    apart = _difference({key: each / size for key, each in one.items()},
                        {key: each / size for key, each in two.items()})  # fmt: skip
    verdicts = {each: within(apart, each) for each in thresholds}
    told = ", ".join(f"up to {each:g}: {verdict}" for each, verdict in verdicts.items())
    words = f"{_minus(called, **pair)}, relative to the latter ({told})"
    return Finding(apart, at_all(list(verdicts.values())), words)


@statistic
def less(table: polars.DataFrame, *, called: str = "", **pair: Any) -> Finding:
    """Whether a number is less in the first rows than in the second, unit by unit (paired)."""
    one, two = _both(table, **pair)
    words = _minus(called, **pair)
    shared = [key for key in one.keys() & two.keys() if None not in (one[key], two[key])]
    if len(shared) < len(one.keys() | two.keys()):  # what never happened has no time to compare
        nothing = Interval(np.nan, -np.inf, np.inf, len(shared))
        return Finding(nothing, "inconclusive", f"{words} (did not happen in every run)")
    apart = _difference(one, two)
    return Finding(apart, below(apart, 0), words)


@statistic
def not_worse_anywhere(
    table: polars.DataFrame, *, by: str, margin: float, called: str = "", **pair: Any
) -> Finding:
    """Whether the first is lower, or higher by less than a margin, in every group of rows.

    Each group is looked at with its own 95 % interval: all have to agree, so that looking at many
    makes it harder to pass, not easier. Shows the worst.
    """
    apart = {name: _difference(*_both(group, **pair)) for name, group in _groups(table, by)}
    verdict = all_of(*(below(each, margin) for each in apart.values()))
    worst = max(apart, key=lambda name: apart[name].high)
    words = f"largest {_minus(called, **pair)} ({worst}) (on par: up to {margin:g})"
    return Finding(apart[worst], verdict, words)


@statistic
def less_somewhere(table: polars.DataFrame, *, by: str, called: str = "", **pair: Any) -> Finding:
    """Whether the first is lower in one group of rows at least.

    One is enough, so that looking at many makes it easier to pass: intervals are Bonferroni's,
    wider by as many groups as there are. Shows the best.
    """
    groups = _groups(table, by)
    level = 1 - (1 - LEVEL) / len(groups)
    apart = {name: _difference(*_both(group, **pair), level) for name, group in groups}
    verdict = any_of(*(below(each, 0) for each in apart.values()))
    best = min(apart, key=lambda name: apart[name].high)
    words = f"least {_minus(called, **pair)} ({best})"
    return Finding(apart[best], verdict, f"{words} (interval widened for {len(groups)} looked at)")


@statistic
def least(table: polars.DataFrame, *, called: str = "", **one: Any) -> Finding:
    """Whether one of several (methods) has a lower number than every other, unit by unit.

    Shows the difference from the other that it has the hardest time with.
    """
    apart = _from_others(table, **one)
    verdict = all_of(*(below(each, 0) for each in apart.values()))
    hardest = max(apart, key=lambda name: apart[name].high)
    words = f"{called or one['metric']}: {one['first']} minus {hardest}, its strongest rival"
    return Finding(apart[hardest], verdict, words)


@statistic
def greatest(table: polars.DataFrame, *, called: str = "", **one: Any) -> Finding:
    """Whether one of several (methods) has a higher number than every other, unit by unit."""
    apart = _from_others(table, **one)
    verdict = all_of(*(above(each, 0) for each in apart.values()))
    hardest = min(apart, key=lambda name: apart[name].low)
    words = f"{called or one['metric']}: {one['first']} minus {hardest}, the next highest"
    return Finding(apart[hardest], verdict, words)


@statistic
def least_on_most(table: polars.DataFrame, *, by: str, called: str = "", **one: Any) -> Finding:
    """Whether one of several (methods) has the lowest number in most groups of rows.

    Counts the groups where it is lower than every other by the whole interval. The upper end counts
    also those that are undecided.
    """
    verdicts = [
        all_of(*(below(each, 0) for each in _from_others(group, **one).values()))
        for _, group in _groups(table, by)
    ]
    total = len(verdicts)
    sure, lost = verdicts.count("holds"), verdicts.count("does not hold")
    number = Interval(sure, sure, total - lost, total)
    words = f"of {total}, how many where {one['first']} has the lowest {called or one['metric']}"
    words = f"{words} (upper end: if undecided, too)"
    return Finding(number, above(number, total // 2 + 0.5), words)


@statistic
def average(table: polars.DataFrame, *, metric: str, unit: str, at_least: float) -> Finding:
    """Whether a number is above a threshold, on average over the rows of each unit."""
    level = mean(np.array(list(_units(table, metric, unit).values())))
    return Finding(level, above(level, at_least), f"mean of {metric} (enough: above {at_least:g})")


@statistic
def same(table: polars.DataFrame, *, tolerance: float, **pair: Any) -> Finding:
    """Whether two choices of rows give the same number in every unit, up to a tolerance."""
    one, two = _both(table, **pair)
    apart = [abs(one[key] - two[key]) for key in one.keys() & two.keys()]
    between = " and ".join(_rows(pair[which]) for which in ("first", "second"))
    words = f"largest difference of {pair['metric']} between {between}"
    largest = exactly(max(apart), len(apart))
    return Finding(largest, within(largest, tolerance), words)


# --- choosing rows --------------------------------------------------------------------------------


def choose(table: polars.DataFrame, rows: Rows) -> polars.DataFrame:
    """The rows with these values; a list allows several, ``"null"`` is no value.

    >>> choose(polars.DataFrame({"a": [1, 2, None]}), {"a": [1, 2]}).height
    2
    """
    for column, value in rows.items():
        if column not in table.columns:
            raise BadValue(f"rows must name columns of {table.columns}, found {column!r}")
        values = value if isinstance(value, list) else [value]
        wanted = [None if each == "null" else each for each in values]
        fits = [polars.col(column).eq_missing(polars.lit(each)) for each in wanted]
        table = table.filter(polars.any_horizontal(fits))
    if not table.height:
        raise BadValue(f"rows must choose something, found nothing for {rows}")
    return table


def _wide(table: polars.DataFrame, x: str, y: str, unit: str) -> tuple[Any, Any]:
    """The sorted values of x, and y as units × values."""
    grouped = table.group_by(unit, x).agg(polars.col(y).mean()).sort(x, unit)
    wide = grouped.pivot(on=x, index=unit, values=y, sort_columns=False)
    at = grouped[x].unique(maintain_order=True).to_numpy()
    return at, wide.drop(unit).to_numpy()


def _units(table: polars.DataFrame, metric: str, unit: str | list[str]) -> dict[Any, float]:
    """The mean of a metric in each unit (of one column or more); ``|metric|`` is its size."""
    name = metric.strip("|")
    column = polars.col(name).abs() if metric.startswith("|") else polars.col(name)
    return {each[:-1]: each[-1] for each in table.group_by(unit).agg(column.mean()).iter_rows()}


def _groups(table: polars.DataFrame, by: str) -> list[tuple[str, polars.DataFrame]]:
    return [(str(name), group) for (name,), group in table.group_by([by], maintain_order=True)]


def _both(
    table: polars.DataFrame, *, metric: str, unit: str | list[str], first: Rows, second: Rows
) -> tuple[dict[Any, float], dict[Any, float]]:
    """A metric of each unit, in two choices of rows."""
    return _units(choose(table, first), metric, unit), _units(choose(table, second), metric, unit)


def _from_others(
    table: polars.DataFrame, *, metric: str, unit: str, first: str, among: str
) -> dict[str, Interval]:
    """One minus each of the others, unit by unit."""
    own = _units(choose(table, {among: first}), metric, unit)
    others = [name for name in table[among].unique(maintain_order=True) if name != first]
    if not others:
        raise BadValue(f"{among} must have others than {first!r}, found none")
    return {
        str(name): _difference(own, _units(choose(table, {among: name}), metric, unit))
        for name in others
    }


def _difference(
    one: Mapping[Any, float], two: Mapping[Any, float], level: float = LEVEL
) -> Interval:
    """The mean difference of the units that both have: what units have in common cancels."""
    shared = sorted(one.keys() & two.keys())
    if not shared:
        raise BadValue("differences need units that both have, found none")
    pair = Paired([two[key] for key in shared], [one[key] for key in shared])
    half = interval(pair.apart, level, resolution=pair.step)
    centre = float(np.mean(pair.apart))
    wide = np.inf if half is None else half
    return Interval(centre, centre - wide, centre + wide, len(shared))


def exactly(number: float, units: int) -> Interval:
    """A number that has no spread."""
    return Interval(number, number, number, units)


def _minus(called: str, *, metric: str, first: Rows, second: Rows, unit: str | list[str]) -> str:
    return f"{called or metric}: {_rows(first)} minus {_rows(second)}"


def _event(table: polars.DataFrame, event: str) -> Any:
    column, less_than, number = event.partition("<")
    if less_than:
        return (table[column] < float(number)).fill_null(False).to_numpy()
    return table[column].is_not_null().to_numpy()


def _rows(rows: Rows) -> str:
    return ", ".join(f"{name} = {value}" for name, value in rows.items())
