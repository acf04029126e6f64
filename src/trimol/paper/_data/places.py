"""Files of data sets: where they are looked for, and whether they are what they must be.

A file is looked for in ``$TRIMOL_DATA/NAME/``, then in the user's cache.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from trimol._extras import require
from trimol._failures import BadValue, UserError
from trimol.paper._data.sources import File, sources


class MissingData(UserError, FileNotFoundError):
    """A data set's file is in none of the places where it is looked for."""


class BadData(BadValue):
    """A data set's file is not what it must be."""


def places() -> Iterator[Path]:
    """The folders under which data sets are looked for, in order."""
    named = os.environ.get("TRIMOL_DATA")
    if named:
        yield Path(named)
    yield _user_cache()


def cache() -> Path:
    """The folder of what is computed from data once and kept: decoded images, features.

    It is ``$TRIMOL_CACHE`` where that is set, the user's cache otherwise. All in it can be deleted:
    it is computed again.
    """
    named = os.environ.get("TRIMOL_CACHE")
    return Path(named) if named else _user_cache()


def _user_cache() -> Path:
    pooch = require("pooch", extra="studies", purpose="the user's cache of data sets")
    return Path(pooch.os_cache("trimol"))


def locate(dataset: str, file: str) -> Path:
    """Where a file of a data set is; one clear line if it is nowhere.

    Args:
        dataset: The name of the data set's folder.
        file: The file's name, or its path inside that folder.

    Example:
        >>> locate("mnist", "no-such-file")
        Traceback (most recent call last):
        ...
        trimol.paper._data.places.MissingData: mnist/no-such-file is not in ...
    """
    looked = []
    for place in places():
        path = place / dataset / file
        if path.is_file():
            return path
        looked.append(str(path.parent))
    name = _fetched_as(dataset, file)
    hint = f"fetch it with `trimol data get {name}`, or " if name else ""
    unset = "" if os.environ.get("TRIMOL_DATA") else " (TRIMOL_DATA is not set)"
    raise MissingData(
        f"{dataset}/{file} is not in {' nor in '.join(looked)}{unset}: {hint}point TRIMOL_DATA to "
        f"a folder that holds {dataset}/"
    )


def _fetched_as(folder: str, file: str) -> str | None:
    """The data set that a file comes with, if one is known."""
    for known in sources().values():
        if known.folder == folder and file in known.names:
            return known.name
    return folder if folder in sources() else None


def verify(path: Path, file: File) -> None:
    """Refuse a file of another size or another checksum, in one line that names it."""
    found = path.stat().st_size
    if file.size is not None and found != file.size:
        wrong = "is truncated" if found < file.size else "is too long"
        raise BadData(f"{path} {wrong}: it has {found} bytes instead of {file.size}")
    kind, wanted = file.checksum
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, kind).hexdigest()
    if digest != wanted:
        said = {"sha256": "SHA-256", "md5": "MD5"}[kind]
        raise BadData(f"{path} is not the file it should be: its {said} is {digest}, not {wanted}")
