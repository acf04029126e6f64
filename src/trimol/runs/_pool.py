"""Many runs: together where they are alike; one after another, or several processes at a time."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import torch

from trimol._checks import whole_number
from trimol.runs import store
from trimol.runs._entry import failed_before, finished, refuse_another
from trimol.runs._execute import run_alone
from trimol.runs._journal import Watch
from trimol.runs._signals import Interrupted, noting_signals
from trimol.runs._together import Job, Unit, execute_together, units
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.training import Diverged, Record, RunError
from trimol.training._replicable import NotReplicable

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
PATIENCE = 0.1  # seconds between looks at signals and at workers that died


def execute_all(
    runs: Sequence[Job],
    *,
    jobs: int = 1,
    watch: Watch | None = None,
    together: bool = True,
    retry: bool = False,
    say: Callable[[str], None] | None = None,
) -> list[StoredRun | Diverged]:
    """Execute runs, going on with those that are unfinished and skipping those that are finished.

    Runs that differ only in seed, step size or numbers of the method train together, where the
    model is small and task and method allow it (:mod:`trimol.runs._together`). Each has its folder
    all the same, and equals, to rounding, what `execute` makes of it.

    Args:
        runs: Configurations and their folders.
        jobs: How many to run at a time. More than one: in processes of their own, with the
            threads of this one shared out between them.
        watch: As for `execute`; with several processes not every step is told.
        together: Whether runs may train together. Apart, each is what `execute` makes of it to the
            last bit, also where training amplifies what rounding leaves.
        retry: Whether to go on also with runs that diverged before. The same run diverges again;
            data that are not part of a configuration may have changed.
        say: Told, in a line each, of runs that failed before for another reason: these are tried
            again.

    Returns:
        The runs in their order; where one diverged, that it did.

    Raises:
        RunError: Anything else that stops a run stops all. What was done is on disk.
    """
    jobs = whole_number("jobs", jobs, least=1)
    done: dict[Path, StoredRun | Diverged] = {}
    pending: dict[Path, RunConfig] = {}
    asked: dict[Path, RunConfig] = {}
    for config, folder in runs:
        if folder in asked:
            refuse_another(asked[folder], config, folder)
        else:
            asked[folder], there = config, finished(config, folder)
            before = failed_before(config, folder) if there is None else None
            if there is not None:
                done[folder] = there
            elif before is not None and before.diverged and not retry:
                done[folder] = Diverged(before.reason)
            else:
                pending[folder] = config
                if before is not None and say is not None:
                    say(f"{folder} failed before ({before.reason}): it is tried again")
    unfinished = [(config, folder) for folder, config in pending.items()]
    left = units(runs, unfinished) if together else [Unit((job,)) for job in unfinished]
    while left:
        if min(jobs, len(left)) > 1:
            done |= _pooled(left, jobs, watch)
            break
        unit, *left = left
        try:
            done |= execute_unit(unit, watch)
        except NotReplicable:
            left = unit.apart() + left
    return [done[folder] if folder in done else store.load(folder) for _, folder in runs]


def cores() -> int:
    """The cores that this process may use: how many runs at a time to execute by default."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def execute_unit(unit: Unit, watch: Watch | None) -> dict[Path, Diverged]:
    """Do what is left of one run, or of several together: those that diverged, by their folders."""
    if unit.file is not None:
        return execute_together(unit, watch)
    ((config, folder),) = unit.jobs
    try:
        run_alone(config, folder, resume=True, watch=watch)
    except Diverged as error:
        return {folder: error}
    return {}


def _pooled(left: Sequence[Unit], jobs: int, watch: Watch | None) -> dict[Path, Diverged]:
    if multiprocessing.parent_process() is not None:
        raise RunError(
            "several runs at a time need processes, and this is one already: in a script, put what "
            'starts the runs under if __name__ == "__main__":'
        )
    return _Pool(left, min(jobs, len(left)), watch).run()


class _Worker:
    """A process that executes one unit after another, and a pipe to it.

    The pipe is its own: one that is killed while it speaks holds no lock that others wait for.
    """

    def __init__(self, context: SpawnContext, threads: int) -> None:
        self.unit: Unit | None = None  # what it was given and has not answered yet
        self.pipe, self.far_end = context.Pipe()
        self.process = context.Process(target=_work, args=(self.far_end, threads), daemon=True)

    def start(self) -> None:
        """Start it; its end of the pipe is left to it, so that the pipe ends with it."""
        self.process.start()
        self.far_end.close()

    def give(self, unit: Unit) -> None:
        """Let it execute a unit."""
        self.unit = unit
        with self._alive():
            self.pipe.send(unit)

    def news(self) -> Any:
        """What it says next: it must have said something, or have died."""
        with self._alive():
            return self.pipe.recv()

    @property
    def gone(self) -> bool:
        """Whether it has died, with nothing left to be read."""
        return self.process.exitcode is not None and not self.pipe.poll()

    def drain(self) -> None:
        """Read what nobody wants to know: it must not wait for a reader."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                self.pipe.recv_bytes()

    def dead(self) -> RunError:
        """That it died, with what it was working on."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}; out of memory?"
        runs = ", ".join(map(str, self.unit.folders)) if self.unit else "no run yet"
        return RunError(
            f"a process that ran the study died ({how}) at {runs}: run the same command again to "
            "go on"
        )

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            raise self.dead() from None


