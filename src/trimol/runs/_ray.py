"""Units of runs on a Ray cluster: each is one Ray task that works in its ordinary folders.

The folders are on storage that all nodes share, and hold all there is of a run. A task that was
lost with its worker or node is handed out again, and goes on from the checkpoint in the folder.
What tasks have to tell meanwhile goes over a board (`trimol.runs._board`).
"""

import hashlib
import io
import os
import platform
import re
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch

from trimol._failures import RunError
from trimol._files import read
from trimol._terminal import clean
from trimol._version import __version__
from trimol._warnings import say
from trimol.runs import store
from trimol.runs._board import Desk, board_of
from trimol.runs._cluster import connect
from trimol.runs._dispatch import Dispatch
from trimol.runs._journal import Watch
from trimol.runs._lock import FILE as LOCK
from trimol.runs._lock import InUse
from trimol.runs._signals import Interrupted
from trimol.runs._storage import make_folder, write
from trimol.runs._together import Unit
from trimol.runs._worker import PATIENCE, Teller, leave, outcome, prepare
from trimol.tasks.loading import file_of
from trimol.training import Diverged
from trimol.training._replicable import NotReplicable

IN_FLIGHT = 1000  # tasks at most that Ray knows of
LOSSES = 3  # so often a unit may be lost with its worker
# Seconds. A file server lets go of a lost machine's locks when their lease ends: 90 with NFS 4.
LOCKS_LEFT, WAIT = 180.0, 1.0
LATE = 60.0  # how old what a file server says may be
TOLD, ARRIVAL = 0.5, 5.0  # between steps that are told; until the last news must have arrived
# What decides numbers, beside versions: the data, and which instructions are used.
_DECISIVE = ("TRIMOL_", "ONEDNN_", "DNNL_", "MKL_", "ATEN_")
Outcome = dict[Path, Diverged] | Exception


def execute_on(
    on: str, units: Sequence[Unit], watch: Watch | None, *, cpus: int, most: int | None = None
) -> dict[Path, Diverged]:
    """Execute units on a cluster; those runs that diverged, by their folders.

    Args:
        on: Which cluster (`connect`).
        units: What to execute.
        watch: Told of steps, now and then, and of records.
        cpus: How many a cluster has that is started for this.
        most: How many at a time; None for as many as there are CPUs.
    """
    folders = {folder.absolute(): folder for unit in units for folder in unit.folders}
    ray = connect(on, cpus)
    with _mark(next(iter(folders)).parent) as mark:
        terms = Terms.here([mark, *_task_files(units)])
        launch = _Launch(ray, [_absolute(unit) for unit in units], terms, watch, most or IN_FLIGHT)
        return {folders[folder]: error for folder, error in launch.run().items()}


@dataclass(frozen=True)
class Terms:
    """What a worker must have in common with the process that started the study.

    Attributes:
        versions: Of what decides numbers.
        environment: Variables that do, too.
        seen: Files and folders that must be there.
        folder: Where the study was started.
    """

    versions: dict[str, str]
    environment: dict[str, str]
    seen: tuple[Path, ...]
    folder: str

    @classmethod
    def here(cls, seen: Sequence[Path]) -> "Terms":
        """Those of this process, and paths that its workers must see."""
        own = {name: v for name, v in os.environ.items() if name.startswith(_DECISIVE)}
        if data := own.get("TRIMOL_DATA"):
            own["TRIMOL_DATA"] = os.path.abspath(data)
            seen = [*seen, *([Path(own["TRIMOL_DATA"])] if os.path.exists(data) else [])]
        return cls(versions(), own, tuple(seen), os.getcwd())

    def adopt(self) -> None:
        """Make them those of this process.

        Raises:
            RunError: That cannot be.
        """
        node = f"the Ray node {platform.node()}"
        for name, own in versions().items():
            if own != self.versions.get(name):
                raise RunError(
                    f"{node} has {name} {own}, and the study was started with "
                    f"{self.versions.get(name)}: its results could differ; install the same there"
                )
        for path in self.seen:
            if not path.exists():
                what = path.parent if path.name.startswith(_MARK) else path
                raise RunError(f"{node} does not see {what}: it must be on storage that all share")
        os.environ.update(self.environment)
        if os.path.isdir(self.folder):  # tasks may read files by names relative to it
            os.chdir(self.folder)


@cache
def versions() -> dict[str, str]:
    """What must be the same for the same bits; of this package also the sources."""
    sources, home = hashlib.sha256(), Path(__file__).parents[1]
    for file in sorted(home.rglob("*.py")):
        sources.update(read(file))
    return {
        "Python": platform.python_version(),
        "trimol": f"{__version__} (sources {sources.hexdigest()[:8]})",
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }


_MARK = ".ray-"


@contextmanager
def _mark(folder: Path) -> Iterator[Path]:
    """A file by which workers know that they see this very folder, not one of their own.

    Its name is new each time: file servers are slow to say of a name that it is there by now.
    """
    make_folder(folder)
    mark = folder / f"{_MARK}{secrets.token_hex(8)}"
    write(mark, b"")
    try:
        yield mark
    finally:
        with suppress(OSError):  # it does no harm
            mark.unlink()


def _task_files(units: Sequence[Unit]) -> list[Path]:
    """The files of users' own tasks."""
    names = {config.task for unit in units for config, _ in unit.jobs}
    return sorted(file.absolute() for name in names if (file := file_of(name)) is not None)


def _absolute(unit: Unit) -> Unit:
    jobs = tuple((config, folder.absolute()) for config, folder in unit.jobs)
    return replace(unit, jobs=jobs, file=None if unit.file is None else unit.file.absolute())


