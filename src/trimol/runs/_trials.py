"""Trials of a search: the plan that they follow, their runs, and what was found.

Trials are ordinary runs that are looked at on validation data alone: test data are never looked at.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from trimol._checks import number_of_runs, one_of, whole_number
from trimol._failures import BadValue
from trimol.runs import _spaces as spaces
from trimol.runs import store
from trimol.runs._hold_out import count_held_out
from trimol.runs._journal import Watch
from trimol.runs._judging import checked_goals, flat_goals, gains
from trimol.runs._pool import execute_all
from trimol.runs._proposals import Proposals
from trimol.runs._signals import Interrupted
from trimol.runs._spaces import Point, Range, Space
from trimol.runs._variants import Variant
from trimol.runs.comparison import folder_name
from trimol.runs.config import (
    RunConfig,
    check_method,
    configure,
    equal_steps,
    hyperparameters_of,
    task_of,
    usual_batch_size,
)
from trimol.runs.store import StoredRun
from trimol.tasks import Task
from trimol.tasks.loading import source
from trimol.tasks.task import Goals
from trimol.training import Diverged

SEARCHES, PRUNES = ("grid", "random", "tpe"), ("none", "halving")
OF_THE_RUN = ("lr", "schedule")  # settings that are the run's, not the method's
TRIALS = 20
HALVING, RUNGS = 3, 3  # one in three goes on, with three times the steps, twice
_CHECKPOINTS = 5
_RATES = 5  # step sizes that are tried where nothing else is asked for


@dataclass(frozen=True)
class Trial:
    """One setting that was tried.

    Attributes:
        method: The method's name.
        number: Its place among the method's trials, from 0.
        setting: What was tried.
        values: What was found on validation data, by goal: means over the seeds. Empty if it came
            to no end.
        each: The same, seed by seed.
        folders: The runs, one a seed.
        note: Why it came to no end: it diverged, or was pruned.
    """

    method: str
    number: int
    setting: Point
    values: dict[str, float]
    each: tuple[dict[str, float], ...]
    folders: tuple[Path, ...]
    note: str = ""


@dataclass(frozen=True)
class SweepPlan:
    """What is searched: methods, what may be tried of each, and how each run is made.

    What may be tried of a setting is a list of values, or a text: ``"log:1e-3..10"`` (by ratio),
    ``"lin:0..1"``, ``"int:1..8"``, with ``:5`` after it five points of it; ``"simplex"`` for
    weights that sum to one, ``"simplex:4"`` for those that are multiples of 1/4.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``. Where it has no validation data, a fifth
            of the training samples serves as such (``held_out``).
        methods: The methods' names.
        steps: Steps of each run.
        settings: By method what may be tried, by hyper-parameter, ``"lr"`` and ``"schedule"``.
        lr: What may be tried of α by methods that say nothing else; None: the task's own. Where
            nothing else is to be tried either, from a tenth of that to ten times as much.
        schedule: Likewise of ``"constant"``, ``"linear"`` and ``"cosine"``.
        search: ``"grid"``: every combination once. ``"random"`` or ``"tpe"``: by Optuna, the latter
            with one goal or several. None: a grid, if all settings are lists of values, else TPE.
        trials: Of each method, by Optuna; None: 20. A grid has as many as it has points.
        prune: ``"halving"``: trials begin with a ninth of the steps, go on with a third and all of
            them, and each time only those among the best third of their method's so far do.
        seeds: Runs of each trial.
        seed: Decides what Optuna proposes.
        batch_size: Samples per step; None: the task's own.
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
        if self.rungs[0] < 1:
            least = HALVING ** (RUNGS - 1)
            raise BadValue(f"steps must be at least {least} to be halved, found {self.steps}")
        if self.batch_size is None:
            usual = usual_batch_size(self.task, self.options, hold_out=self.held_out)
            object.__setattr__(self, "batch_size", usual)
        self._check_settings()
        if self.how == "grid" and self.trials is not None:
            raise BadValue(
                f"trials must be left out for a grid, which has its own, found {self.trials}"
            )
        trials = whole_number("trials", self.count, least=1)
        number_of_runs("methods × trials × seeds", len(self.methods) * trials * self.seeds)

    @property
    def made(self) -> Task:
        """The task."""
        return task_of(self.task, self.options)

    @cached_property
    def held_out(self) -> int:
        """How many samples of train are validation data; 0 where the task has its own."""
        return count_held_out(self.made)

    @property
    def goals(self) -> Goals:
        """What a run is judged by on validation data: the task's goals, or else its losses."""
        own = self.made.goals
        if not own:
            return {name: {f"validation_loss/{name}": "lower"} for name in self.made.objectives}
        return {
            objective: {f"validation/{metric}": way for metric, way in metrics.items()}
            for objective, metrics in checked_goals(own).items()
        }

    @property
    def spread(self) -> bool:
        """Whether trials are weighed by how far apart metrics lie: of losses, by their sizes."""
        return bool(self.made.goals)

    @cached_property
    def spaces(self) -> dict[str, dict[str, Space]]:
        """What may be tried, by method and setting: its own before what is for all."""
        common = {"lr": self.lr, "schedule": self.schedule}
        given = {name: own for name, own in common.items() if own is not None}
        if not given and not any(self.settings.values()):
            return {method: {"lr": self._usual_rates(method)} for method in self.methods}
        return {
            method: {
                name: _space(f"{method}.{name}", own)
                for name, own in {**given, **self.settings.get(method, {})}.items()
            }
            for method in self.methods
        }

    def _usual_rates(self, method: str) -> Range:
        """Step sizes around the task's own; a grid of them, unless another search is asked for."""
        own = configure(
            self.task,
            method,
            task_options=self.options,
            steps=1,
            batch_size=1,
            optimizer=self.optimizer,
        ).lr
        points = _RATES if self.search in (None, "grid") and self.trials is None else None
        return Range(own / 10, own * 10, "log", points)

    @property
    def how(self) -> str:
        """How it is searched: as asked for, or as the settings allow."""
        if self.search is not None:
            return self.search
        each = [space for own in self.spaces.values() for space in own.values()]
        counted = all(spaces.size(s, len(self.made.objectives)) is not None for s in each)
        return "grid" if counted else "tpe"

    @property
    def count(self) -> int:
        """The trials of the method that has most of them."""
        if self.how == "grid":
            return max(map(len, self.grids.values()))
        return TRIALS if self.trials is None else self.trials

    @cached_property
    def grids(self) -> dict[str, list[Point]]:
        """All points of each method's grid."""
        size = len(self.made.objectives)
        return {method: spaces.grid(own, size) for method, own in self.spaces.items()}

    @property
    def rungs(self) -> list[int]:
        """The steps after which trials are looked at; the last is all of them."""
        shares = range(RUNGS - 1, -1, -1) if self.prune == "halving" else (0,)
        return [self.steps // HALVING**share for share in shares]

    def config(self, method: str, setting: Point, seed: int, steps: int) -> RunConfig:
        """A run of a point. The method's own random numbers have its seed, too."""
        own = variant(method, setting)
        seeded = {"seed": seed} if "seed" in hyperparameters_of(method) else {}
        count = equal_steps(self.task, method, steps, self.batch_size, self.options)
        return configure(
            self.task,
            method,
            lr=own.lr,
            schedule=own.schedule,
            hyperparameters={**seeded, **own.hyperparameters},
            task_options=self.options,
            steps=count,
            batch_size=self.batch_size,
            seed=seed,
            validation_only=True,
            hold_out=self.held_out,
            checkpoint_every=max(1, count // _CHECKPOINTS),
            optimizer=self.optimizer,
            precision=self.precision,
        )

    def summary(self, method: str) -> dict[str, Any]:
        """What decides the trials of a method, for a journal."""
        names = ("task", "steps", "prune", "seeds", "seed", "batch_size", "options")
        common = {name: getattr(self, name) for name in (*names, "optimizer", "precision")}
        if self.held_out:
            common["held_out"] = self.held_out
        tried = {name: repr(space) for name, space in self.spaces[method].items()}
        return {"search": self.how, **common, "source": source(self.task), "settings": tried}

    def _check_settings(self) -> None:
        """The ends of what may be tried of every setting must do, with the first of the others."""
        if not self.methods or len(set(self.methods)) < len(self.methods):
            found = list(self.methods)
            raise BadValue(f"methods must be one or more different names, found {found}")
        for method in self.settings:
            if method not in self.methods:
                known = ", ".join(self.methods)
                raise BadValue(f"settings must be of {known}, found {method!r}")
        size = len(self.made.objectives)
        each = [space for own in self.spaces.values() for space in own.values()]
        if all(spaces.size(space, size) == 1 for space in each):
            raise BadValue("settings must have something to try (lr, schedule, …), found nothing")
        for method, own in self.spaces.items():
            first = {name: spaces.ends(space, size)[0] for name, space in own.items()}
            points = [{**first, n: v} for n, s in own.items() for v in spaces.ends(s, size)]
            for point in points or [first]:
                check_method(self.config(method, point, 0, self.steps))


def variant(method: str, setting: Point) -> Variant:
    """A point as a setting of its method.

    >>> variant("preference", {"lr": 1.0, "bounds.ctr": 0.2}).hyperparameters
    {'bounds': {'ctr': 0.2}}
    """
    own: dict[str, Any] = {}
    for name, value in setting.items():
        outer, dot, objective = name.removeprefix("method.").partition(".")
        if name in OF_THE_RUN:
            continue
        if dot:
            own.setdefault(outer, {})[objective] = value
        else:
            own[outer] = value
    return Variant(
        method, lr=setting.get("lr"), schedule=setting.get("schedule"), hyperparameters=own
    )


def _space(name: str, given: Any) -> Space:
    try:
        return spaces.space(given)
    except BadValue as error:
        raise BadValue(f"{name} {error}") from None


class Work:
    """A search at work."""

    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        *,
        jobs: int | None,
        on: str | None,
        watch: Watch | None,
        told: Callable[[Sequence[Trial]], None] | None,
    ) -> None:
        self.plan, self.folder, self.watch, self.told = plan, folder, watch, told
        self.where: dict[str, Any] = {"jobs": jobs, "on": on}
        self.done: list[Trial] = []
        self.reached: dict[tuple[str, int], list[dict[str, float]]] = {}  # by method and rung

    def run(self, sources: Mapping[str, Proposals], at_once: int) -> list[Trial]:
        """All trials: a few of each method, then the next few, until there are no more."""
        try:
            while self._round(sources, at_once):
                pass
        except (Interrupted, KeyboardInterrupt) as stop:  # the latter between runs
            raise Interrupted(
                f"interrupted after {len(self.done)} trials, and all is saved: run the same "
                "command again to go on",
                getattr(stop, "code", 130),
            ) from None
        for method in sources:
            own = [trial for trial in self.done if trial.method == method]
            if not any(trial.values for trial in own):
                raise Diverged(f"no trial of {method} came to an end: {own[0].note}")
        return self.done

    def _round(self, sources: Mapping[str, Proposals], at_once: int) -> bool:
        """The next trials of every method. Whether there were any."""
        asked = {method: each.ask(at_once) for method, each in sources.items()}
        begun = [(method, point) for method, points in asked.items() for point in points]
        ended = iter(self._tried(begun))
        for method, proposals in sources.items():
            own = [next(ended) for _ in asked[method]]
            proposals.tell(
                [list(trial.values.values()) or None for trial in own],
                [{"run": trial.folders[0].name, "note": trial.note} for trial in own],
            )
            self.done += own
            if self.told is not None and own:
                self.told(own)
        return bool(begun)

    def _tried(self, begun: Sequence[tuple[str, Point]]) -> list[Trial]:
        """Trials that are begun together: to their end, or as far as they are let."""
        numbers: dict[str, int] = {}
        trials: list[Trial] = []
        for method, point in begun:
            before = sum(trial.method == method for trial in self.done)
            numbers[method] = numbers.get(method, before - 1) + 1
            trials.append(Trial(method, numbers[method], point, {}, (), ()))
        going = list(range(len(trials)))
        for rung, steps in enumerate(self.plan.rungs):
            looked = self._executed([trials[i] for i in going], steps)
            for i, trial in zip(going, looked, strict=True):
                trials[i] = trial
            going = [i for i in going if trials[i].values]
            if steps < self.plan.steps:
                going = self._let_on(trials, going, rung, steps)
        return trials

    def _let_on(
        self, trials: list[Trial], going: Sequence[int], rung: int, steps: int
    ) -> list[int]:
        """Those among the best third of their method's so far; the others are marked as pruned."""
        for i in going:
            self.reached.setdefault((trials[i].method, rung), []).append(trials[i].values)
        kept = []
        for i in going:
            rivals = self.reached[trials[i].method, rung]
            scores = gains(rivals, self.plan.goals, spread=self.plan.spread)
            own = scores[next(n for n, values in enumerate(rivals) if values is trials[i].values)]
            if sum(score > own for score in scores) < max(1, len(rivals) // HALVING):
                kept.append(i)
        for i in set(going) - set(kept):
            note = f"pruned after {steps} of {self.plan.steps} steps"
            trials[i] = replace(trials[i], values={}, each=(), note=note)
        return kept

    def _executed(self, trials: Sequence[Trial], steps: int) -> list[Trial]:
        """The trials, run for so many steps, with what was found."""
        runs = [
            (config, self.folder / store.ASIDE / folder_name(config))
            for trial in trials
            for seed in range(self.plan.seeds)
            for config in [self.plan.config(trial.method, trial.setting, seed, steps)]
        ]
        executed = execute_all(runs, watch=self.watch, together=False, **self.where)
        for (_, path), run in zip(runs, executed, strict=True):
            if isinstance(run, StoredRun):  # a finished run is never resumed
                (path / store.CHECKPOINT).unlink(missing_ok=True)
        left, paths = iter(executed), iter(path for _, path in runs)
        return [
            self._judged(
                trial,
                [next(left) for _ in range(self.plan.seeds)],
                tuple(next(paths) for _ in range(self.plan.seeds)),
            )
            for trial in trials
        ]

    def _judged(
        self, trial: Trial, runs: Sequence[StoredRun | Diverged], folders: tuple[Path, ...]
    ) -> Trial:
        """A trial with the values of its runs, or why it has none."""
        names, each, note = flat_goals(self.plan.goals), [], ""
        for run in runs:
            if isinstance(run, Diverged):
                note = note or str(run)
                continue
            for name in names:
                if name not in run.record:
                    raise BadValue(f"goals must name metrics of the task, found {name!r}")
            each.append({name: run.record[name] for name in names})
        missing = [n for own in each for n, value in own.items() if not math.isfinite(value)]
        note = note or (f"{missing[0]} is NaN or infinite" if missing else "")
        means = {name: fmean(own[name] for own in each) for name in names if not note}
        return replace(trial, values=means, each=tuple(each), folders=folders, note=note)
