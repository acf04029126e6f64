"""What is trained: a task by runs in folders, or anybody's function."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch.optim import SGD

from trimol._failures import BadType, BadValue
from trimol._generators import generators_kept
from trimol.methods._registry import BASELINE
from trimol.runs import _storage as files
from trimol.runs import store
from trimol.runs._hold_out import count_held_out
from trimol.runs._journal import Watch
from trimol.runs._pool import at_a_time, execute_all
from trimol.runs.comparison import numbers
from trimol.runs.config import (
    RunConfig,
    configure,
    equal_steps,
    hyperparameters_of,
    task_of,
    usual_batch_size,
)
from trimol.runs.store import StoredRun
from trimol.search._setting import Setting
from trimol.search._trial import Point
from trimol.tasks import Settings
from trimol.tasks import _answers as answers
from trimol.tasks.task import Better
from trimol.training import Diverged

CHECKPOINTS = 5  # of a run, if nothing interrupts it
FINAL = "runs"


@dataclass(frozen=True)
class Training:
    """One training that is asked for.

    Attributes:
        setting: The setting.
        seed: Decides the start and all samples.
        final: Whether it is measured on test data; otherwise on validation data.
        shorter: How many times fewer steps than a whole training it has.
    """

    setting: Setting
    seed: int
    final: bool = False
    shorter: int = 1


class Failure(str):
    """Why a training has no metrics."""


Outcome = Point | Failure


class Problem(Protocol):
    """What a study trains.

    Attributes:
        objectives: The objectives' names.
        ways: The metrics that settings are judged by, and which way is better.
        spread: Whether metrics are compared by how far apart they lie (`Scorer`).
    """

    objectives: Sequence[str]
    ways: Mapping[str, Better]
    spread: bool

    def rate(self, method: str) -> float:
        """Return the learning rate to begin with."""

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Train, and return the metrics of each, or why there are none."""


@runtime_checkable
class Jackknifed(Protocol):
    """A problem that tells how much a trial depends on the validation samples."""

    def points_without_parts(self, setting: Setting, seed: int) -> list[Point]:
        """Return a trial's metrics without one part of the validation data each."""


class TaskProblem:
    """A task, trained by ordinary runs: what is on disk is not trained again.

    Args:
        task: A task's name, or ``path/to/file.py:Class``.
        folder: Where the runs are kept: trials below ``tuning-only``, final ones below ``runs``.
        steps: Steps of every run.
        batch_size: Samples per step; by default the task's.
        options: The task's options.
        lr: The learning rate to begin with; by default the task's for static weights.
        jobs: Runs at a time; by default as many as there are cores.
        on: A Ray cluster to run them on.
        watch: Called with a run's configuration, its steps done and its record or None.
        optimizer: As in `RunConfig`; by default the task's.
        precision: As in `RunConfig`.
        together: Whether runs may train together (`execute_all`).
        equal_samples: Whether methods whose batches grow take no more samples than the others, in
            fewer steps.
    """

    def __init__(
        self,
        task: str,
        folder: Path | str,
        *,
        steps: int,
        batch_size: int | None = None,
        options: Mapping[str, Any] | None = None,
        lr: float | None = None,
        jobs: int | None = None,
        on: str | None = None,
        watch: Watch | None = None,
        optimizer: str | None = None,
        precision: str = "no",
        together: bool = True,
        equal_samples: bool = False,
    ) -> None:
        self.task, self.folder, self.steps = task, Path(folder), steps
        self.options = dict(options or {})
        self.optimizer, self.precision = optimizer, precision
        self.together, self.equal_samples = together, equal_samples
        made = task_of(task, self.options)
        self.made = made
        self.objectives: Sequence[str] = made.objectives
        self.hold_out = count_held_out(made)
        if batch_size is None:
            batch_size = usual_batch_size(task, self.options, hold_out=self.hold_out)
        self.batch_size = batch_size
        named = {m: way for metrics in made.goals.values() for m, way in metrics.items()}
        self.ways: Mapping[str, Better] = named or dict.fromkeys(made.objectives, "lower")
        self.spread = bool(named)
        self._rate, self._jobs, self._on, self._watch = lr, at_a_time(jobs, on), on, watch
        # By setting and seed: final ones, and those on validation data.
        self.runs: dict[tuple[str, int], StoredRun] = {}
        self.trial_runs: dict[tuple[str, int], StoredRun] = {}

    def rate(self, method: str) -> float:
        """Return the learning rate to begin with: static weights', for all methods."""
        return self._rate or self.made.settings.get(BASELINE, Settings()).lr

    @property
    def at_once(self) -> int:
        """How many runs are trained at a time here."""
        return self._jobs or 1

    @property
    def steps_by_gradient(self) -> bool:
        """Whether the task's optimizer takes steps as long as the gradient (SGD)."""
        with generators_kept(self.made):
            model = answers.model(self.made)
            return isinstance(answers.optimizer(self.made, model.parameters(), 1.0), SGD)

    def config(self, training: Training) -> RunConfig:
        """Return the run that a training is."""
        steps = self.steps // training.shorter
        if self.equal_samples:
            method = training.setting.method
            steps = equal_steps(self.task, method, steps, self.batch_size, self.options)
        return configure_setting(
            self.task,
            training.setting,
            training.seed,
            options=self.options,
            steps=steps,
            batch_size=self.batch_size,
            validation_only=not training.final,
            hold_out=self.hold_out,
            optimizer=self.optimizer,
            precision=self.precision,
        )

    def folder_of(self, training: Training) -> Path:
        """Return the folder of a training's run."""
        return self._place(training, self.config(training))

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Train all of them, going on with runs that are unfinished."""
        files.make_folder(self.folder)
        try:
            return self._trained(trainings)
        except (BadValue, BadType):  # whose it is, shows one by one; finished runs are only read
            return [self._trained_alone(training) for training in trainings]

    def _trained(self, trainings: Sequence[Training]) -> list[Outcome]:
        jobs = [(config := self.config(t), self._place(t, config)) for t in trainings]
        done = execute_all(
            jobs, jobs=self._jobs, on=self._on, watch=self._watch, together=self.together
        )
        for (_, folder), run in zip(jobs, done, strict=True):
            if isinstance(run, StoredRun):  # a finished run is never resumed
                (folder / store.CHECKPOINT).unlink(missing_ok=True)
        return [self._outcome(t, run) for t, run in zip(trainings, done, strict=True)]

    def _trained_alone(self, training: Training) -> Outcome:
        """Train one; a method that refuses the task has failed, static weights raise."""
        try:
            return self._trained([training])[0]
        except (BadValue, BadType) as error:
            if training.setting.method == BASELINE:
                raise
            return Failure(error)

    def _place(self, training: Training, config: RunConfig) -> Path:
        """Return the folder of a run; all seeds of a setting lie side by side."""
        where = FINAL if training.final else store.ASIDE
        key = config.model_copy(update={"seed": 0}).key
        return self.folder / where / training.setting.method / key / f"seed-{training.seed}"

    def _outcome(self, training: Training, run: StoredRun | Diverged) -> Outcome:
        if isinstance(run, Diverged):
            return Failure(run)
        kept = self.runs if training.final else self.trial_runs
        kept[training.setting.key, training.seed] = run
        found = numbers(run.record) if training.final else _validated(run.record)
        return checked_point(found, self.ways)

    def points_without_parts(self, setting: Setting, seed: int) -> list[Point]:
        """Return a trial's metrics without a tenth of the validation data at a time."""
        summary = self.trial_runs[setting.key, seed].summary or {}
        return list(summary.get("without_parts", ()))


