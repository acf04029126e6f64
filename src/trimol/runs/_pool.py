"""Many runs, one after another or several at a time, each in a process of its own."""

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
from trimol.runs._execute import Watch, execute, finished
from trimol.runs._signals import Interrupted, listening
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.training import Diverged, Record, RunError

Job = tuple[RunConfig, Path]
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
PATIENCE = 0.1  # seconds between looks at signals and at workers that died


def execute_all(
    runs: Sequence[Job], *, jobs: int = 1, watch: Watch | None = None
) -> list[StoredRun | Diverged]:
    """Execute runs, going on with those that are unfinished and skipping those that are finished.

    Args:
        runs: Configurations and their folders.
        jobs: How many to run at a time. More than one: in processes of their own, with the
            threads of this one shared out between them.
        watch: As for `execute`; with several processes not every step is told.

    Returns:
        The runs in their order; where one diverged, that it did.

    Raises:
        RunError: Anything else that stops a run stops all. What was done is on disk.
    """
    pending = [(config, folder) for config, folder in runs if not finished(config, folder)]
    jobs = min(whole_number("jobs", jobs, least=1), len(pending))
    if jobs > 1 and multiprocessing.parent_process() is not None:
        raise RunError(
            "several runs at a time need processes, and this is one already: in a script, put what "
            'starts the runs under if __name__ == "__main__":'
        )
    if jobs < 2:
        return [_one(config, folder, watch) for config, folder in runs]
    done = dict(
        zip((folder for _, folder in pending), _Pool(pending, jobs, watch).run(), strict=True)
    )
    return [done[folder] if folder in done else store.load(folder) for _, folder in runs]


def cores() -> int:
    """The cores that this process may use: how many runs at a time to execute by default."""
    return len(os.sched_getaffinity(0))


def _one(config: RunConfig, folder: Path, watch: Watch | None) -> StoredRun | Diverged:
    try:
        return execute(config, folder, resume=True, watch=watch)
    except Diverged as error:
        return error


class _Pool:
    """Worker processes that take the next run when they are done with one."""

    def __init__(self, runs: Sequence[Job], jobs: int, watch: Watch | None) -> None:
        self.runs, self.watch = runs, watch
        self.found: dict[int, StoredRun | Diverged] = {}
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
        self.news: Any = context.Queue()
        self.left: Any = context.Queue()
        for number in range(len(runs)):
            self.left.put(number)
        for _ in range(jobs):
            self.left.put(None)
        threads = max(1, torch.get_num_threads() // jobs)
        arguments = (list(runs), self.left, self.news, threads)
        self.workers: list[SpawnProcess] = [
            context.Process(target=_work, args=arguments, daemon=True) for _ in range(jobs)
        ]

    def run(self) -> list[StoredRun | Diverged]:
        with listening() as ears:
            for worker in self.workers:
                worker.start()
            try:
                while len(self.found) < len(self.runs):
                    if ears.heard is not None:
                        raise Interrupted(
                            "interrupted; every run is saved where it was: run the same command "
                            "again to go on",
                            ears.code,
                        )
                    self._listen()
            finally:
                self._end()
        return [self.found[number] for number in range(len(self.runs))]

    def _listen(self) -> None:
        try:
            number, step, content = self.news.get(timeout=PATIENCE)
        except queue.Empty:
            self._check_alive()
            return
        if isinstance(content, Exception) and not isinstance(content, Diverged):
            raise content
        if isinstance(content, Diverged):
            self.found[number] = content
        elif content is True:
            self.found[number] = store.load(self.runs[number][1])
        elif self.watch is not None:
            self.watch(self.runs[number][0], step, content)

    def _check_alive(self) -> None:
        for worker in self.workers:
            if worker.exitcode not in (None, 0) and self.news.empty():
                raise RunError(
                    f"a process that ran the study died (exit code {worker.exitcode}; out of "
                    "memory?): run the same command again to go on"
                )

    def _end(self) -> None:
        """Ask workers that are still busy to save and stop, and wait until they have."""
        if len(self.found) < len(self.runs):
            for worker in self.workers:
                if worker.is_alive():
                    worker.terminate()
        for worker in self.workers:
            while worker.is_alive():
                _drain(self.news)  # a worker ends only when what it said is read
                worker.join(PATIENCE)


def _drain(news: Any) -> None:
    try:
        while True:
            news.get_nowait()
    except queue.Empty:
        return


def _work(runs: list[Job], left: Any, news: Any, threads: int) -> None:
    """What a worker does: run after run, until none is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent passes it on
    signal.signal(signal.SIGTERM, _leave)  # between runs; inside one, `execute` listens
    torch.set_num_threads(threads)
    _keep_memory()
    try:
        _work_off(runs, left, news)
    except (Interrupted, SystemExit):
        # Nobody reads any more. What is not sent yet must not be waited for: a process that was
        # killed while it sent holds the queue's lock for ever.
        news.cancel_join_thread()


def _keep_memory() -> None:
    """Let freed memory be taken again, instead of giving it back to the system at every step.

    Gradients of megabytes come and go with each step; fetching their pages anew took a tenth of
    the time of small networks. Only the GNU C library is asked; nothing else changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _work_off(runs: list[Job], left: Any, news: Any) -> None:
    while (number := left.get()) is not None:
        config, folder = runs[number]
        try:
            execute(config, folder, resume=True, watch=_Teller(number, news))
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            news.put((number, 0, _portable(error)))
        else:
            news.put((number, 0, True))


class _Teller:
    """Tells the parent of every record, and of steps a few times a second."""

    def __init__(self, number: int, news: Any) -> None:
        self.number, self.news = number, news
        self.parent, self.told = os.getppid(), 0.0

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        now = time.monotonic()
        if record is None and now - self.told < PATIENCE and step < config.steps:
            return
        if os.getppid() != self.parent:
            raise Interrupted("the process that started this one is gone")
        self.told = now
        self.news.put((self.number, step, record))


def _portable(error: Exception) -> Exception:
    """An error that another process can raise, with where it came from."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (whatever an error's own pickling may raise)
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
