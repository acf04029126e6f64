"""Getting data sets: downloads that are resumed and verified, archives unpacked safely.

What a server sends goes to ``NAME.part``, which becomes ``NAME`` only when size and checksum are
right: a file that is there is whole. Archives are unpacked whole or not at all, and never outside
the folder they are for.
"""

import gzip
import http.client
import lzma
import re
import shutil
import stat
import tarfile
import threading
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError, URLError

from trimol._files import growing, make_folder
from trimol.data._files.datasets import (
    BadData,
    File,
    MissingData,
    Source,
    check_contents,
    check_count,
    places,
    verify,
)

_CHUNK = 1 << 18
_PATIENCE = 30.0  # seconds without an answer or a byte after which a mirror counts as down
_SLOWEST = 1000  # bytes per second, over as long
_ALL_DAY = 12 * 3600.0  # seconds that a file may take from one mirror; the next goes on from there
# What the standard library raises on bytes that are no archive, or only the beginning of one, or
# are locked, or packed in a way that it does not know.
_BROKEN = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    ValueError,
)
# Far more than any data set here has. What is packed may be a thousand times larger than it looks.
_MOST_BYTES = 8 << 30
_MOST_MEMBERS = 200_000
_LONGEST, _DEEPEST = 255, 64  # bytes of a name, as file systems have it, and folders

Watch = Callable[[str, int, int | None], None]  # a name, the bytes there, those there will be
Rules = Sequence[Sequence[str]]
_Member = tuple[str, Callable[[], IO[bytes] | None]]  # None if it is no plain file


class DownloadFailed(OSError):
    """No mirror gave the file."""


class ByHand(DownloadFailed):
    """This data set cannot be fetched; the text says how to get it."""


# --- whole data sets ------------------------------------------------------------------------------


def find(source: Source) -> Path | None:
    """The folder of a data set of which all is there; whether it is sound is for `check`."""
    homes = (place / source.folder for place in places())
    return next((home for home in homes if _is_there(home, source.names)), None)


def get(
    source: Source,
    folder: Path | None = None,
    *,
    mirrors: Sequence[str] | None = None,
    watch: Watch | None = None,
) -> list[Path]:
    """Fetch what is not there yet of a data set; verify all of it.

    What is there but wrong is named and refused (`BadData`), never overwritten. An archive is
    removed when it is unpacked. It goes under ``folder``, the first of `places` by default, and
    comes from ``mirrors`` (addresses that end in ``/``) instead of the known ones where some are
    given. The paths of its files, and of its folders of many files, are returned.
    """
    home = (next(places()) if folder is None else folder) / source.folder
    if source.by_hand and not _is_there(home, source.names):
        raise ByHand(_told(source, home))
    _refuse_half(source, home)
    for file in source.files:
        download(file, home, _addresses(file, source, mirrors), watch)
    if source.archive is not None and not _is_there(home, source.contents):
        file = source.archive.file
        path = download(file, home, _addresses(file, source, mirrors), watch)
        unpack(path, home, source.archive.rules)
        path.unlink()
    check_contents(home, source.contents)
    return [home / name for name in source.names]


def check(source: Source, folder: Path | None = None) -> tuple[list[Path], list[str]]:
    """Where all of a data set should be, and what is wrong with it, one line each.

    By default under the first of `places` that has anything of it.
    """
    home = (_begun(source) if folder is None else folder) / source.folder
    return [home / name for name in source.names], list(_problems(source, home))


def _is_there(home: Path, names: Iterable[str]) -> bool:
    return all((home / name).exists() for name in names)


def _told(source: Source, home: Path) -> str:
    folders = [f"{name}/ ({count} files)" for name, count in source.contents.items()]
    where = ", ".join([*(file.name for file in source.files), *folders])
    return (
        f"{source.name} cannot be fetched from here. {source.by_hand} Home page: {source.home}. "
        f"Licence: {source.licence}. Put into {home}: {where}. Then: "
        f"trimol data check {source.name}"
    )


def _refuse_half(source: Source, home: Path) -> None:
    for name, count in source.contents.items():
        if (home / name).exists():
            try:
                check_count(home / name, count)
            except BadData as error:
                raise BadData(f"{error}; remove it and fetch it again") from error


def _addresses(file: File, source: Source, mirrors: Sequence[str] | None) -> list[str]:
    if mirrors is None and file.addresses:
        return list(file.addresses)
    chosen = source.mirrors if mirrors is None else mirrors
    return [mirror + PurePosixPath(file.name).name for mirror in chosen]


def _problems(source: Source, home: Path) -> Iterator[str]:
    for file in source.files:
        path = home / file.name
        try:
            if not path.is_file():
                raise MissingData(f"{path} is not there")
            verify(path, file)
        except (MissingData, BadData) as error:
            yield str(error)
    try:
        check_contents(home, source.contents)
    except (MissingData, BadData) as error:
        yield str(error)


