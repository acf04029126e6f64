"""One setting, several seeds: trained together where the method allows it, measured, kept on disk.

The unit of the studies on images. A `Setting` that is finished is one parquet file, named by a hash
of all that decides its content, and is never computed again. One that was interrupted goes on from
its last measurement (seeds trained together) or its last finished seed (one by one).
"""

import hashlib
import json
import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars
import torch
from torch import Tensor, nn

from trimol import methods
from trimol._failures import BadValue
from trimol.errors import Errors, conflict_over_runs
from trimol.runs import _storage as files
from trimol.runs._pool import cores
from trimol.tasks import Task, load
from trimol.training import Diverged, RunError, assess, mean_losses, metrics, start, train
from trimol.training.records import Record, from_errors
from trimol.training.replicas import NotReplicable, Replicas

Watch = Callable[[int, int], None]
Keep = Callable[[Any], None]
ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca")
# Of all seeds together, at one step: the readings of E_ca (see `trimol.errors.conflict_over_runs`).
READINGS = {"definition": "E_ca_definition", "unbiased": "E_ca_unbiased"}


@dataclass(frozen=True)
class Setting:
    """What is run, with which seeds, and when it is measured.

    Attributes:
        task: The task, as `trimol.tasks.load` takes it.
        method: The method's name.
        lr: α.
        steps: The numbers of steps after which it is measured, rising; the last one ends it. For a
            method whose batches grow: as many steps as take no more samples than these would.
        seeds: The seeds.
        hyperparameters: The method's own, by name.
        options: The task's, by name.
        batch_size: Samples a step, over all draws.
        on: ``"all"``: the record of a full measurement, on training and test data;
            ``"validation"``: losses and metrics on validation data only, to choose settings by.
    """

    task: str
    method: str
    lr: float
    steps: tuple[int, ...]
    seeds: tuple[int, ...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 64
    on: Literal["all", "validation"] = "all"

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.steps, self.steps[1:], strict=False))
        if not self.steps or self.steps[0] < 0 or not rising:
            raise BadValue(f"steps must be rising numbers of at least 0, found {self.steps}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise BadValue(f"seeds must be different numbers, found {self.seeds}")

    @property
    def key(self) -> str:
        """A short hash of all that decides the result."""
        content = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def run(setting: Setting, folder: Path, watch: Watch | None = None) -> polars.DataFrame:
    """Run a setting, or go on with it, or return what is finished.

    Args:
        setting: What to run.
        folder: Where parts are kept.
        watch: Called with (done, total), in steps × seeds.

    Returns:
        One row a seed and measurement: ``seed``, then the record (`trimol.training.records`), then
        of all seeds together ``E_ca_definition`` and ``E_ca_unbiased``, and the seconds of wall
        clock that training and measuring had taken by then: each seed's share of them.

    Raises:
        Diverged: A loss became NaN or infinite (unless it is on validation data only, which show
            what became of it).
    """
    finished = folder / f"{setting.key}.parquet"
    if finished.exists():
        return files.read_table(finished)
    files.make_folder(folder)
    state = folder / f"{setting.key}.pt"
    kept = files.read_tensors(state) if state.exists() else None
    task = load(setting.task, setting.options)
    rows = _runs(task, setting).run(kept, lambda now: files.write_tensors(state, now), watch)
    table = polars.DataFrame(rows)
    files.write_table(finished, table)
    state.unlink(missing_ok=True)
    return table


def run_all(
    settings: Sequence[Setting],
    folder: Path,
    watch: Watch | None = None,
    *,
    jobs: int | None = None,
) -> list[polars.DataFrame]:
    """Run several settings, each in a process of its own with one thread.

    One thread a process: the tensors of a step are too small to keep several busy.

    Args:
        settings: What to run; the longest are begun first.
        folder: Where parts are kept.
        watch: Called with (done, total), in steps × seeds of all settings.
        jobs: How many at a time; as many as there are cores by default. With 1 they run in this
            process, and ``watch`` is told of every step.

    Returns:
        What `run` gives, in the order of the settings.
    """
    unique = {setting.key: setting for setting in settings}
    left = [s for s in unique.values() if not (folder / f"{s.key}.parquet").exists()]
    progress = _Progress(list(unique.values()), left, watch)
    jobs = min(len(left), cores() if jobs is None else jobs)
    if jobs > 1:
        _in_processes(sorted(left, key=_size, reverse=True), folder, jobs, progress)
    else:
        for setting in left:
            run(setting, folder, progress.inside())
            progress.finished(setting)
    return [run(setting, folder) for setting in settings]


def numbers(table: polars.DataFrame, step: int | None = None) -> dict[str, list[float]]:
    """What was measured at a step, by the name that rows of results have: one value a seed.

    Args:
        table: What `run` gave.
        step: Which step; the last by default.

    Returns:
        Test losses and metrics by their names, then the errors, R_gen as |R_gen| of each run.
    """
    at = table.filter(polars.col("step") == (table["step"].max() if step is None else step))
    named = {
        name.partition("/")[2]: at[name].to_list()
        for kind in ("test_loss/", "metric/")
        for name in at.columns
        if name.startswith(kind)
    }
    errors = {name: at[name].abs().to_list() for name in ERRORS if name in at.columns}
    return {**named, **errors}


def seconds(table: polars.DataFrame) -> tuple[float, float]:
    """The seconds of wall clock that training and measuring all seeds took."""
    last = table.filter(polars.col("step") == table["step"].max())
    return float(last["train_seconds"].sum()), float(last["measure_seconds"].sum())


class _Progress:
    """How many steps × seeds of all settings are done."""

    def __init__(
        self, settings: Sequence[Setting], left: Sequence[Setting], watch: Watch | None
    ) -> None:
        self.watch = watch
        self.total = sum(map(_size, settings))
        self.done = self.total - sum(map(_size, left))
        self._tell()

    def finished(self, setting: Setting) -> None:
        self.done += _size(setting)
        self._tell()

    def inside(self) -> Watch | None:
        """What watches the next setting."""
        return _shifted(self.watch, self.done, self.total)

    def _tell(self) -> None:
        if self.watch is not None:
            self.watch(self.done, self.total)


def _in_processes(
    settings: Sequence[Setting], folder: Path, jobs: int, progress: _Progress
) -> None:
    # Spawned, as a fork would inherit torch's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_alone) as pool:
        running = {pool.submit(_quietly, setting, folder): setting for setting in settings}
        try:
            for future in as_completed(running):
                future.result()
                progress.finished(running[future])
        except BrokenProcessPool as error:
            raise RunError(
                "a process that ran the study died (out of memory?): run the same command again to "
                "go on"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)  # what runs goes on to its end; nothing new begins
            raise


def _alone() -> None:
    """In a new process: one thread; Ctrl-C ends it without a word, for the parent says it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _quietly(setting: Setting, folder: Path) -> None:
    """Run a setting whose table is to be read from disk."""
    run(setting, folder)


def _size(setting: Setting) -> int:
    return setting.steps[-1] * len(setting.seeds)


def _runs(task: Task, setting: Setting) -> "_Together | _OneByOne":
    try:
        return _Together(task, setting)
    except (NotImplementedError, NotReplicable):  # of the method, or of the task
        return _OneByOne(task, setting)


class _Together:
    """All seeds as replicas of one program."""

    def __init__(self, task: Task, setting: Setting) -> None:
        self.task, self.setting = task, setting
        self.stops = _stops(task, setting)
        self.clock = _Clock()
        self.replicas = Replicas(
            task,
            setting.method,
            seeds=setting.seeds,
            lr=setting.lr,
            hyperparameters=setting.hyperparameters,
            batch_size=setting.batch_size,
        )

    def run(self, kept: Any, keep: Keep, watch: Watch | None) -> list[Record]:
        """From measurement to measurement; after each one a state is kept."""
        rows: list[Record] = []
        if kept is not None:
            rows, self.clock.seconds = kept["rows"], kept["seconds"]
            self.replicas.load_state_dict(kept["replicas"])
        for stop in self.stops[len(rows) // len(self.setting.seeds) :]:
            with self.clock("train"), _tolerant(self.setting):
                self._advance(stop, watch)
            rows += self._measured()
            if stop < self.stops[-1]:
                state = self.replicas.state_dict()
                keep({"rows": rows, "seconds": self.clock.seconds, "replicas": state})
        return rows

    def _advance(self, stop: int, watch: Watch | None) -> None:
        total, seeds = self.stops[-1] * len(self.setting.seeds), len(self.setting.seeds)
        tell = None if watch is None else lambda now: watch(now.step * seeds, total)
        self.replicas.train(stop - self.replicas.step, watch=tell)
        diverged = self.replicas.diverged
        if (diverged >= 0).any():
            place = int((diverged >= 0).nonzero()[0])
            raise Diverged(
                f"a loss of {self.task.name} with {self.setting.method} is not finite at step "
                f"{int(diverged[place])} of seed {self.setting.seeds[place]}: try a smaller lr"
            )

    def _measured(self) -> list[Record]:
        """One row a seed, at x_t with λ_{t+1}, which is known inside the step that follows."""
        rows: list[Record] = []
        if self.setting.on == "validation":
            for place, seed in enumerate(self.setting.seeds):
                found = _validated(self.task, self.replicas.module(place), self.replicas.step)
                rows.append({"seed": seed, **found})
        else:
            self.replicas.train(1, watch=lambda _: rows.extend(self._records()))
        share = {k: seconds / len(rows) for k, seconds in self.clock.seconds.items()}
        return [{**row, **share} for row in rows]

    def _records(self) -> list[Record]:
        with self.clock("measure"):
            errors = self.replicas.measure()
            found = [self._record(place, own) for place, own in enumerate(errors)]
        directions = [own.direction for own in errors if own.direction is not None]
        return [{**row, **_readings(directions)} for row in found]

    def _record(self, place: int, errors: Errors) -> Record:
        replicas = self.replicas
        record = from_errors(
            errors,
            self.task.objectives,
            step=replicas.step,
            samples=replicas.samples,
            metrics=metrics(self.task, replicas.module(place), self.task.data().test),
            weights=replicas.method.weights[place],
        )
        return {"seed": self.setting.seeds[place], **record}


class _OneByOne:
    """Seed after seed by the ordinary loop: for methods that cannot run replicated."""

    def __init__(self, task: Task, setting: Setting) -> None:
        self.task, self.setting = task, setting
        self.stops = _stops(task, setting)

    def run(self, kept: Any, keep: Keep, watch: Watch | None) -> list[Record]:
        """Every seed that is not done yet."""
        state = kept or {"rows": [], "directions": [[] for _ in self.stops]}
        total = self.stops[-1] * len(self.setting.seeds)
        done = len(state["rows"]) // len(self.stops)
        for place, seed in enumerate(self.setting.seeds[done:], start=done):
            ahead = _shifted(watch, place * self.stops[-1], total)
            for number, (row, direction) in enumerate(self._seed(seed, ahead)):
                state["rows"].append(row)
                state["directions"][number] += [] if direction is None else [direction]
            keep(state)
        together = dict(zip(self.stops, map(_readings, state["directions"]), strict=True))
        return [{**row, **together[int(row["step"])]} for row in state["rows"]]

    def _seed(self, seed: int, watch: Watch | None) -> Iterator[tuple[Record, Tensor | None]]:
        setting, clock = self.setting, _Clock()
        with clock("train"):
            run = start(
                self.task,
                setting.method,
                lr=setting.lr,
                hyperparameters=setting.hyperparameters,
                batch_size=setting.batch_size,
                seed=seed,
            )
        for stop in self.stops:
            with clock("train"), _tolerant(setting):
                train(run, stop - run.step, stop=_told(watch))
            with clock("measure"):
                if setting.on == "validation":
                    found, direction = _validated(self.task, run.model, stop), None
                else:
                    assessed = assess(run)
                    found, direction = assessed.record, assessed.errors.direction
            yield {"seed": seed, **found, **clock.seconds}, direction


@contextmanager
def _tolerant(setting: Setting) -> Iterator[None]:
    """A setting that is only looked at on validation data may diverge: the data show it."""
    if setting.on == "all":
        yield
        return
    with warnings.catch_warnings(), suppress(Diverged):
        warnings.filterwarnings("ignore", message=".*gradients with NaN or infinity")
        yield


def _stops(task: Task, setting: Setting) -> list[int]:
    """After how many steps to measure: with batches that grow, at no more samples than without."""
    growth = methods.get(setting.method).growth
    sampler = task.sampler(task.data(), setting.batch_size, growth=growth, seed=0)
    return [sampler.steps_within(steps * sampler.budget(0)) for steps in setting.steps]


def _readings(directions: Sequence[Tensor]) -> Record:
    """What only all seeds together can say: E_ca with the mean over seeds inside the norm."""
    if len(directions) < 2:
        return {}
    found = conflict_over_runs(directions)
    return {name: getattr(found, key) for key, name in READINGS.items()}


def _validated(task: Task, model: nn.Module, step: int) -> Record:
    """Losses and metrics on the validation data."""
    data = task.data().validation
    if data is None:
        raise BadValue(f"on='validation' needs a task with validation data, found {task.name}")
    losses = mean_losses(task, model, data)
    return {
        "step": step,
        **{f"validation_loss/{name}": value for name, value in losses.items()},
        **{f"validation/{name}": value for name, value in metrics(task, model, data).items()},
    }


class _Clock:
    """Seconds of wall clock, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds = {"train_seconds": 0.0, "measure_seconds": 0.0}

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        before = time.monotonic()
        yield
        self.seconds[f"{what}_seconds"] += time.monotonic() - before


def _shifted(watch: Watch | None, before: int, total: int) -> Watch | None:
    """What watches a part, for a watch that counts the whole."""
    return None if watch is None else lambda done, _: watch(before + done, total)


def _told(watch: Watch | None) -> Callable[[Any], bool] | None:
    """Tell the watch after each step; never stop."""
    return None if watch is None else lambda run: bool(watch(run.step, 0))
