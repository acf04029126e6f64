"""How good settings are: units of metrics, and one number for several of them."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

import numpy as np

from trimol._failures import BadValue
from trimol.maths.fronts import nondominated
from trimol.tasks.task import Better, Goals

LEAST = 0.02  # of a metric's size: good settings that differ by less hardly differ, but by noise
SIGNS = {"higher": -1.0, "lower": 1.0}  # (−1)^ℓ: a drop is positive


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
    costs = np.array([[SIGNS[way] * own[name] for name, way in ways.items()] for own in points])
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
                -SIGNS[way] * (own[metric] - middles[metric]) / by[metric]
                for metric, way in metrics.items()
            )
            for metrics in goals.values()
        )
        for own in each
    ]


def flat_goals(goals: Goals) -> dict[str, Better]:
    """The goals of all objectives by name."""
    return {name: way for metrics in goals.values() for name, way in metrics.items()}


def checked_goals(goals: Goals) -> Goals:
    """The goals, if every objective has a metric and every metric a way."""
    if not goals or not all(goals.values()):
        raise BadValue(f"goals must name a metric for every objective, found {dict(goals)!r}")
    for metrics in goals.values():
        for metric, way in metrics.items():
            if way not in SIGNS:
                raise BadValue(f"goal of {metric} must be higher or lower, found {way!r}")
    return goals