def _begun(source: Source) -> Path:
    known = list(places())
    begun = (p for p in known if any((p / source.folder / n).exists() for n in source.names))
    return next(begun, known[0])


# --- downloads ------------------------------------------------------------------------------------


def download(file: File, home: Path, addresses: Sequence[str], watch: Watch | None = None) -> Path:
    """Fetch a file that is not there yet, from the first address that gives it; verify one that is.

    A file that is there but wrong is named and refused, never overwritten. An interrupted download
    goes on where it stopped, at whichever mirror answers.
    """
    path = home / file.name
    seen = watch or _unwatched
    if path.exists():
        try:
            verify(path, file)
        except BadData as error:
            raise BadData(f"{error}; remove it and fetch it again") from error
        there = path.stat().st_size
        seen(file.name, there, there)
        return path
    make_folder(path.parent)
    return _from_any(addresses, path, file, seen)


def _unwatched(name: str, done: int, total: int | None) -> None:
    """Nobody looks."""


def _from_any(addresses: Sequence[str], path: Path, file: File, watch: Watch) -> Path:
    part = path.with_name(f"{path.name}.part")
    failures = []
    for address in addresses:
        try:
            _complete(address, part, file, watch)
        except (BadData, OSError, http.client.HTTPException, ValueError) as error:  # of an address
            said = error.reason if type(error) is URLError else error
            failures.append(f"{address}: {str(said) or type(error).__name__}")
            continue
        part.replace(path)
        return path
    raise DownloadFailed(f"cannot fetch {file.name} ({'; '.join(failures)})")


def _complete(address: str, part: Path, file: File, watch: Watch) -> None:
    """Complete the part from one address, and verify it."""
    resumed, size = _fetch(address, part, file, watch)
    try:
        verify(part, replace(file, size=size))
    except BadData as error:
        if size is not None and part.stat().st_size < size:
            raise  # what is there is kept, for the next attempt to go on from
        part.unlink()
        if not resumed:
            raise BadData(f"what it serves {str(error).removeprefix(f'{part} ')}") from error
        _complete(address, part, file, watch)  # the old beginning was bad: once more, from zero


def _fetch(address: str, part: Path, file: File, watch: Watch) -> tuple[bool, int | None]:
    """Append what is missing; whether a beginning was kept, and what the size should then be."""
    there = part.stat().st_size if part.exists() else 0
    if file.size is not None and there >= file.size:
        return True, file.size
    headers = {"User-Agent": "trimol", **({"Range": f"bytes={there}-"} if there else {})}
    request = urllib.request.Request(address, headers=headers)
    try:
        with _answer(request) as response:
            return _receive(response, part, there, file, watch)
    except HTTPError as error:
        error.close()
        if there and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True, file.size  # nothing is missing: the checksum says whether it is right
        raise


