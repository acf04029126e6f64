"""The points of a front: what each run reached, which are dominated, and how good they are."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimol._failures import BadValue
from trimol.maths import fronts
from trimol.runs._preferences import Weights
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.tasks import Task

Array = NDArray[np.float64]
TEST, VALIDATION, TRAIN, GOALS = "test", "validation", "train", "goals"
# How the losses are called in a run's record, or among its scores, by the data they are of.
LOSSES = {TEST: "test_loss/", VALIDATION: "validation_loss/", TRAIN: "loss/"}
METRIC = "metric/"
# In the study that a front is saved as: the first word of its name, its tables, and a number.
KIND, POINTS, KNOWN = "front", "points", "known"
DIFFERENCE = "hypervolume difference"
BEYOND = 0.1  # by this part of the range a derived reference is beyond the worst


@dataclass(frozen=True)
class Space:
    """What a front is looked at in: the losses on some data, or the task's goals.

    Attributes:
        name: ``"test"``, ``"validation"`` or ``"train"`` for the losses on these data, ``"goals"``
            for the metrics that the task names as its goals, on test data.
        axes: The objectives, or the metrics.
        signs: 1 where lower is better, −1 where higher is.
    """

    name: str
    axes: tuple[str, ...]
    signs: tuple[int, ...]


@dataclass(frozen=True)
class FrontPoint:
    """A trained model as a point of a front.

    Attributes:
        method: What it was trained by: a method's name, or a variant's label.
        seed: The seed of its run.
        preference: What was asked for, on the simplex; empty where nothing was.
        member: Which model of its run it is, where the run trained several; else None.
        refined: Whether it was added where the front was thin.
        folder: The folder of its run.
        values: Where it is, by the name of the space.
        metrics: The task's metrics on test data, by name.
        dominated: By the name of the space, whether another point of the same method and seed is
            no worse anywhere and better somewhere. A point that is not finite counts as dominated.
    """

    method: str
    seed: int
    preference: Weights
    member: int | None
    refined: bool
    folder: Path
    values: Mapping[str, tuple[float, ...]]
    metrics: Mapping[str, float]
    dominated: Mapping[str, bool]


@dataclass(frozen=True)
class Front:
    """A front, or several to be compared.

    Attributes:
        task: The task's name.
        methods: What the fronts were made by.
        seeds: How often each was made.
        spaces: What they are looked at in; the first is what is talked about.
        points: All points.
        references: The point up to which the hypervolume is taken, by the name of the space: one
            for all methods and seeds.
        given: Whether that of the losses was given, not derived from the points.
        known: Points of the true front, by the name of the space, where the task knows it.
        failed: The configurations of runs that diverged, each with what was said about it.
    """

    task: str
    methods: tuple[str, ...]
    seeds: int
    spaces: tuple[Space, ...]
    points: tuple[FrontPoint, ...]
    references: Mapping[str, tuple[float, ...]]
    given: bool
    known: Mapping[str, Array]
    failed: Sequence[tuple[RunConfig, str]]

    def of(self, method: str, seed: int | None = None) -> list[FrontPoint]:
        """The points of a method, of one seed or of all, in the order of the preferences."""
        own = [p for p in self.points if p.method == method and seed in (None, p.seed)]
        return sorted(own, key=lambda p: (tuple(-w for w in p.preference), p.member or 0, p.seed))

    def indicator(self, name: str, method: str, space: Space) -> list[float]:
        """A number of `INDICATORS` for the front of each seed; NaN where there is none."""
        return [self._indicator(name, self.of(method, seed), space) for seed in range(self.seeds)]

    def _indicator(self, name: str, own: Sequence[FrontPoint], space: Space) -> float:
        on = [p for p in own if not p.dominated[space.name]]
        at = lowered(on, space)
        if name == "nondominated":
            return float(len(on))
        if name == "hypervolume":
            return fronts.hypervolume(at, _rows(self.references[space.name], space)[0])
        if name == "spacing":
            return fronts.spacing(at) if len(on) > 2 else math.nan
        known = self.known.get(space.name)
        return math.nan if known is None or not on else fronts.igd(at, known)


INDICATORS = ("hypervolume", "nondominated", "spacing", "igd")


def spaces(task: Task, *, validation: bool) -> tuple[Space, ...]:
    """What the points of a task are looked at in."""
    names = tuple(task.objectives)
    data = [TEST, *([VALIDATION] if validation else []), TRAIN]
    found = [Space(name, names, (1,) * len(names)) for name in data]
    goals = {metric: way for own in task.goals.values() for metric, way in own.items()}
    if len(goals) > 1:
        ways = tuple(1 if way == "lower" else -1 for way in goals.values())
        found.append(Space(GOALS, tuple(goals), ways))
    return tuple(found)


def point(
    run: StoredRun,
    among: Sequence[Space],
    record: Mapping[str, Any],
    *,
    method: str,
    preference: Weights,
    member: int | None,
    refined: bool,
) -> FrontPoint:
    """A model of a finished run, with the numbers of a record that says where it is."""
    metrics = {
        name.removeprefix(METRIC): float(value)
        for name, value in record.items()
        if name.startswith(METRIC)
    }
    return FrontPoint(
        method=method,
        seed=run.config.seed,
        preference=preference,
        member=member,
        refined=refined,
        folder=run.path,
        values={space.name: _values(record, space) for space in among},
        metrics=metrics,
        dominated={},
    )


def recorded(run: StoredRun) -> dict[str, Any]:
    """What a run measured of its model at its end."""
    scores = {} if run.scores.is_empty() else run.scores.row(-1, named=True)
    return {**run.record, **scores}


def _values(record: Mapping[str, Any], space: Space) -> tuple[float, ...]:
    prefix = LOSSES.get(space.name, METRIC)
    return tuple(float(record.get(prefix + axis, math.nan)) for axis in space.axes)


def judged(points: Sequence[FrontPoint], among: Sequence[Space]) -> tuple[FrontPoint, ...]:
    """The points, each knowing whether it is dominated by one of the same method and seed."""
    marks: dict[int, dict[str, bool]] = {id(p): {} for p in points}
    for own in _fronts(points):
        for space in among:
            finite = [p for p in own if all(map(math.isfinite, p.values[space.name]))]
            kept = fronts.nondominated(lowered(finite, space))
            best = {id(p) for p, on in zip(finite, kept, strict=True) if on}
            for p in own:
                marks[id(p)][space.name] = id(p) not in best
    return tuple(replace(p, dominated=marks[id(p)]) for p in points)


def derived(points: Sequence[FrontPoint], space: Space) -> tuple[float, ...]:
    """A reference beyond all nondominated points: their worst, and a tenth of their range more.

    Where they do not differ, a tenth of the value itself, or 1 for 0.
    """
    at = lowered([p for p in points if not p.dominated[space.name]], space)
    if not len(at):
        raise BadValue(f"no point has finite numbers in {space.name}: give a reference")
    worst, width = at.max(0), at.max(0) - at.min(0)
    instead = np.where(worst == 0, 1 / BEYOND, np.abs(worst))
    beyond = worst + BEYOND * np.where(width > 0, width, instead)
    return tuple((beyond * space.signs).tolist())


def lowered(points: Sequence[FrontPoint], space: Space) -> Array:
    """Where points are, one row each, in numbers of which lower is better."""
    return _rows([p.values[space.name] for p in points], space)


def _rows(values: Any, space: Space) -> Array:
    return np.asarray(np.reshape(values, (-1, len(space.axes))) * np.array(space.signs, float))


def _fronts(points: Sequence[FrontPoint]) -> Iterator[list[FrontPoint]]:
    groups: dict[tuple[str, int], list[FrontPoint]] = {}
    for p in points:
        groups.setdefault((p.method, p.seed), []).append(p)
    yield from groups.values()
