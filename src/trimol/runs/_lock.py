"""One process a folder: a lock that dies with its owner."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimol.runs._storage import StoreError

FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working in a folder.

    The kernel lets go of the lock when its owner ends, however it ends: a lock file that a killed
    process left behind locks nothing.
    """
    try:
        file = (folder / FILE).open("a+")
    except OSError as error:
        raise StoreError(f"cannot write to the folder {folder}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise StoreError(f"{folder} is in use by process {owner}: wait for its end") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