def _answer(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Open an address, without waiting for one that sends its headers byte by byte."""
    asked = Future[http.client.HTTPResponse]()

    def ask() -> None:
        try:
            asked.set_result(urllib.request.urlopen(request, timeout=_PATIENCE))
        except (OSError, http.client.HTTPException, ValueError) as error:
            asked.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    if not wait([asked], timeout=2 * _PATIENCE).done:
        asked.add_done_callback(_close)
        raise TimeoutError(f"no answer within {2 * _PATIENCE:.0f} seconds")
    return asked.result()


def _close(asked: Future[http.client.HTTPResponse]) -> None:
    """Close what came too late."""
    late = asked.exception() or asked.result()
    if isinstance(late, HTTPError | http.client.HTTPResponse):
        late.close()


class _Pace:
    """Holds a mirror to a least speed."""

    def __init__(self, done: int) -> None:
        self.began = self.since = time.monotonic()
        self.before = done

    def check(self, done: int) -> None:
        """Raise TimeoutError where so many bytes by now are too few."""
        now = time.monotonic()
        if now - self.began > _ALL_DAY:
            raise TimeoutError(f"it took more than {_ALL_DAY / 3600:.0f} hours")
        if now - self.since > _PATIENCE:
            if done - self.before < _SLOWEST * (now - self.since):
                raise TimeoutError(f"it sends less than {_SLOWEST} bytes per second")
            self.since, self.before = now, done


def _receive(
    response: http.client.HTTPResponse, part: Path, there: int, file: File, watch: Watch
) -> tuple[bool, int | None]:
    """Write what comes in, and no more than one chunk beyond what is wanted."""
    # Drives answer with a page where a file may not be had: it must not replace a good beginning.
    if response.headers.get_content_type() == "text/html":
        raise BadData("it serves a web page instead of the file")
    kept = done = there if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
    size = file.size
    if size is None and response.length is not None:
        size = kept + response.length
    most, pace = min(size or _MOST_BYTES, _MOST_BYTES), _Pace(done)
    with growing(part, keep=kept > 0) as stream:
        watch(file.name, done, size)
        while done <= most and (chunk := response.read1(_CHUNK)):  # what is there, at once
            stream.write(chunk)
            done += len(chunk)
            watch(file.name, done, size)
            pace.check(done)
    return kept > 0, size


# --- archives -------------------------------------------------------------------------------------


def unpack(
    archive: Path,
    folder: Path,
    rules: Rules,
    *,
    most_bytes: int = _MOST_BYTES,
    most_members: int = _MOST_MEMBERS,
) -> list[Path]:
    """Unpack an archive (``.zip`` or ``.tar.gz``) into a folder; its top folders (or files).

    All is first unpacked next to its destination, under a name that begins with a dot; then each
    of the top folders is moved there in one step. What is killed in between leaves top folders that
    are whole or absent; the next call starts over with those that are absent. A top folder that is
    there already is left as it is.

    A rule is a pattern for whole member names, and the path under ``folder`` that a member of such
    a name gets; the first that fits counts, other members are left out. An archive that is broken,
    or has a member that would leave the folder, or one that is wanted but no file, or two of one
    name, or a file where another needs a folder, or a name that is empty or too long, or none that
    is wanted, or more members or bytes than a data set has, is refused (`BadData`): nothing was
    unpacked then.

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
            _unpack(archive, room, rules, _Allowance(archive, most_bytes, most_members))
        except BadData:
            raise
        except _BROKEN as error:
            raise BadData(f"{archive} is no whole archive: {error}") from error
        return [_move(top, folder) for top in sorted(room.iterdir())]
    finally:
        shutil.rmtree(room)


class _Allowance:
    """How many members and bytes an archive may still have."""

    def __init__(self, archive: Path, size: int, members: int) -> None:
        self.archive, self.size, self.members = archive, size, members
        self.left = size

    def member(self, number: int) -> None:
        """One more member."""
        if number > self.members:
            raise BadData(f"{self.archive} has more than {self.members} members: it is no data set")

    def take(self, size: int) -> None:
        """So many more bytes, unpacked."""
        self.left -= size
        if self.left < 0:
            raise BadData(f"{self.archive} unpacks to more than {self.size} bytes")


class _Counted:
    """A member that is read as long as there is an allowance."""

    def __init__(self, content: IO[bytes], allowance: _Allowance) -> None:
        self.content, self.allowance = content, allowance

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes."""
        chunk = self.content.read(size)
        self.allowance.take(len(chunk))
        return chunk


def _unpack(archive: Path, room: Path, rules: Rules, allowance: _Allowance) -> None:
    any_wanted = False
    members = _zipped(archive) if archive.suffix == ".zip" else _tarred(archive, allowance)
    for number, (name, opened) in enumerate(members, start=1):
        allowance.member(number)
        _stays(archive, name)
        path = _placed(name, rules)
        if path is None:
            continue
        _stays(archive, path)
        _write(archive, name, opened(), room / path, allowance)
        any_wanted = True
    if not any_wanted:
        raise BadData(f"{archive} has none of the files that are wanted of it")


def _placed(name: str, rules: Rules) -> str | None:
    for pattern, path in rules:
        if match := re.fullmatch(pattern, name):
            return match.expand(path)
    return None


def _stays(archive: Path, name: str) -> None:
    """Refuse a name that leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.parts or name.endswith("/") or not name.isprintable():
        raise BadData(f"{archive} is not safe to unpack: its member {name[:99]!r} has no name")
    long = any(len(part.encode()) > _LONGEST for part in path.parts)
    if long or len(path.parts) > _DEEPEST:
        raise BadData(f"{archive} is not safe to unpack: the name {name[:40]!r}… is too long")
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise BadData(f"{archive} is not safe to unpack: its member {name!r} leaves the folder")


def _write(
    archive: Path, name: str, content: IO[bytes] | None, path: Path, allowance: _Allowance
) -> None:
    if content is None:
        raise BadData(f"{archive} is not safe to unpack: its member {name!r} is no plain file")
    try:
        with content:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as stream:
                shutil.copyfileobj(_Counted(content, allowance), stream)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadData(f"{archive} has two members for one file, the second is {name!r}") from error


def _move(top: Path, folder: Path) -> Path:
    goal = folder / top.name
    if not goal.exists():
        top.rename(goal)
    return goal


def _zipped(archive: Path) -> Iterator[_Member]:
    """Names of all members but folders, each with what opens it."""
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                yield member.filename, lambda: None
            elif not member.filename.endswith("/"):  # is_dir() fails where there is no name
                yield member.filename, partial(opened.open, member)


def _tarred(archive: Path, allowance: _Allowance) -> Iterator[_Member]:
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as opened:
        for member in opened:
            if member.isreg():
                yield member.name, partial(opened.extractfile, member)
            elif not member.isdir():
                yield member.name, lambda: None
        # Zeros where a member should begin look like the end: gzip's checksum is at the real one.
        while rest := stream.read(1 << 20):
            allowance.take(len(rest))
