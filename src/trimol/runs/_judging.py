"""How good a multi-task model is: its drop against a baseline, and the epoch it is judged at.

Scores are a run's ``scores.parquet``: one row an epoch, ``validation_loss/<objective>``,
``validation/<metric>`` and ``test/<metric>``. Epochs are chosen on validation data alone.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
import polars

from trimol._failures import BadValue
from trimol.maths.fronts import nondominated
from trimol.tasks.task import Better, Goals

LEAST = 0.02  # of a metric's size: good settings that differ by less hardly differ, but by noise
_SIGNS = {"higher": -1.0, "lower": 1.0}  # (−1)^ℓ: a drop is positive


def drop(values: Mapping[str, float], baseline: Mapping[str, float], goals: Goals) -> float:
    r"""ΔA %: how much worse than a baseline, on average over the objectives. Lower is better.

    .. math:: \Delta\mathcal{A}\,\% = \frac{100}{M} \sum_{m=1}^{M} \frac{1}{|K_m|}
       \sum_{k \in K_m} (-1)^{\ell_k} \frac{S_k - B_k}{B_k}

    with the metrics K_m of objective m and ℓ = 1 where higher is better. By objective first: an
    objective with many metrics counts no more than one with a single metric. (So the paper's
    numbers for NYU-v2 come out; a mean over all nine metrics gives others.)

    Args:
        values: S, by metric.
        baseline: B, by metric; not negative. Nothing is relative to 0: the result is then NaN.
        goals: For each objective its metrics, and which way is better (`Task.goals`).

    Example:
        >>> goals = {"a": {"accuracy": "higher"}, "b": {"error": "lower"}}
        >>> drop({"accuracy": 0.75, "error": 3.0}, {"accuracy": 1.0, "error": 2.0}, goals)
        37.5

    Reference:
        Three-way trade-off, ΔA_id of the multi-task experiments.
    """
    return 100 * fmean(
        fmean(_drop(metric, way, values, baseline) for metric, way in metrics.items())
        for metrics in checked_goals(goals).values()
    )


def chosen(scores: polars.DataFrame, goals: Goals, objective: str) -> dict[str, Any]:
    """The epoch that is best for one objective on validation data.

    With one metric: its best value. With several: the best mean over them of the value relative to
    its mean over the epochs, those where lower is better with a minus sign. Of equals (on a hundred
    images accuracies often are) the one with the lowest validation loss of the objective, where
    that is known; then the earliest.

    Example:
        >>> table = polars.DataFrame({"step": [5, 10, 15], "validation/accuracy": [0.6, 0.8, 0.8]})
        >>> chosen(table, {"a": {"accuracy": "higher"}}, "a")["step"]
        10
    """
    if objective not in goals:
        raise BadValue(f"objective must be one of {', '.join(goals)}, found {objective!r}")
    metrics = checked_goals(goals)[objective]
    standings = standing({metric: validated(scores, metric) for metric in metrics}, metrics)
    best = [row for row, value in enumerate(standings) if value == max(standings)]
    loss = f"validation_loss/{objective}"
    if loss in scores.columns:
        best.sort(key=scores[loss].to_list().__getitem__)
    return scores.row(best[0], named=True)


def jointly(
    scores: polars.DataFrame, goals: Goals, baseline: Mapping[str, float]
) -> dict[str, Any]:
    """The one epoch that is best for all objectives: the smallest ΔA on validation data.

    The rule of the paper's experiments (and of LibMTL): one model for all tasks.

    Example:
        >>> goals = {"a": {"accuracy": "higher"}, "b": {"error": "lower"}}
        >>> table = {"step": [5, 10], "validation/accuracy": [0.6, 0.9], "validation/error": [1, 2]}
        >>> jointly(polars.DataFrame(table), goals, {"accuracy": 1.0, "error": 1.0})["step"]
        5
    """
    names = list(flat_goals(checked_goals(goals)))
    columns = {metric: validated(scores, metric) for metric in names}
    drops = [
        drop({name: columns[name][row] for name in names}, baseline, goals)
        for row in range(len(scores))
    ]
    known = [math.inf if math.isnan(lost) else lost for lost in drops]
    return scores.row(known.index(min(known)), named=True)


def standing(
    columns: Mapping[str, Sequence[float]],
    metrics: Mapping[str, str],
    scales: Mapping[str, float] | None = None,
) -> list[float]:
    """One number a row, larger for the better: see `chosen`.

    ``scales`` are what a metric's values are relative to; by default their mean size.
    """
    if len(metrics) == 1:  # nothing to weigh against: the values themselves, not rounded
        scales = dict.fromkeys(metrics, 1.0)
    elif scales is None:
        scales = {metric: fmean(map(abs, columns[metric])) or 1.0 for metric in metrics}
    rows = len(next(iter(columns.values())))
    return [
        fmean(-_SIGNS[way] * columns[name][row] / scales[name] for name, way in metrics.items())
        for row in range(rows)
    ]


def spreads(points: Sequence[Mapping[str, float]], ways: Mapping[str, Better]) -> dict[str, float]:
    """How far apart the points lie that no other dominates: from ideal to nadir, by metric.

    What a metric is relative to where its 0 means nothing. An AUC of 0.5 is chance: relative to its
    size, a model that tells everybody the same loses little of it, and gains all of a gap between
    groups.

    Example:
        >>> fair, useful, astray = (0.5, 0.0), (0.75, 0.25), (0.5, 9.0)
        >>> points = [{"AUC": a, "gap": g} for a, g in (fair, useful, astray)]
        >>> spreads(points, {"AUC": "higher", "gap": "lower"})
        {'AUC': 0.25, 'gap': 0.25}
    """
    costs = np.array([[_SIGNS[way] * own[name] for name, way in ways.items()] for own in points])
    front = costs[nondominated(costs)]
    return dict(zip(ways, np.ptp(front, axis=0).tolist(), strict=True))


def units(
    points: Sequence[Mapping[str, float]],
    ways: Mapping[str, Better],
    sizes: Mapping[str, float],
    *,
    spread: bool,
) -> dict[str, float]:
    """What metrics are relative to, where several are weighed against each other.

    Metrics by how far apart they lie (``spread``: see `spreads`), at least by `LEAST` of their
    sizes; losses, whose 0 is the least there can be, by their sizes.
    """
    if not spread or len(ways) == 1:
        return dict(sizes)
    apart = spreads(points, ways)
    return {name: max(apart[name], LEAST * size) for name, size in sizes.items()}


def gains(
    each: Sequence[Mapping[str, float]], goals: Goals, *, spread: bool = False
) -> list[float]:
    """How much better than the median each of several settings is, in per cent: one number each.

    For every goal the difference from the median of all, relative to it, so that a setting that
    went astray moves no scale, or to the spread (`units`); the mean by objective first, as in
    `drop`. Larger is better.

    Example:
        >>> goals = {"a": {"accuracy": "higher"}, "b": {"error": "lower"}}
        >>> found = ((0.5, 2.0), (0.8, 1.0), (0.4, 9.0))
        >>> each = [{"accuracy": a, "error": e} for a, e in found]
        >>> [round(gain) for gain in gains(each, goals)]
        [0, 55, -185]
    """
    checked_goals(goals)
    ways = flat_goals(goals)
    middles = {name: median(own[name] for own in each) for name in ways} if each else {}
    sizes = {
        name: abs(middle) or fmean(abs(own[name]) for own in each) or 1.0
        for name, middle in middles.items()
    }
    by = units(each, ways, sizes, spread=spread) if each else sizes
    return [
        100
        * fmean(
            fmean(
                -_SIGNS[way] * (own[metric] - middles[metric]) / by[metric]
                for metric, way in metrics.items()
            )
            for metrics in goals.values()
        )
        for own in each
    ]


def validated(scores: polars.DataFrame, metric: str) -> list[float]:
    """A metric on validation data, epoch by epoch; every one a number."""
    name = f"validation/{metric}"
    if name not in scores.columns or scores.is_empty():
        has = ", ".join(scores.columns) if len(scores) else "no rows"
        raise BadValue(f"scores must have {name}, found {has}")
    values: list[float] = scores[name].cast(polars.Float64).to_list()
    for row, value in enumerate(values):
        if value is None or not math.isfinite(value):
            raise BadValue(f"{name} must be a number in every row, found {value} in row {row}")
    return values


def flat_goals(goals: Goals) -> dict[str, Better]:
    """The goals of all objectives by name."""
    return {name: way for metrics in goals.values() for name, way in metrics.items()}


def checked_goals(goals: Goals) -> Goals:
    """The goals, if every objective has a metric and every metric a way."""
    if not goals or not all(goals.values()):
        raise BadValue(f"goals must name a metric for every objective, found {dict(goals)!r}")
    for metrics in goals.values():
        for metric, way in metrics.items():
            if way not in _SIGNS:
                raise BadValue(f"goal of {metric} must be higher or lower, found {way!r}")
    return goals


def _drop(
    metric: str, way: str, values: Mapping[str, float], baseline: Mapping[str, float]
) -> float:
    """The signed relative drop of one metric."""
    for name, found in (("values", values), ("baseline", baseline)):
        if metric not in found:
            raise BadValue(f"{name} must have {metric}, found {', '.join(found) or 'nothing'}")
        if not math.isfinite(found[metric]):
            raise BadValue(f"{metric} of {name} must be finite, found {found[metric]}")
    before = baseline[metric]
    if before < 0:
        raise BadValue(f"{metric} of baseline must be at least 0, found {before}")
    return _SIGNS[way] * (values[metric] - before) / before if before else math.nan
