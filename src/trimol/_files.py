"""Files that are whole or not there, and how a user would type their names.

All files of ours are read and written here: no link that somebody planted under a name of ours is
written through, and nothing that is not a regular file (a pipe, a device) is waited for.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DEEPEST = 200  # folders in a path: far more than anybody types, few enough for recursive walks
_SHOWN = 320  # letters of a path in a message

OF_FILES = "trimol_task_"  # so begin the modules of users' task files


def read(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: It is none, or cannot be read.
    """
    with open(path, "rb", opener=_opened) as file:
        return file.read()


@contextmanager
def writing(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that takes the place of another one when the block has come to its end.

    It is written under another name, flushed to the disk, and renamed: a crash at any moment
    leaves the old content or the new. The one temporary file that a name has is removed by the
    next write: a crash litters nothing. After an error the old file is as it was.

    Args:
        path: The file.
        keep: The name that the old file gets; a crash may leave it under this name alone.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with growing(temporary, keep=False) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):  # what could not be written may not be removable either
            temporary.unlink(missing_ok=True)
        raise


def replace(path: Path, content: bytes | memoryview, *, keep: Path | None = None) -> None:
    """Replace a file by new content, whole (`writing`).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note"
    >>> replace(path, b"one"); replace(path, b"two")
    >>> read(path), [file.name for file in path.parent.iterdir()]
    (b'two', ['note'])
    """
    with writing(path, keep=keep) as file:
        file.write(content)


def growing(path: Path, *, keep: bool) -> BinaryIO:
    """Open a file to add to it, a new one unless what is there is to be kept.

    Raises:
        OSError: What is to be kept is no regular file, or has another name, too.
    """
    if not keep:
        path.unlink(missing_ok=True)  # a link goes, and not what it leads to
    return open(path, "ab" if keep else "xb", opener=_own)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they are there.

    Raises:
        OSError: It cannot be made, or is nested too deeply.
    """
    depth = len(path.absolute().parts)
    if depth > _DEEPEST:
        said = f"at most {_DEEPEST} nested folders are allowed, found {depth}"
        raise OSError(errno.ENAMETOOLONG, said, shown(path))
    path.mkdir(parents=True, exist_ok=True)


def find(folder: Path, name: str) -> list[Path]:
    """All files of a name in a folder and below it, sorted; links to folders are not followed.

    Nor is what is nested too deeply for `make_folder`: nothing of ours is there.
    """
    found, left = [], [folder]
    while left:
        home = left.pop()
        with suppress(OSError), os.scandir(home) as entries:
            for entry in entries:
                if entry.name == name:
                    found.append(home / name)
                if entry.is_dir(follow_symlinks=False) and len(home.parts) < _DEEPEST:
                    left.append(home / entry.name)
    return sorted(path for path in found if path.exists())


def from_here(path: Path) -> Path:
    """A path as a user would type it in this folder.

    >>> from_here(Path.cwd() / "runs" / "a").as_posix()
    'runs/a'
    """
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def shown(path: Path) -> str:
    """A path for a message, cut short where it is far too long.

    >>> shown(Path("a/" * 500)).count("a")
    40
    """
    text = str(path)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 4]}…"


def _opened(path: str, flags: int) -> int:
    """Open a regular file. Without waiting: a pipe would wait for somebody to write into it."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return handle


def _own(path: str, flags: int) -> int:
    """Open a regular file for writing that has no other name, be it a link.

    For reading, too: else it could not be mapped into memory.
    """
    handle = _opened(path, flags & ~os.O_WRONLY | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EMLINK, "it has another name, too", path)
    return handle


def _sync_folder(path: Path) -> None:
    """A rename is on disk when its folder is. Windows opens no folders: there, it is its own."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
