"""Files that are whole or not there, and how a user would type their names."""

import os
from contextlib import suppress
from pathlib import Path


def replace(path: Path, content: bytes | memoryview, *, keep: Path | None = None) -> None:
    """Replace a file by new content, such that a crash at any moment leaves the old or the new.

    It is written under another name, flushed to the disk, and renamed. The one temporary file a
    name has is overwritten by the next write: a crash litters nothing. After an OSError the old
    file is as it was.

    Args:
        path: The file.
        content: What it is to hold.
        keep: The name that the old file gets; a crash may leave it under this name alone.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note"
    >>> replace(path, b"one"); replace(path, b"two")
    >>> path.read_bytes(), [file.name for file in path.parent.iterdir()]
    (b'two', ['note'])
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError:
        with suppress(OSError):  # what could not be written may not be removable either
            temporary.unlink(missing_ok=True)
        raise


def from_here(path: Path) -> Path:
    """A path as a user would type it in this folder.

    >>> from_here(Path.cwd() / "runs" / "a").as_posix()
    'runs/a'
    """
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _sync_folder(path: Path) -> None:
    """A rename is on disk when its folder is. Windows opens no folders: there, it is its own."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