def configure_setting(
    task: str,
    setting: Setting,
    seed: int,
    *,
    options: Mapping[str, Any],
    steps: int,
    **others: Any,
) -> RunConfig:
    """Return the run of a setting with a seed. A method's random numbers have that seed, too."""
    seeded = {"seed": seed} if "seed" in hyperparameters_of(setting.method) else {}
    return configure(
        task,
        setting.method,
        lr=setting.lr,
        schedule=setting.schedule,
        hyperparameters={**seeded, **setting.hyperparameters},
        task_options={**options, **setting.task_options},
        steps=steps,
        seed=seed,
        checkpoint_every=max(1, steps // CHECKPOINTS),
        **others,
    )


class FunctionProblem:
    """Anybody's training: a function from a setting to its metrics.

    Args:
        function: Trains with a `Setting` and returns metrics by name. It may also take ``seed``,
            ``final`` (whether to measure on test data), and ``budget``, the share of a whole
            training (1.0).
        objectives: The objectives' names, in the order of the weights.
        lr: The learning rate to begin with.
        goals: The metrics to judge by, and which way is better; by default the objectives, lower.
        folder: Where results are kept, so that none is trained twice; None for nowhere.
    """

    spread: bool = False

    def __init__(
        self,
        function: Callable[..., Mapping[str, float]],
        objectives: Sequence[str],
        *,
        lr: float,
        goals: Mapping[str, Better] | None = None,
        folder: Path | str | None = None,
    ) -> None:
        if not callable(function):
            raise BadType(f"train must be a function, found {type(function).__name__}")
        self.function, self._lr = function, lr
        self.objectives: Sequence[str] = list(objectives)
        self.ways: Mapping[str, Better] = dict(goals or dict.fromkeys(objectives, "lower"))
        self._takes = set(inspect.signature(function).parameters)
        self._file = None if folder is None else Path(folder) / "trainings.json"
        self._known: dict[str, Point] = {}
        if self._file is not None and self._file.exists():
            self._known = files.read_json(self._file)["trainings"]

    def rate(self, method: str) -> float:
        """Return the learning rate to begin with."""
        return self._lr

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Call the function for those that were not trained before."""
        return [self._trained(training) for training in trainings]

    def _trained(self, training: Training) -> Outcome:
        key = f"{training.setting.key} {training.seed}{' final' * training.final}"
        key += f" 1/{training.shorter}" if training.shorter > 1 else ""
        if key not in self._known:
            share = 1 / training.shorter
            more = {"seed": training.seed, "budget": share, "final": training.final}
            own = {name: value for name, value in more.items() if name in self._takes}
            found = self.function(training.setting, **own)
            if not isinstance(found, Mapping):
                kind = type(found).__name__
                raise BadType(f"train must return metrics by name, found {kind}")
            self._known[key] = {str(name): float(value) for name, value in found.items()}
            if self._file is not None:
                files.make_folder(self._file.parent)
                files.write_json(self._file, {"trainings": self._known})
        return checked_point(self._known[key], self.ways)


def checked_point(found: Mapping[str, float], ways: Mapping[str, Better]) -> Outcome:
    """Take the metrics that settings are judged by; all must be there, and finite."""
    for name in ways:
        if name not in found:
            has = ", ".join(found) or "none"
            raise BadValue(f"goals must name metrics of the training ({has}), found {name!r}")
        if not math.isfinite(found[name]):
            return Failure(f"{name} became NaN or infinite")
    return {name: float(found[name]) for name in ways}


def _validated(record: Mapping[str, float]) -> Point:
    """Return losses and metrics on validation data, by name."""
    kinds = ("validation_loss/", "validation/")
    return {
        name.partition("/")[2]: value
        for kind in kinds
        for name, value in record.items()
        if name.startswith(kind)
    }
