"""Downloads: resumed where an earlier attempt stopped, and verified before they get their name.

What a server sends goes to ``NAME.part``, which becomes ``NAME`` only when size and checksum are
right: a file that is there is whole.
"""

import http.client
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError

from trimol.paper._data.places import BadData, verify
from trimol.paper._data.sources import File

_CHUNK = 1 << 18
_PATIENCE = 30.0  # seconds without a byte after which a mirror counts as down

Watch = Callable[[str, int, int | None], None]


class DownloadFailed(OSError):
    """No mirror gave the file."""


def download(file: File, home: Path, addresses: Sequence[str], watch: Watch | None = None) -> Path:
    """Fetch a file that is not there yet; verify one that is.

    A file that is there but wrong is named and refused, never overwritten. An interrupted download
    goes on where it stopped, at whichever mirror answers.

    Args:
        file: What to fetch.
        home: The folder it goes to, under its own name.
        addresses: Where from; tried in order.
        watch: Called with its name, the bytes that are there, and the bytes there will be (None
            if nobody says).
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
    path.parent.mkdir(parents=True, exist_ok=True)
    return _from_any(addresses, path, file, seen)


def _unwatched(name: str, done: int, total: int | None) -> None:
    """Nobody looks."""


def _from_any(addresses: Sequence[str], path: Path, file: File, watch: Watch) -> Path:
    part = path.with_name(f"{path.name}.part")
    failures = []
    for address in addresses:
        try:
            _complete(address, part, file, watch)
        except (BadData, OSError, http.client.HTTPException) as error:
            failures.append(f"{address}: {_reason(error)}")
            continue
        part.replace(path)
        return path
    raise DownloadFailed(f"cannot fetch {file.name} ({'; '.join(failures)})")


def _reason(error: Exception) -> str:
    """What went wrong, in a few words."""
    said = error.reason if type(error) is URLError else error
    return str(said) or type(error).__name__


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
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
            return _receive(response, part, there, file, watch)
    except HTTPError as error:
        error.close()
        if there and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True, file.size  # nothing is missing: the checksum says whether it is right
        raise


def _receive(
    response: http.client.HTTPResponse, part: Path, there: int, file: File, watch: Watch
) -> tuple[bool, int | None]:
    # Drives answer with a page where a file may not be had: it must not replace a good beginning.
    if response.headers.get_content_type() == "text/html":
        raise BadData("it serves a web page instead of the file")
    kept = there if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
    size = file.size
    if size is None and response.length is not None:
        size = kept + response.length
    with part.open("ab" if kept else "wb") as stream:
        _copy(response, stream, file.name, kept, size, watch)
    return kept > 0, size


def _copy(
    response: IO[bytes], stream: IO[bytes], name: str, done: int, size: int | None, watch: Watch
) -> None:
    """Write what comes in, and no more than one chunk beyond what is wanted."""
    watch(name, done, size)
    while (size is None or done <= size) and (chunk := response.read(_CHUNK)):
        stream.write(chunk)
        done += len(chunk)
        watch(name, done, size)
