"""One process a folder: a lock that dies with its owner."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from trimol._files import growing, read
from trimol.runs._storage import StoreError

FILE = ".lock"


class InUse(StoreError):
    """Another process works in a folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working in a folder.

    The system lets go of the lock when its owner ends, however it ends: a lock file that a killed
    process left behind locks nothing. On a file server the lock of a machine that is gone lasts
    until its lease ends (90 seconds with NFS 4).
    """
    file = folder / FILE
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InUse(f"{folder} is in use by process {_owner(file)}: wait for its end") from None
    except OSError as error:
        raise StoreError(f"cannot write to the folder {folder}: {error.strerror}") from error
    try:
        with suppress(OSError), growing(file, keep=True) as own:
            # Some systems let nobody write to a file that is locked.
            own.truncate(0)
            own.write(f"{os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        lock.release()


def _owner(file: Path) -> str:
    try:
        return read(file).decode(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"
