"""Execute a run in a folder of its own: start it, go on with it, or return it if it is finished."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trimol._extras import require
from trimol._failures import BadValue
from trimol.errors._fulldata import NotFinite
from trimol.gradients import _reduce as reduce
from trimol.runs import store
from trimol.runs._entry import enter, within
from trimol.runs._journal import Journal, Watch
from trimol.runs._signals import Interrupted, Noted, noting_signals
from trimol.runs._storage import (
    StoreError,
    earlier,
    make_folder,
    read_tensors,
    understanding,
    write_tensors,
)
from trimol.runs.config import RunConfig, task_of
from trimol.runs.store import StoredRun
from trimol.tasks import Batch, Data, Task, load
from trimol.tasks.loading import blaming, source
from trimol.training import Diverged, Run, RunError, assess, metrics, scored, start, train
from trimol.training._checkpoint import restore, state
from trimol.training._kept import task_kept
from trimol.training._repeat import EARLY, check_repeats, check_resumed
from trimol.training._replicable import NotReplicable
from trimol.training._run_watch import watched
from trimol.training.assessment import scored_in_parts
from trimol.training.loop import decay, remedy, whereabouts
from trimol.training.records import Record

PARTS = 10  # of validation data, each left out once: how much do the samples matter?
Measured = tuple[Record, Tensor | None]  # and ∇F_S(λ − λ*_ρ)
Result = Measured | Diverged  # of a run whose losses or gradients over its data are not finite


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
        Interrupted: Ctrl-C or SIGTERM. A checkpoint was written; or the run is finished, if the
            signal came while it was measured for the last time: what comes after it must stop.

    Example:
        >>> import tempfile
        >>> from trimol.runs.config import configure
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = execute(configure("digits", "modo", steps=20, measure_every=5), folder)
        >>> run.metrics["step"].to_list()
        [0, 5, 10, 15, 20]
    """
    path = Path(folder)
    run_alone(config, path, resume=resume, watch=watch)
    return store.load(path)


def run_alone(config: RunConfig, path: Path, *, resume: bool, watch: Watch | None) -> None:
    """Do what is left of a run, by the ordinary loop."""
    where = whereabouts()
    with ExitStack() as stack:
        if _agreed(lambda: enter(config, path, resume, stack), where):
            return
        main = where.is_main_process
        journal = Journal(config, path if main else None, watch if main else None)
        with stating([journal]), contained(config):
            program = _Alone(task_for(config), config)
            execution = Execution(program, [journal], path / store.CHECKPOINT, writes=main)
            journal.begin()
            execution.run()
        where.wait_for_everyone()


@contextmanager
def stating(journals: Sequence[Journal]) -> Iterator[None]:
    """Have it on disk why runs stopped, if they did."""
    try:
        yield
    except NotReplicable:  # they go on, one by one
        raise
    except BaseException as error:
        for journal in journals:
            if journal.failed is None:
                journal.stop(error)
        raise


@contextmanager
def contained(config: RunConfig) -> Iterator[None]:
    """A task that ends the program ends its run instead, with one line that names the task."""
    try:
        with blaming(config.task, config.task_options):
            yield
    except SystemExit as error:  # of code that is not in the task's file
        said = f"SystemExit: {error}".removesuffix(": ")
        raise RunError(f"the task {config.task} left the program ({said})") from error


def task_for(config: RunConfig) -> Task:
    """The task of a run, if it is still the one that was configured.

    A user's own task may remember things, and read data that change: every run has its own.
    """
    if config.source != source(config.task, config.task_options):
        raise StoreError(f"{config.task} has changed since this run was configured")
    task = (task_of if config.source is None else load)(config.task, config.task_options)
    if config.hold_out:
        task = copy.copy(task)  # the one of `task_of` is for all runs
        task.hold_out = config.hold_out
    return task


