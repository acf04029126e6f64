"""Files of data sets: where they are looked for, and how they are fetched and verified.

A file is looked for in ``$TRIMOL_DATA/NAME/``, then in the user's cache. What is fetched goes to
the first of the two that is set, is resumed where an earlier attempt stopped, and gets its name
only when size and SHA-256 are right: a file that is there is whole.
"""

import hashlib
import http.client
import os
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError

from trimol._extras import require

_CHUNK = 1 << 18
_PATIENCE = 30.0  # seconds without a byte after which a mirror counts as down

Watch = Callable[[str, int, int], None]


class MissingData(FileNotFoundError):
    """A data set's file is in none of the places where it is looked for."""


class BadData(ValueError):
    """A data set's file is not what it must be."""


class DownloadFailed(OSError):
    """No mirror gave the file."""


@dataclass(frozen=True)
class File:
    """One file of a data set, and what it must be.

    Attributes:
        name: Its name, without a folder.
        size: Its size in bytes.
        sha256: Its SHA-256, in hexadecimal.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A data set that can be fetched.

    Attributes:
        name: Its name: that of its folder, too.
        title: What it is, in one line.
        mirrors: Addresses that end in ``/``, each with all files; tried in order.
        files: Its files.
    """

    name: str
    title: str
    mirrors: tuple[str, ...]
    files: tuple[File, ...]


@cache
def sources() -> dict[str, Source]:
    """The data sets that can be fetched, by name (``sources.toml``).

    >>> list(sources())
    ['mnist', 'fashion']
    """
    listed = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    return {
        name: Source(
            name=name,
            title=entry["title"],
            mirrors=tuple(entry["mirrors"]),
            files=tuple(File(**file) for file in entry["files"]),
        )
        for name, entry in listed.items()
    }


def source(name: str) -> Source:
    """One of `sources`.

    >>> source("mnist").files[0].size
    9912422
    """
    if name not in sources():
        raise ValueError(f"data set must be one of {', '.join(sources())}, found {name!r}")
    return sources()[name]


def places() -> Iterator[Path]:
    """The folders under which data sets are looked for, in order."""
    named = os.environ.get("TRIMOL_DATA")
    if named:
        yield Path(named)
    pooch = require("pooch", extra="studies", purpose="the user's cache of data sets")
    yield Path(pooch.os_cache("trimol"))


def locate(dataset: str, file: str) -> Path:
    """Where a file of a data set is; one clear line if it is nowhere.

    Args:
        dataset: The data set's name, which is that of its folder.
        file: The file's name, or its path inside that folder.

    Example:
        >>> locate("mnist", "no-such-file")
        Traceback (most recent call last):
        ...
        trimol.data.files.MissingData: mnist/no-such-file is not in ...
    """
    looked = []
    for place in places():
        path = place / dataset / file
        if path.is_file():
            return path
        looked.append(str(path.parent))
    hint = f"fetch it with `trimol data get {dataset}`, or " if dataset in sources() else ""
    unset = "" if os.environ.get("TRIMOL_DATA") else " (TRIMOL_DATA is not set)"
    raise MissingData(
        f"{dataset}/{file} is not in {' nor in '.join(looked)}{unset}: {hint}point TRIMOL_DATA to "
        f"a folder that holds {dataset}/"
    )


def verify(path: Path, file: File) -> None:
    """Refuse a file of another size or another checksum, in one line that names it."""
    found = path.stat().st_size
    if found != file.size:
        kind = "is truncated" if found < file.size else "is too long"
        raise BadData(f"{path} {kind}: it has {found} bytes instead of {file.size}")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != file.sha256:
        raise BadData(
            f"{path} is not the file it should be: its SHA-256 is {digest}, not {file.sha256}"
        )


def get(
    dataset: Source,
    folder: Path | None = None,
    *,
    mirrors: Sequence[str] | None = None,
    watch: Watch | None = None,
) -> list[Path]:
    """Fetch the files of a data set that are not there yet; verify all of them.

    A file that is there but wrong is named and refused, never overwritten. An interrupted download
    (``NAME.part``) goes on where it stopped, at whichever mirror answers.

    Args:
        dataset: What to fetch, e.g. ``source("mnist")``.
        folder: Under which folder; the first of `places` by default.
        mirrors: Where from, instead of the data set's own mirrors.
        watch: Called with a file's name, the bytes that are there and the bytes there will be.

    Returns:
        Where the files are.
    """
    home = (next(places()) if folder is None else folder) / dataset.name
    home.mkdir(parents=True, exist_ok=True)
    return [
        _one(home, file, dataset.mirrors if mirrors is None else mirrors, watch or _unwatched)
        for file in dataset.files
    ]


def _unwatched(name: str, done: int, total: int) -> None:
    """Nobody looks."""


def _one(home: Path, file: File, mirrors: Sequence[str], watch: Watch) -> Path:
    path = home / file.name
    if path.exists():
        try:
            verify(path, file)
        except BadData as error:
            raise BadData(f"{error}; remove it and fetch it again") from error
        watch(file.name, file.size, file.size)
        return path
    part = home / f"{file.name}.part"
    failures = []
    for mirror in mirrors:
        try:
            _from_mirror(mirror + file.name, part, file, watch)
        except (BadData, OSError, http.client.HTTPException) as error:
            failures.append(f"{mirror}: {_reason(error)}")
            continue
        part.replace(path)
        return path
    raise DownloadFailed(f"cannot fetch {file.name} ({'; '.join(failures)})")


def _reason(error: Exception) -> str:
    """What went wrong, in a few words."""
    said = error.reason if type(error) is URLError else error
    return str(said) or type(error).__name__


def _from_mirror(address: str, part: Path, file: File, watch: Watch) -> None:
    """Complete the part from one mirror, and verify it."""
    resumed = _fetch(address, part, file, watch)
    try:
        verify(part, file)
    except BadData as error:
        if part.stat().st_size < file.size:
            raise  # what is there is kept, for the next attempt to go on from
        part.unlink()
        if not resumed:
            raise BadData(f"what it serves {str(error).removeprefix(f'{part} ')}") from error
        _from_mirror(address, part, file, watch)  # the old beginning was bad: once more, from zero


def _fetch(address: str, part: Path, file: File, watch: Watch) -> bool:
    """Append what is missing to the part; whether there was a beginning that was kept."""
    there = part.stat().st_size if part.exists() else 0
    if there >= file.size:
        return True
    headers = {"User-Agent": "trimol", **({"Range": f"bytes={there}-"} if there else {})}
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
            kept = there if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
            with part.open("ab" if kept else "wb") as stream:
                _copy(response, stream, file, kept, watch)
    except HTTPError as error:
        error.close()
        raise
    return kept > 0


def _copy(response: IO[bytes], stream: IO[bytes], file: File, done: int, watch: Watch) -> None:
    """Write what comes in, and no more than one chunk beyond what is wanted."""
    watch(file.name, done, file.size)
    while done <= file.size and (chunk := response.read(_CHUNK)):
        stream.write(chunk)
        done += len(chunk)
        watch(file.name, done, file.size)
