"""Execute a run in a folder of its own: start it, go on with it, or return it if it is finished.

The order of writes makes a kill at any moment harmless: the configuration comes first, a
checkpoint comes after the records and scores up to its step, the summary comes last. On resuming,
those of steps that the checkpoint has not done are dropped and measured again.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from trimol._extras import require
from trimol.gradients import _reduce as reduce
from trimol.runs import store
from trimol.runs._environment import environment, now
from trimol.runs._lock import locked
from trimol.runs._signals import Ears, Interrupted, listening
from trimol.runs._storage import (
    StoreError,
    make_folder,
    read_table,
    read_tensors,
    write_json,
    write_table,
    write_tensors,
)
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.tasks import load
from trimol.tasks.loading import blaming, source
from trimol.training import (
    Assessment,
    Diverged,
    Run,
    RunError,
    assess,
    mean_losses,
    metrics,
    start,
    train,
)
from trimol.training._checkpoint import restore, state
from trimol.training.loop import whereabouts
from trimol.training.records import Record

Watch = Callable[[RunConfig, int, Record | None], None]
# Between checkpoints, how old the tables on disk may be (for those who look on), in seconds.
STALE = 2.0


def execute(
    config: RunConfig, folder: Path | str, *, resume: bool = False, watch: Watch | None = None
) -> StoredRun:
    """Run a configuration in a folder, or return what is there if it is finished.

    Args:
        config: What to run.
        folder: The run's own folder; made if it is not there.
        resume: Whether to go on with an unfinished run. It then comes out as if it had never
            stopped, bit for bit, on the same machine with as many threads.
        watch: Called with the configuration and the number of steps done, after every step and
            after every measurement, then with its record.

    Raises:
        StoreError: The folder holds another run, an unfinished one (without ``resume``) or a
            damaged file, is in use by another process, or cannot be written.
        Diverged: A loss became NaN or infinite. What was measured before is on disk.
        Interrupted: Ctrl-C or SIGTERM. A checkpoint was written.

    Example:
        >>> import tempfile
        >>> from trimol.runs.config import configure
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = execute(configure("digits", "modo", steps=20, measure_every=5), folder)
        >>> run.metrics["step"].to_list()
        [0, 5, 10, 15, 20]
    """
    path = Path(folder)
    where = whereabouts()
    with ExitStack() as stack:
        if not _agreed(lambda: _enter(config, path, resume, stack), where):
            with blaming(config.task):
                _Execution(config, path, watch).run()
            where.wait_for_everyone()
    return store.load(path)


def _enter(config: RunConfig, path: Path, resume: bool, stack: ExitStack) -> bool:
    """Lock the folder and look into it. Whether there is nothing to do."""
    if finished(config, path):  # needs no lock, nor a folder that can be written
        return True
    make_folder(path)
    stack.enter_context(locked(path))
    if finished(config, path):  # by another process, just now
        return True
    if (path / store.CONFIG).exists() and not resume:
        raise StoreError(
            f"{path} holds this run unfinished: resume it (--resume), or choose another folder"
        )
    return False


def _agreed(decide: Callable[[], bool], where: Any) -> bool:
    """The main process decides; all others do, or raise, the same."""
    utils = require("accelerate.utils", extra="studies", purpose="running")
    outcome: list[bool | RunError] = [False]
    if where.is_main_process:
        try:
            outcome = [decide()]
        except RunError as error:
            outcome = [error]
    (found,) = utils.broadcast_object_list(outcome)
    if isinstance(found, RunError):
        raise found
    return bool(found)


def finished(config: RunConfig, path: Path) -> bool:
    """Whether a folder holds this run, finished. It must not hold another."""
    try:
        if not (path / store.CONFIG).exists():
            return False
    except OSError as error:
        raise StoreError(f"cannot look into {path}: {error.strerror}") from error
    there = store.read_config(path)
    if there.key != config.key:
        name = there.differences(config)[0]
        if name == "source":
            raise StoreError(
                f"{path} holds a run of {config.task} as it was before it changed: choose another "
                "folder"
            )
        raise StoreError(
            f"{path} holds another run ({name} is {getattr(there, name)!r} there, "
            f"{getattr(config, name)!r} here): choose another folder"
        )
    return (path / store.SUMMARY).exists()


class _Execution:
    """One process's work on one run."""

    def __init__(self, config: RunConfig, path: Path, watch: Watch | None) -> None:
        self.config, self.path, self.watch = config, path, watch
        self.records: list[Record] = []
        self.scores: list[Record] = []
        self.began = self.when = time.monotonic()  # when the tables were written last
        self.written: dict[str, int] = {}  # how many rows of each are on disk
        self.heard = False

    def run(self) -> None:
        """From wherever the folder says, to the end."""
        run = self._set_up()
        with listening() as ears:
            while run.step < self.config.steps:
                self._train(run, ears)
                self._save(run)
                if self.heard and run.step < self.config.steps:
                    raise Interrupted(
                        f"interrupted at step {run.step} of {self.config.steps}, saved in "
                        f"{self.path}: resume it to go on",
                        ears.code,
                    )
            self._finish(run)

    def _set_up(self) -> Run:
        """A new run, or one at the step of the checkpoint."""
        config = self.config
        if config.source != source(config.task):
            raise StoreError(f"{config.task} has changed since this run was configured")
        run = start(
            load(config.task, config.task_options),
            config.method,
            lr=config.lr,
            hyperparameters=config.hyperparameters,
            batch_size=config.batch_size,
            seed=config.seed,
            precision=config.precision,
        )
        self.main = run.where.is_main_process
        if not (self.path / store.CONFIG).exists():
            self._write(write_json, store.CONFIG, config.model_dump(mode="json"))
        if not (self.path / store.ENVIRONMENT).exists():
            self._write(write_json, store.ENVIRONMENT, environment())
        self._resume(run)
        return run

    def _resume(self, run: Run) -> None:
        checkpoint = self.path / store.CHECKPOINT
        if not checkpoint.exists():
            return
        found = read_tensors(checkpoint)
        restore(run, found["run"])
        self.began -= found["seconds"]
        # A step is measured before x moves in it, and scored when it has.
        self.records = [row for row in self._kept(store.METRICS) if row["step"] < run.step]
        self.scores = [row for row in self._kept(store.SCORES) if row["step"] <= run.step]

    def _kept(self, name: str) -> list[Record]:
        """The rows of a table that is on disk; none if it is not."""
        file = self.path / name
        return store.records(read_table(file)) if file.exists() else []

    def _train(self, run: Run, ears: Ears) -> None:
        """Up to the next checkpoint, the end, or a signal."""
        every = self.config.checkpoint_every or self.config.steps
        left = min(every - run.step % every, self.config.steps - run.step)
        try:
            train(run, left, watch=self._look, stop=lambda run: self._after(run, ears))
        except Diverged:
            self._write_tables()
            raise

    def _look(self, run: Run) -> None:
        """Inside a step, at x_t and λ_{t+1}: measure if it is time to."""
        every = self.config.measure_every
        if every and run.step % every == 0:
            self._measure(run)
            self._write_stale()

    def _after(self, run: Run, ears: Ears) -> bool:
        """Between steps: score if it is time to, and say whether to stop."""
        every = self.config.score_every
        if every and run.step % every == 0:
            self.scores.append(_scores(run))
            self._write_stale()
        self._tell(run.step, None)
        # Processes are not signalled at the same moment, but must stop at the same step.
        self.heard = bool(reduce.mean_small(torch.tensor([float(ears.heard is not None)])))
        return self.heard

    def _measure(self, run: Run) -> Assessment:
        found = assess(run, rho=self.config.rho)
        self.records.append(found.record)
        self._tell(run.step, found.record)
        return found

    def _save(self, run: Run) -> None:
        """The tables first: a checkpoint without the rows before it could not be resumed from."""
        self._write_tables()
        content = {"run": state(run), "seconds": time.monotonic() - self.began}
        self._write(write_tensors, store.CHECKPOINT, content)

    def _finish(self, run: Run) -> None:
        found = self._measure(run)
        self._write_tables()
        self._write(write_tensors, store.MODEL, run.model.state_dict())
        self._write(write_tensors, store.DIRECTION, found.errors.direction)
        summary = {
            "record": {k: v if math.isfinite(v) else None for k, v in found.record.items()},
            "steps": run.step,
            "samples": run.samples,
            "seconds": round(time.monotonic() - self.began, 3),
            "finished": now(),
        }
        self._write(write_json, store.SUMMARY, summary)

    def _write_stale(self) -> None:
        if time.monotonic() - self.when > STALE:
            self._write_tables()

    def _write_tables(self) -> None:
        for name, rows in ((store.METRICS, self.records), (store.SCORES, self.scores)):
            if len(rows) > self.written.get(name, 0):
                self._write(write_table, name, store.table(rows))
            self.written[name] = len(rows)
        self.when = time.monotonic()

    def _write(self, how: Callable[[Path, Any], None], name: str, content: Any) -> None:
        if self.main:
            how(self.path / name, content)

    def _tell(self, step: int, record: Record | None) -> None:
        if self.watch is not None and self.main:
            self.watch(self.config, step, record)


def _scores(run: Run) -> Record:
    """The task's metrics on validation data (with its losses), where there are any, and on test."""
    held_out, device = run.data.validation, run.where.device
    found: Record = {"step": run.step}
    if held_out is not None:
        losses = mean_losses(run.task, run.model, held_out, device=device)
        found |= {f"validation_loss/{name}": value for name, value in losses.items()}
    for name, data in (("validation", held_out), ("test", run.data.test)):
        if data is not None:
            own = metrics(run.task, run.model, data, device=device)
            found |= {f"{name}/{metric}": value for metric, value in own.items()}
    return found
