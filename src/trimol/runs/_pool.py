"""Many runs: together where they are alike; one after another, or several processes at a time."""

import ctypes
import multiprocessing
import os
import pickle
import queue
import signal
import time
import traceback
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from trimol._checks import whole_number
from trimol.runs import store
from trimol.runs._execute import finished, refuse_another, run_alone
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
    runs: Sequence[Job], *, jobs: int = 1, watch: Watch | None = None, together: bool = True
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
            if there is None:
                pending[folder] = config
            else:
                done[folder] = store.load(folder, there)
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


class _Pool:
    """Worker processes that take the next unit, the longest first, when they are done with one."""

    def __init__(self, units: Sequence[Unit], jobs: int, watch: Watch | None) -> None:
        self.jobs, self.watch = jobs, watch
        self.units = sorted(units, key=lambda unit: unit.steps, reverse=True)
        self.ended: set[int] = set()
        self.diverged: dict[Path, Diverged] = {}
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
        self.news: Any = context.Queue()
        self.left: Any = context.Queue()
        for place in enumerate(self.units):
            self.left.put(place)
        threads = max(1, torch.get_num_threads() // jobs)
        arguments = (self.left, self.news, threads)
        self.workers: list[SpawnProcess] = [
            context.Process(target=_work, args=arguments, daemon=True) for _ in range(jobs)
        ]

    def run(self) -> dict[Path, Diverged]:
        """Those that diverged, by their folders."""
        with noting_signals() as noted:
            for worker in self.workers:
                worker.start()
            try:
                while len(self.ended) < len(self.units):
                    if noted.signal is not None:
                        raise Interrupted(
                            "interrupted; every run is saved where it was: run the same command "
                            "again to go on",
                            noted.code,
                        )
                    self._next_news()
            finally:
                self._end()
        return self.diverged

    def _next_news(self) -> None:
        try:
            number, news = self.news.get(timeout=PATIENCE)
        except queue.Empty:
            self._check_alive()
            return
        if isinstance(news, NotReplicable):
            self.ended.add(number)
            for unit in self.units[number].apart():
                self.left.put((len(self.units), unit))
                self.units.append(unit)
        elif isinstance(news, Exception):
            raise news
        elif isinstance(news, dict):
            self.ended.add(number)
            self.diverged |= news
        elif self.watch is not None:
            self.watch(*news)

    def _check_alive(self) -> None:
        for worker in self.workers:
            if worker.exitcode is not None and self.news.empty():  # none is told to end yet
                raise RunError(
                    f"a process that ran the study died (exit code {worker.exitcode}; out of "
                    "memory?): run the same command again to go on"
                )

    def _end(self) -> None:
        """Ask workers that are still busy to save and stop, and wait until they have."""
        if len(self.ended) < len(self.units):
            for worker in self.workers:
                if worker.is_alive():
                    worker.terminate()
        for _ in self.workers:
            self.left.put(None)
        for worker in self.workers:
            while worker.is_alive():
                _drain(self.news)  # a worker ends only when what it said is read
                worker.join(PATIENCE)
        self.left.cancel_join_thread()  # nobody takes what is left


def _drain(news: Any) -> None:
    try:
        while True:
            news.get_nowait()
    except queue.Empty:
        return


def _work(left: Any, news: Any, threads: int) -> None:
    """What a worker does: unit after unit, until none is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent passes it on
    signal.signal(signal.SIGTERM, _leave)  # between runs; inside one, `Execution` notes it
    torch.set_num_threads(threads)
    _keep_memory()
    try:
        _work_off(left, news)
    except (Interrupted, SystemExit):
        # Nobody reads any more. What is not sent yet must not be waited for: a process that was
        # killed while it sent holds the queue's lock for ever.
        news.cancel_join_thread()


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


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _work_off(left: Any, news: Any) -> None:
    while (taken := left.get()) is not None:
        number, unit = taken
        try:
            news.put((number, execute_unit(unit, _Teller(number, news))))
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            news.put((number, _portable(error)))


class _Teller:
    """Tells the parent of every record, and of steps a few times a second."""

    def __init__(self, number: int, news: Any) -> None:
        self.number, self.news = number, news
        self.parent = os.getppid()
        self.told: dict[str, float] = {}

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        now = time.monotonic()
        early = now - self.told.get(config.key, -PATIENCE) < PATIENCE
        if record is None and early and step < config.steps:
            return
        if os.getppid() != self.parent:
            raise Interrupted("the process that started this one is gone")
        self.told[config.key] = now
        self.news.put((self.number, (config, step, record)))


def _portable(error: Exception) -> Exception:
    """An error that another process can raise, with where it came from."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (whatever an error's own pickling may raise)
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
