"""Units of runs in local processes, several at a time."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import torch

from trimol._warnings import hearing, warn
from trimol.runs._dispatch import Dispatch
from trimol.runs._journal import Watch
from trimol.runs._signals import Interrupted
from trimol.runs._together import Unit
from trimol.runs._worker import PATIENCE, Leave, Teller, leave, outcome, prepare
from trimol.training import Diverged, RunError
from trimol.training._replicable import NotReplicable


def execute_here(left: Sequence[Unit], jobs: int, watch: Watch | None) -> dict[Path, Diverged]:
    """Execute units, so many at a time; those runs that diverged, by their folders."""
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


class _Pool(Dispatch):
    """Workers that are given the next unit when they are done with one."""

    def __init__(self, units: Sequence[Unit], jobs: int, watch: Watch | None) -> None:
        super().__init__(units, watch)
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
        threads = max(1, torch.get_num_threads() // jobs)
        self.workers = [_Worker(context, threads) for _ in range(jobs)]

    def begin(self) -> None:
        """Start the workers."""
        for worker in self.workers:
            worker.start()

    @property
    def busy(self) -> bool:
        """Whether a worker has not answered yet."""
        return any(worker.unit for worker in self.workers)

    def hand_out(self) -> None:
        """A unit to every worker without one."""
        for worker in self.workers:
            if worker.unit is None and self.left:
                worker.give(self.left.pop(0))

    def listen(self) -> None:
        """Hear every worker that has something to say."""
        ready = wait([worker.pipe for worker in self.workers], PATIENCE)
        for worker in self.workers:
            if worker.pipe in ready:
                self._understand(worker, worker.news())
            elif worker.gone:  # a process that it forked may still hold the pipe
                raise worker.dead()

    def _understand(self, worker: _Worker, news: Any) -> None:
        if isinstance(news, str):
            warn(news)
            return
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

    def end(self) -> None:
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


def _work(parent: Connection, threads: int) -> None:
    """What a worker does: unit after unit, until none is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent passes it on
    signal.signal(signal.SIGTERM, leave)
    prepare(threads)
    # Whoever is told to leave, or has lost its parent, has nobody to tell.
    with suppress(Interrupted, Leave, EOFError, OSError), hearing(parent.send):
        while (unit := parent.recv()) is not None:
            parent.send(outcome(unit, Teller(parent.send)))
