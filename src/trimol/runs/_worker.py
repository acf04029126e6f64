"""What a worker does with what it is given, be it a local process or one of a Ray cluster."""

import ctypes
import pickle
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trimol.runs._journal import Watch
from trimol.runs._pool import execute_unit
from trimol.runs._signals import Interrupted
from trimol.runs._together import Unit
from trimol.runs.config import RunConfig
from trimol.training import Diverged, Record, RunError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
PATIENCE = 0.1  # seconds between looks at signals and at workers that died
News = tuple[RunConfig, int, Record | None]  # what a watch is told


class Leave(KeyboardInterrupt):
    """A worker is told to leave, while no run of it listens for signals."""


def leave(number: int, frame: Any) -> None:
    """What a signal does to a worker between runs; inside one, `Execution` notes it."""
    raise Leave


def outcome(unit: Unit, watch: Watch) -> dict[Path, Diverged] | Exception:
    """Those of a unit that diverged, or the error that stopped it."""
    try:
        return execute_unit(unit, watch)
    except (Interrupted, Leave):
        raise
    except KeyboardInterrupt as stop:  # signals do not raise it here: the task's own
        return RunError(str(stop) or "a task raised KeyboardInterrupt")
    except Exception as error:  # noqa: BLE001 (the parent raises it)
        return _portable(error)


class Teller:
    """Tells the parent of every record, and of steps a few times a second.

    Args:
        send: Brings it there.
        every: Seconds between steps that are told.
    """

    def __init__(self, send: Callable[[News], object], every: float = PATIENCE) -> None:
        self.send, self.every = send, every
        self.told: dict[str, float] = {}

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        now = time.monotonic()
        early = now - self.told.get(config.key, -self.every) < self.every
        if record is None and early and step < config.steps:
            return
        self.told[config.key] = now
        try:
            self.send((config, step, record))
        except OSError:
            raise Interrupted("the process that started this one is gone") from None


def prepare(threads: int) -> None:
    """Make this process a worker."""
    torch.set_num_threads(threads)
    _keep_memory()


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