class _Pool:
    """Workers that are given the next unit, the longest first, when they are done with one."""

    def __init__(self, units: Sequence[Unit], jobs: int, watch: Watch | None) -> None:
        self.watch = watch
        self.left = sorted(units, key=lambda unit: unit.steps, reverse=True)
        self.diverged: dict[Path, Diverged] = {}
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
        threads = max(1, torch.get_num_threads() // jobs)
        self.workers = [_Worker(context, threads) for _ in range(jobs)]

    def run(self) -> dict[Path, Diverged]:
        """Those that diverged, by their folders."""
        with noting_signals() as noted:
            for worker in self.workers:
                worker.start()
            try:
                while self.left or any(worker.unit for worker in self.workers):
                    if noted.signal is not None:
                        raise Interrupted(
                            "interrupted; every run is saved where it was: run the same command "
                            "again to go on",
                            noted.code,
                        )
                    self._hand_out()
                    self._listen()
            finally:
                self._end()
        return self.diverged

    def _hand_out(self) -> None:
        for worker in self.workers:
            if worker.unit is None and self.left:
                worker.give(self.left.pop(0))

    def _listen(self) -> None:
        ready = wait([worker.pipe for worker in self.workers], PATIENCE)
        for worker in self.workers:
            if worker.pipe in ready:
                self._understand(worker, worker.news())
            elif worker.gone:  # a process that it forked may still hold the pipe
                raise worker.dead()

    def _understand(self, worker: _Worker, news: Any) -> None:
        if isinstance(news, tuple):
            if self.watch is not None:
                self.watch(*news)
            return
        unit, worker.unit = worker.unit, None
        if isinstance(news, NotReplicable):
            assert unit is not None
            self.left += unit.apart()
        elif isinstance(news, Exception):
            raise news
        else:
            self.diverged |= news

    def _end(self) -> None:
        """Ask workers that are still busy to save and stop, and wait until they have."""
        try:
            for worker in self.workers:
                if worker.unit is not None and worker.process.is_alive():
                    worker.process.terminate()
                with suppress(OSError):
                    worker.pipe.send(None)
            for worker in self.workers:
                while worker.process.is_alive():
                    worker.drain()  # it ends only when what it said is read
                    worker.process.join(PATIENCE)
        except KeyboardInterrupt:  # asked a second time: at once
            for worker in self.workers:
                worker.process.kill()
            raise


class _Leave(KeyboardInterrupt):
    """A worker is told to leave, while no run of it listens for signals."""


def _work(parent: Connection, threads: int) -> None:
    """What a worker does: unit after unit, until none is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent passes it on
    signal.signal(signal.SIGTERM, _leave)  # between runs; inside one, `Execution` notes it
    torch.set_num_threads(threads)
    _keep_memory()
    # Whoever is told to leave, or has lost its parent, has nobody to tell.
    with suppress(Interrupted, _Leave, EOFError, OSError):
        while (unit := parent.recv()) is not None:
            parent.send(outcome(unit, parent))


def _leave(number: int, frame: Any) -> None:
    raise _Leave


def outcome(unit: Unit, parent: Connection) -> dict[Path, Diverged] | Exception:
    """Those of a unit that diverged, or the error that stopped it."""
    try:
        return execute_unit(unit, _Teller(parent))
    except (Interrupted, _Leave):
        raise
    except KeyboardInterrupt as stop:  # Ctrl-C is ignored here: the task's own
        return RunError(str(stop) or "a task raised KeyboardInterrupt")
    except Exception as error:  # noqa: BLE001 (the parent raises it)
        return _portable(error)


class _Teller:
    """Tells the parent of every record, and of steps a few times a second."""

    def __init__(self, parent: Connection) -> None:
        self.parent = parent
        self.told: dict[str, float] = {}

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        now = time.monotonic()
        early = now - self.told.get(config.key, -PATIENCE) < PATIENCE
        if record is None and early and step < config.steps:
            return
        self.told[config.key] = now
        try:
            self.parent.send((config, step, record))
        except OSError:
            raise Interrupted("the process that started this one is gone") from None


def _keep_memory() -> None:
    """Let freed memory be taken again, instead of giving it back to the system at every step.

    Gradients of megabytes come and go with each step; fetching their pages anew took a tenth of
    the time of small networks. Only the GNU C library is asked; nothing else changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt  # type: ignore[arg-type, unused-ignore]
    except (OSError, TypeError, AttributeError):  # another system, or another library
        return
    else:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _portable(error: Exception) -> Exception:
    """An error that another process can raise, with where it came from."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (whatever an error's own pickling may raise)
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
