"""What the final runs of a trial come to: the verdict, and the hypervolume of what was reached."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from trimol.maths.fronts import hypervolume
from trimol.methods._registry import BASELINE
from trimol.runs._trial_stages import Final, Point
from trimol.runs.comparison import numbers, paired
from trimol.runs.statistics import Paired
from trimol.runs.store import StoredRun
from trimol.runs.verdict import HYPERVOLUME, Pair, Verdict, Ways, judge
from trimol.training import Diverged

MOST_METRICS = 6  # exact hypervolumes of more take too long


def judged(
    final: Final,
    ways: Ways,
    sizes: Mapping[str, float],
    volumes: Mapping[str, Sequence[float]],
    seeds: int,
) -> tuple[Verdict, list[str]]:
    """What the rule says of final runs with so many seeds, and what a reader has to know."""
    base = final.runs[BASELINE]
    if not base:
        raise Diverged(f"every final run of {BASELINE} diverged: there is nothing to judge by")
    notes = []
    if len(base) < seeds:
        notes.append(
            f"{BASELINE} diverged in {seeds - len(base)} of {seeds} final runs: it is judged by "
            "the others, which flatters it."
        )
    known = {m: way for m, way in ways.items() if all(_has(run, m) for run in base)}
    notes += [
        f"{metric} is not judged by: on test data it is NaN or infinite with {BASELINE}."
        for metric in ways
        if metric not in known
    ]
    if not known:
        raise Diverged(f"no metric of {BASELINE} on test data is a number")
    methods = [name for name in final.runs if name != BASELINE]
    sure = [name for name in methods if _complete(final, name, known, seeds)]
    notes += [
        f"{name} is not considered: it diverged in final runs, or lacks numbers of them."
        for name in methods
        if name not in sure
    ]
    pairs = [
        pair
        for name in sure
        for pair in (
            *_pairs(name, base, final.runs[name], known),
            *_pairs(name, base, final.timed.get(name, ()), known, timed=True),
        )
    ]
    reached = [
        Pair(name, HYPERVOLUME, Paired(volumes[BASELINE], volumes[name]))
        for name in sure
        if volumes
    ]
    return judge(pairs, known, baseline=BASELINE, sizes=sizes, reached=reached), notes


def _complete(final: Final, name: str, ways: Ways, seeds: int) -> bool:
    """Whether all final runs of a method came to an end, with numbers on test data."""
    groups = [final.runs[name], *([final.timed[name]] if name in final.timed else [])]
    return all(len(own) == seeds for own in groups) and all(
        _has(run, metric) for own in groups for run in own for metric in ways
    )


def volumes_of(
    points: Mapping[str, Sequence[Sequence[Point]]], ways: Ways, seeds: int
) -> tuple[Point, dict[str, list[float]]]:
    """The reference point, and the hypervolume of every contender, seed by seed.

    The reference is, on each metric, the median of all points of all contenders. The unit is the
    box from there to the best value of each metric.
    """
    each = [point for own in points.values() for seeds in own for point in seeds]
    reference = {m: median(point[m] for point in each) for m in ways}
    if not 2 <= len(ways) <= MOST_METRICS:
        return reference, {}
    signs = {m: 1 if way == "lower" else -1 for m, way in ways.items()}
    best = {m: signs[m] * min(signs[m] * point[m] for point in each) for m in ways}
    sizes = {m: abs(reference[m] - best[m]) or 1.0 for m in ways}

    def placed(point: Mapping[str, float]) -> list[float]:
        return [signs[m] * (point[m] - reference[m]) / sizes[m] for m in ways]

    corner = [0.0] * len(ways)
    return reference, {
        name: [
            hypervolume(np.array([placed(by_seed[place]) for by_seed in own]), corner)
            for place in range(seeds)
        ]
        for name, own in points.items()
    }


def _has(run: StoredRun, metric: str) -> bool:
    """Whether a run has a number on test data, which is finite."""
    return math.isfinite(numbers(run.record).get(metric, math.nan))


def _pairs(
    method: str,
    base: Sequence[StoredRun],
    own: Sequence[StoredRun],
    ways: Ways,
    *,
    timed: bool = False,
) -> list[Pair]:
    """Baseline and method on test data, seed by seed."""
    return [
        Pair(method, metric, pair, "time" if timed else "samples")
        for metric, pair in paired(base, own).items()
        if metric in ways
    ]