def _agreed(decide: Callable[[], bool], where: Any) -> bool:
    """The main process decides; all others do, or raise, the same."""
    utils = require("accelerate.utils", extra="studies", purpose="running")
    outcome: list[bool | RunError] = [False]
    if where.is_main_process:
        try:
            outcome = [decide()]
        except RunError as error:
            outcome = [error]
    (decided,) = utils.broadcast_object_list(outcome)
    if isinstance(decided, RunError):
        raise decided
    return bool(decided)


class Program(Protocol):
    """What trains: one run, or several together, each at its place."""

    task: Task

    def data(self, place: int) -> Data:
        """A run's data."""

    @property
    def step(self) -> int:
        """The steps done."""

    @property
    def samples(self) -> int:
        """The training samples that each run took."""

    def train(self, steps: int, look: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Train on; look inside every step, at x_t and λ_{t+1}; ask after it whether to stop."""

    def measure(self, places: Sequence[int], rho: float) -> Sequence[Result]:
        """The records of these runs at the present x.

        No generator: in one, a task's StopIteration would come out as something else.
        """

    def module(self, place: int) -> nn.Module:
        """A run's model."""

    def diverged(self) -> Mapping[int, Diverged]:
        """The runs that have just diverged, where others go on."""

    @property
    def unrepeatable(self) -> str:
        """Why its steps do not repeat bit for bit, where they are known not to."""

    def state(self) -> dict[str, Any]:
        """What a program made alike needs to go on from here."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""


class Execution:
    """One process's work on a program: from wherever its checkpoint says, to the end."""

    def __init__(
        self,
        program: Program,
        journals: Sequence[Journal],
        checkpoint: Path,
        *,
        writes: bool = True,
        advice: str = "saved in {}: resume it to go on",
    ) -> None:
        self.program, self.journals, self.checkpoint = program, journals, checkpoint
        self.writes, self.advice = writes, advice.format(checkpoint.parent)
        self.config = journals[0].config
        self.began, self.measuring, self.stopping = time.monotonic(), 0.0, False
        for journal in journals:
            journal.saved = checkpoint.exists()

    def run(self) -> None:
        """Train, measure, write."""
        if self.checkpoint.exists():
            self._resume()
        steps = self.config.steps
        with noting_signals() as noted:
            while self.program.step < steps and any(self._places()):
                self._train(noted)
                self._save()
                if self.stopping and self.program.step < steps:
                    raise Interrupted(
                        f"interrupted at step {self.program.step} of {steps}, {self.advice}",
                        noted.code,
                    )
            self._finish()
            if self._told(noted):  # in its last moments: what comes after it must not begin
                raise Interrupted(
                    "interrupted when the run was just finished: the same command shows it",
                    noted.code,
                )

    def _places(self) -> Iterator[tuple[int, Journal]]:
        """The runs that go on: all that have not diverged and do not merely go along."""
        return ((place, j) for place, j in enumerate(self.journals) if not (j.failed or j.along))

    def _resume(self) -> None:
        kept = read_tensors(self.checkpoint)
        with understanding(self.checkpoint):
            self.program.restore(kept)
            step = within(self.program.step, self.config)
            self.began -= kept["seconds"]
            self.measuring = kept.get("measuring", 0.0)
            for place, said in kept.get("failed", {}).items():
                self.journals[place].failed = Diverged(said)
            tables = kept.get("tables", [None] * len(self.journals))
            for journal, own in zip(self.journals, tables, strict=True):
                journal.resume(step, own)
        for journal in self.journals:
            if journal.failed:
                journal.write_tables()  # if they are gone, nobody else does

    def _train(self, noted: Noted) -> None:
        """Up to the next checkpoint, the end, or a signal."""
        step, steps = self.program.step, self.config.steps
        every = self.config.checkpoint_every or steps
        left = min(every - step % every, steps - step)
        try:
            self.program.train(left, self._look, lambda: self._after(noted))
        except Diverged:
            for journal in self.journals:
                journal.write_tables()
            raise

    def _look(self) -> None:
        """Inside a step, at x_t and λ_{t+1}: measure if it is time to."""
        step, config = self.program.step, self.config
        for journal in self.journals:
            journal.begin()
        for place, error in self.program.diverged().items():
            self._fail(place, error)
        every = config.measure_every
        if (every and step % every == 0) or step in config.measure_at:
            self._measure()
            for _, journal in self._places():
                journal.write_stale()

    def _after(self, noted: Noted) -> bool:
        """Between steps: score if it is time to, and say whether to stop."""
        step, every = self.program.step, self.config.score_every
        for place, journal in self._places():
            if every and step % every == 0:
                journal.scores.append({"step": step, **self._scores(place)})
                journal.write_stale()
            journal.tell(step)
        self.stopping = self._told(noted)
        return self.stopping or not any(self._places())

    def _told(self, noted: Noted) -> bool:
        """Whether to stop. Processes are not signalled at one moment, but must stop at one step."""
        return bool(reduce.mean_small(torch.tensor([float(noted.signal is not None)])))

    def _measure(self) -> dict[int, Tensor | None]:
        """Measure the runs that go on, or look at them on validation data; the vectors of E_ca."""
        began, going = time.monotonic(), dict(self._places())
        if self.config.validation_only:
            measured: Sequence[Result] = self._validated(list(going))
        else:
            measured = self.program.measure(list(going), self.config.rho)
        directions = {}
        for (place, journal), result in zip(going.items(), measured, strict=True):
            if isinstance(result, Diverged):
                self._fail(place, result)
                continue
            record, directions[place] = result
            journal.measured(record, directions[place])
        self.measuring += time.monotonic() - began
        return directions

    def _fail(self, place: int, error: Diverged) -> None:
        """This run goes on no more; what it has measured is kept."""
        journal = self.journals[place]
        journal.failed = journal.failed or error
        journal.write_tables()
        journal.stop(journal.failed)

    def _validated(self, places: Sequence[int]) -> list[Measured]:
        """Runs on validation data; those that share them, share what is looked up of them."""
        program, known = self.program, None
        looked_up: Batch | None = None
        found: list[Measured] = []
        for place in places:
            data = program.data(place).validation
            if data is None:
                raise BadValue(
                    f"validation_only needs a task with validation data, found {program.task.name}"
                )
            if data is not known:
                with task_kept(program.task, None, data):
                    known, looked_up = data, tuple(tensor[:] for tensor in data)
            own = self._on_validation(place, looked_up)
            found.append(({"step": program.step, "samples": program.samples, **own}, None))
        return found

    def _on_validation(self, place: int, data: Batch | None) -> Record:
        """The losses and metrics on validation data, where there are any."""
        if data is None:
            return {}
        model, device = self.program.module(place), whereabouts().device
        losses, own = scored(self.program.task, model, data, device=device)
        scores: Record = {f"validation_loss/{name}": value for name, value in losses.items()}
        return scores | {f"validation/{metric}": value for metric, value in own.items()}

    def _scores(self, place: int) -> Record:
        """The metrics on validation data (with the losses), where there are any, and on test."""
        task, data, model = self.program.task, self.program.data(place), self.program.module(place)
        scores = self._on_validation(place, data.validation)
        own = metrics(task, model, data.test, device=whereabouts().device)
        return scores | {f"test/{metric}": value for metric, value in own.items()}

    def _save(self) -> None:
        """The vectors first: a checkpoint without those before it could not be resumed from."""
        for _, journal in self._places():
            journal.write_tables()
        failed = {p: str(j.failed) for p, j in enumerate(self.journals) if j.failed is not None}
        content = {
            **self.program.state(),
            "tables": [journal.state() for journal in self.journals],
            **({"failed": failed} if failed else {}),
            "seconds": time.monotonic() - self.began,
            "measuring": self.measuring,
        }
        for journal in self.journals:
            journal.saved = True  # before: what fails meanwhile may have left a checkpoint
        if self.writes:
            make_folder(self.checkpoint.parent)  # another group that ended may have removed it
            write_tensors(self.checkpoint, content, keep=earlier(self.checkpoint))

    def _finish(self) -> None:
        for _, journal in self._places():
            journal.begin()
        directions = self._measure()
        # Of runs that train together each has its share.
        took = {"seconds": time.monotonic() - self.began, "measuring": self.measuring}
        share = {name: seconds / len(self.journals) for name, seconds in took.items()}
        if self.writes:
            earlier(self.checkpoint).unlink(missing_ok=True)
        for place, direction in directions.items():
            model = self.program.module(place).state_dict()
            self.journals[place].finish(
                model=model,
                direction=direction,
                took=share,
                task=self.program.task,
                unrepeatable=self.program.unrepeatable,
                parts=self._parts(place),
            )

    def _parts(self, place: int) -> list[Record]:
        """Score a run that is only looked at on validation data without a tenth of them each."""
        data = self.program.data(place).validation
        if data is None or not self.config.validation_only:
            return []
        task, model = self.program.task, self.program.module(place)
        judged = {name for own in task.goals.values() for name in own} or {*task.objectives}
        each = scored_in_parts(task, model, data, PARTS, device=whereabouts().device)
        return [{name: value for name, value in own.items() if name in judged} for own in each]


class _Alone:
    """One run, by the ordinary loop."""

    def __init__(self, task: Task, config: RunConfig) -> None:
        self.task, self.config = task, config
        self.run = started(task, config)
        self.before: dict[str, str] | None = None  # what a checkpoint says of the next step

    def data(self, place: int) -> Data:
        return self.run.data

    @property
    def step(self) -> int:
        return self.run.step

    @property
    def samples(self) -> int:
        return self.run.samples

    def train(self, steps: int, look: Callable[[], None], stop: Callable[[], bool]) -> None:
        if self.before is not None:
            check_resumed(self.run, self.before)
            self.before = None
        train(self.run, steps, watch=lambda _: look(), stop=lambda _: self._checked(stop))

    def _checked(self, stop: Callable[[], bool]) -> bool:
        if self.step == EARLY:
            check_repeats(self.run)
        return stop()

    def measure(self, places: Sequence[int], rho: float) -> Sequence[Result]:
        try:
            assessment = assess(self.run, rho=rho)
        except NotFinite as error:
            raise unmeasured(self.step) from error
        looked = {} if self.run.watch is None else self.run.watch.summary.record
        return [(assessment.record | looked, assessment.errors.direction)]

    def module(self, place: int) -> nn.Module:
        return self.run.model

    def diverged(self) -> Mapping[int, Diverged]:
        return {}  # the loop raises it

    @property
    def unrepeatable(self) -> str:
        return self.run.unrepeatable

    def state(self) -> dict[str, Any]:
        return {"config": self.config.model_dump(mode="json"), "run": state(self.run)}

    def restore(self, state: dict[str, Any]) -> None:
        restore(self.run, state["run"])
        self.before = state["run"]["next"][self.run.where.process_index]


def unmeasured(step: int) -> Diverged:
    """What is said of a run that had finite losses on its batches, and has none on all data."""
    return Diverged(
        f"losses or gradients over all data, test data too, are not finite at step {step}: "
        f"{remedy(step)}"
    )


def started(task: Task, config: RunConfig) -> Run:
    """A run of the ordinary loop, at its start."""
    run = start(
        task,
        config.method,
        lr=config.lr,
        hyperparameters=config.hyperparameters,
        batch_size=config.batch_size,
        seed=config.seed,
        precision=config.precision,
        schedule=decay(config.schedule, config.steps),
        optimizer=config.optimizer,
    )
    if config.watch_every:
        run.watch = watched(run, config.watch_every, full_every=config.watch_full_every)
    return run