class _Launch(Dispatch):
    """Units that are handed out to a cluster."""

    def __init__(
        self, ray: Any, units: Sequence[Unit], terms: Terms, watch: Watch | None, most: int
    ) -> None:
        super().__init__(units, watch)
        self.ray, self.terms, self.most = ray, terms, most
        self.going: dict[Any, Unit] = {}  # by the reference to a task's outcome
        self.losses: Counter[Path] = Counter()  # by a unit's first folder
        # Whether a GPU is used is decided here, as without Ray.
        needs = {"num_cpus": 1, "num_gpus": int(torch.cuda.is_available())}
        self.task = ray.remote(max_retries=0, **needs)(perform)
        self.desk = Desk(board_of(ray), secrets.token_hex(8))

    @property
    def busy(self) -> bool:
        """Whether a task has not answered yet."""
        return bool(self.going)

    def hand_out(self) -> None:
        """As many tasks as there may be at a time."""
        while self.left and len(self.going) < self.most:
            unit = self.left.pop(0)
            again = self.losses[unit.folders[0]] > 0
            self.going[self.task.remote(unit, self.terms, self.desk, again)] = unit

    def listen(self) -> None:
        """Take what tasks say, and what has become of them."""
        ready, _ = self.ray.wait(list(self.going), timeout=PATIENCE)
        for news in self.ray.get(self.desk.take()):
            if isinstance(news, str):
                print(clean(news), file=sys.stderr)
            elif self.watch is not None:
                self.watch(*news)
        for reference in ready:
            self._understand(self.going.pop(reference), self._outcome(reference))

    def _outcome(self, reference: Any) -> Outcome:
        errors = self.ray.exceptions
        try:
            found: Outcome = self.ray.get(reference)
        except (errors.RayTaskError, errors.RaySystemError) as error:  # `perform` never began
            said = str(error).strip().splitlines()[-1]
            return RunError(f"a Ray worker cannot begin (is trimol installed there?): {said}")
        except errors.RayError as error:
            return Interrupted(re.split(r"[.\n]", str(error).strip())[0] or type(error).__name__)
        return found

    def _understand(self, unit: Unit, found: Outcome) -> None:
        if isinstance(found, NotReplicable):
            self.left += unit.apart()
        elif isinstance(found, Interrupted):  # not by us
            self._lost(unit, str(found))
        elif isinstance(found, Exception):
            raise found
        else:
            self.diverged |= found
            for folder in set(unit.folders) - found.keys():
                _await(folder)

    def _lost(self, unit: Unit, why: str) -> None:
        """A worker ended before its work was done: another goes on with it."""
        first = unit.folders[0]
        self.losses[first] += 1
        if self.losses[first] > LOSSES:
            raise RunError(
                f"{LOSSES + 1} Ray workers ended at {first} ({why}; out of memory?): run the same "
                "command again to go on"
            )
        say(f"a Ray worker was lost at {first} ({why}): another goes on with it")
        self.left.insert(0, unit)

    def end(self) -> None:
        """Ask tasks that are still at work to save and stop, and wait until they have."""
        try:
            for reference in self.going:
                self.ray.cancel(reference)
            waiting = list(self.going)
            while waiting:
                _, waiting = self.ray.wait(waiting, num_returns=len(waiting), timeout=PATIENCE)
        except KeyboardInterrupt:  # asked a second time: at once
            for reference in self.going:
                self.ray.cancel(reference, force=True)
            raise


def _await(folder: Path) -> None:
    """Wait until a run that another machine finished is seen here to be so."""
    until = time.monotonic() + LATE
    while store.SUMMARY not in os.listdir(folder):  # a listing is never an old one
        if time.monotonic() > until:
            raise RunError(f"a Ray node finished {folder}, but {store.SUMMARY} is not seen here")
        time.sleep(PATIENCE)


def perform(unit: Unit, terms: Terms, desk: Desk, again: bool) -> Outcome:
    """What a Ray task does.

    Args:
        unit: What to execute.
        terms: What must be as where the study was started.
        desk: Where to leave news.
        again: Whether another worker was lost at it.
    """
    prepare(threads=1)
    lines = _Lines(desk)
    try:
        terms.adopt()
        with _leaving(), redirect_stdout(lines), redirect_stderr(lines):
            found = _patiently(unit, Teller(desk.tell, every=TOLD), again)
    except RunError as error:  # also `Interrupted`
        return error
    lines.end()
    return found


def _patiently(unit: Unit, watch: Watch, again: bool) -> Outcome:
    """The outcome of a unit, waiting for locks that a lost worker may have left."""
    until = time.monotonic() + LOCKS_LEFT
    while isinstance(found := outcome(unit, watch), InUse) and again:
        if time.monotonic() > until:
            return InUse(f"{found}, or, if its machine is gone for good, delete the file {LOCK}")
        time.sleep(WAIT)
    return found


@contextmanager
def _leaving() -> Iterator[None]:
    """Signals make this process leave its work; where a run notes them, when it has saved."""
    # By SIGINT Ray cancels a task, by SIGTERM it ends a worker.
    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _Lines(io.TextIOBase):
    """What is printed in a task, brought line by line to where the study was started."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.rest = desk, ""

    def write(self, text: str) -> int:
        *lines, self.rest = f"{self.rest}{text}".split("\n")
        for line in lines:
            self.desk.tell(line)
        return len(text)

    def end(self) -> None:
        """Bring what is left, and wait until all that was told has arrived."""
        import ray

        if self.rest:
            self.write("\n")
        ray.wait([self.desk.tell()], timeout=ARRIVAL)
