"""What a sweep searches: methods, what may be tried of each, and how each run is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trimol._checks import number_of_runs, one_of, whole_number
from trimol._failures import BadValue
from trimol.runs._judging import checked_goals
from trimol.runs.config import check_method, configure
from trimol.search._grid import GridSampler
from trimol.search._halving import Halving
from trimol.search._problem import TaskProblem, Training
from trimol.search._range_sampler import RangeSampler
from trimol.search._range_space import RangeSpace
from trimol.search._ranges import Dimension, Range, make_dimension
from trimol.search._sampler import Sampler
from trimol.tasks.task import Goals

SEARCHES, PRUNES = ("grid", "random", "tpe"), ("none", "halving")
TRIALS = 20
_RATES = 5  # learning rates that are tried where nothing else is asked for


@dataclass(frozen=True)
class SweepPlan:
    """What is searched: methods, what may be tried of each, and how each run is made.

    What may be tried of a setting is a list of values, or a text: ``"log:1e-3..10"`` (by ratio),
    ``"lin:0..1"``, ``"int:1..8"``, with ``:5`` after it five points of it; ``"simplex"`` for
    weights that sum to one, ``"simplex:4"`` for those that are multiples of 1/4.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``. Where it has no validation data, a fifth
            of the training samples serves as such.
        methods: The methods' names.
        steps: Steps of each run.
        settings: By method what may be tried, by hyper-parameter, ``"lr"`` and ``"schedule"``.
        lr: Learning rates to try with methods that have none in ``settings``; None for the task's.
            Where nothing else is to be tried either, from a tenth of that to ten times as much.
        schedule: Likewise of ``"constant"``, ``"linear"`` and ``"cosine"``.
        search: ``"grid"``: every combination once. ``"random"`` or ``"tpe"``: by Optuna, the latter
            with one goal or several. None: a grid, if all settings are lists of values, else TPE.
        trials: Trials of each method by Optuna; None for 20. A grid has as many as it has points.
        prune: ``"halving"``: trials begin with a ninth of the steps, then a third and all of them;
            each time only the best third of their method's so far continues.
        seeds: Runs of each trial.
        seed: Decides what Optuna proposes.
        batch_size: Samples per step; None for the task's.
        options: The task's options.
        optimizer: As in `RunConfig`.
        precision: As in `RunConfig`.

    Raises:
        BadValue: Something does not fit, said in one line.
    """

    task: str
    methods: Sequence[str]
    steps: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lr: Any = None
    schedule: Any = None
    search: str | None = None
    trials: int | None = None
    prune: str = "none"
    seeds: int = 1
    seed: int = 0
    batch_size: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str | None = None
    precision: str = "no"

    def __post_init__(self) -> None:
        for name in ("steps", "seeds"):
            whole_number(name, getattr(self, name), least=1)
        whole_number("seed", self.seed, least=0)
        one_of("prune", self.prune, PRUNES)
        if self.search is not None:
            one_of("search", self.search, SEARCHES)
        if self.steps < self.rungs[0]:
            raise BadValue(
                f"steps must be at least {self.rungs[0]} to be halved, found {self.steps}"
            )
        object.__setattr__(self, "batch_size", self.problem.batch_size)
        self._check_settings()
        if self.how == "grid" and self.trials is not None:
            raise BadValue(
                f"trials must be left out for a grid, which has its own, found {self.trials}"
            )
        trials = whole_number("trials", max(self.counts.values()), least=1)
        number_of_runs("methods × trials × seeds", len(self.methods) * trials * self.seeds)

    def make_problem(self, folder: Path | str, **others: Any) -> TaskProblem:
        """Return the task, trained as planned in a folder; others are arguments of its class."""
        return TaskProblem(
            self.task,
            folder,
            steps=self.steps,
            batch_size=self.batch_size,
            options=self.options,
            optimizer=self.optimizer,
            precision=self.precision,
            together=False,
            equal_samples=True,
            **others,
        )

    @cached_property
    def problem(self) -> TaskProblem:
        """What is trained, before it has a folder."""
        return self.make_problem(Path())

    @property
    def goals(self) -> Goals:
        """What a run is judged by on validation data: the task's goals, or else its losses."""
        goals = self.problem.made.goals
        if not goals:
            return {name: {name: "lower"} for name in self.problem.objectives}
        return checked_goals(goals)

    @property
    def columns(self) -> dict[str, str]:
        """What the goals are called in records and tables, by name."""
        kind = "validation" if self.problem.spread else "validation_loss"
        return {name: f"{kind}/{name}" for name in self.problem.ways}

    @cached_property
    def spaces(self) -> dict[str, RangeSpace]:
        """What may be tried, by method: its own dimensions before those for all."""
        common = {"lr": self.lr, "schedule": self.schedule}
        given = {name: own for name, own in common.items() if own is not None}
        nothing = not given and not any(self.settings.values())
        counted = self.search in (None, "grid") and self.trials is None
        spaces = {}
        for method in self.methods:
            rate = self._usual_rate(method)
            own = {**given, **self.settings.get(method, {})}
            if nothing:
                own = {"lr": Range(rate / 10, rate * 10, "log", _RATES if counted else None)}
            dimensions = {name: _dimension(f"{method}.{name}", at) for name, at in own.items()}
            spaces[method] = RangeSpace(method, dimensions, self.problem.objectives, rate)
        return spaces

    def _usual_rate(self, method: str) -> float:
        return configure(
            self.task,
            method,
            task_options=self.options,
            steps=1,
            batch_size=1,
            optimizer=self.optimizer,
        ).lr

    @property
    def how(self) -> str:
        """How it is searched: as asked for, or as the dimensions allow."""
        if self.search is not None:
            return self.search
        return "tpe" if any(own.size is None for own in self.spaces.values()) else "grid"

    @cached_property
    def counts(self) -> dict[str, int]:
        """The trials of each method."""
        if self.how == "grid":
            return {method: len(own.grid()) for method, own in self.spaces.items()}
        return dict.fromkeys(self.methods, TRIALS if self.trials is None else self.trials)

    @property
    def rungs(self) -> tuple[int, ...]:
        """How many times shorter than all of the steps the trainings of a trial are."""
        return (*Halving.rungs, 1) if self.prune == "halving" else (1,)

    def sampler(self, method: str) -> Sampler:
        """Return what proposes the settings of a method, anew."""
        space = self.spaces[method]
        if self.how == "grid":
            return GridSampler(space.grid())
        return RangeSampler(space, self.problem.ways, kind=self.how, seed=self.seed)

    def _check_settings(self) -> None:
        """Check the methods, and the ends of what may be tried of every setting."""
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise BadValue(
                f"methods must be one or more different names, found {list(self.methods)}"
            )
        for method in self.settings:
            if method not in self.methods:
                known = ", ".join(self.methods)
                raise BadValue(f"settings must be of {known}, found {method!r}")
        if all(space.size == 1 for space in self.spaces.values()):
            raise BadValue("settings must have something to try (lr, schedule, …), found nothing")
        for space in self.spaces.values():
            for setting in space.ends():
                check_method(self.problem.config(Training(setting, 0)))


def _dimension(name: str, given: Any) -> Dimension:
    try:
        return make_dimension(given)
    except BadValue as error:
        raise BadValue(f"{name} {error}") from None
