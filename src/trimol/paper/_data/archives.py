"""Archives, unpacked whole or not at all, and never outside the folder they are for."""

import gzip
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from trimol.paper._data.places import BadData

Rules = Sequence[tuple[str, str]]
Member = tuple[str, Callable[[], IO[bytes] | None]]  # None if it is no plain file

# What the standard library raises on bytes that are no archive, or only the beginning of one.
_BROKEN = (tarfile.TarError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, EOFError)


def unpack(archive: Path, folder: Path, rules: Rules) -> list[Path]:
    """Unpack an archive (``.zip`` or ``.tar.gz``) into a folder.

    All is first unpacked next to its destination, under a name that begins with a dot; then each
    of the top folders is moved there in one step. What is killed in between leaves top folders that
    are whole or absent; the next call starts over with those that are absent. A top folder that is
    there already is left as it is.

    Args:
        archive: The archive.
        folder: Where to.
        rules: A pattern for whole member names, and the path under ``folder`` that a member of
            such a name gets; the first that fits counts. Other members are left out.

    Returns:
        The top folders (or files).

    Raises:
        BadData: It is broken, or has a member that would leave the folder, or one that is wanted
            but no file, or two of one name, or none that is wanted. Nothing was unpacked then.

    Example:
        >>> import tempfile
        >>> home = Path(tempfile.mkdtemp())
        >>> with zipfile.ZipFile(home / "a.zip", "w") as made:
        ...     made.writestr("Set_2016/Real World/Mug/1.jpg", "mug")
        ...     made.writestr("Set_2016/notes.txt", "")
        >>> moved = unpack(home / "a.zip", home, [(r".*/Real World/(.+)", r"Real_World/\\1")])
        >>> [path.relative_to(home).as_posix() for path in home.rglob("*.jpg")]
        ['Real_World/Mug/1.jpg']
    """
    room = folder / f".{archive.name}.unpacking"
    if room.exists():
        shutil.rmtree(room)  # of a call that was killed
    room.mkdir(parents=True)
    try:
        try:
            _unpack(archive, room, rules)
        except _BROKEN as error:
            raise BadData(f"{archive} is no whole archive: {error}") from error
        return [_move(top, folder) for top in sorted(room.iterdir())]
    finally:
        shutil.rmtree(room)


def _unpack(archive: Path, room: Path, rules: Rules) -> None:
    compiled = [(re.compile(pattern), path) for pattern, path in rules]
    found = False
    for name, opened in _members(archive):
        _stays(archive, name)
        path = _placed(name, compiled)
        if path is None:
            continue
        _stays(archive, path)
        _write(archive, name, opened(), room / path)
        found = True
    if not found:
        raise BadData(f"{archive} has none of the files that are wanted of it")


def _placed(name: str, rules: Sequence[tuple[re.Pattern[str], str]]) -> str | None:
    for pattern, path in rules:
        if found := pattern.fullmatch(name):
            return found.expand(path)
    return None


def _stays(archive: Path, name: str) -> None:
    """Refuse a name that leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise BadData(f"{archive} is not safe to unpack: its member {name!r} leaves the folder")


def _write(archive: Path, name: str, content: IO[bytes] | None, path: Path) -> None:
    if content is None:
        raise BadData(f"{archive} is not safe to unpack: its member {name!r} is no plain file")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with content, path.open("xb") as stream:
            shutil.copyfileobj(content, stream)
    except FileExistsError as error:
        raise BadData(f"{archive} has two members for one file, the second is {name!r}") from error


def _move(top: Path, folder: Path) -> Path:
    goal = folder / top.name
    if not goal.exists():
        top.rename(goal)
    return goal


def _members(archive: Path) -> Iterator[Member]:
    """Names of all members but folders, each with what opens it."""
    yield from _zipped(archive) if archive.suffix == ".zip" else _tarred(archive)


def _zipped(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                yield member.filename, lambda: None
            elif not member.is_dir():
                yield member.filename, partial(opened.open, member)


def _tarred(archive: Path) -> Iterator[Member]:
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as opened:
        for member in opened:
            if member.isreg():
                yield member.name, partial(opened.extractfile, member)
            elif not member.isdir():
                yield member.name, lambda: None
        # Zeros where a member should begin look like the end: gzip's checksum is at the real one.
        while stream.read(1 << 20):
            pass
