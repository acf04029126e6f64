"""Data sets: which files they consist of, where these are looked for, and whether they are whole.

A file is looked for in ``$TRIMOL_DATA/NAME/``, then in the user's cache.
"""

import functools
import hashlib
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimol._failures import BadValue, UserError

_LISTS = "splits"  # the folder of the lists: lines of a path and a label


class MissingData(UserError, FileNotFoundError):
    """A data set's file is in none of the places where it is looked for."""


class BadData(BadValue):
    """A data set's file is not what it must be."""


# --- what a data set consists of ------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """One file of a data set, and what it must be."""

    name: str  # a path inside the data set's folder
    size: int | None = None  # in bytes; None where nobody published it
    sha256: str | None = None
    md5: str | None = None  # where that is all that is published
    addresses: Sequence[str] = ()  # of the file, instead of the data set's mirrors; in order

    def __post_init__(self) -> None:
        if (self.sha256 is None) == (self.md5 is None):
            raise BadValue(f"either sha256 or md5 of {self.name} must be given, found both or none")

    @property
    def checksum(self) -> tuple[str, str]:
        """The name of the checksum, as `hashlib` has it, and its value.

        >>> File("a", 1, md5="0cc175b9c0f1b6a831c399e269772661").checksum[0]
        'md5'
        """
        return ("sha256", self.sha256) if self.sha256 is not None else ("md5", str(self.md5))


@dataclass(frozen=True)
class Archive:
    """An archive that a data set's folders come in."""

    file: File
    rules: Sequence[Sequence[str]]  # as `trimol.data._files.fetch.unpack` takes them


@dataclass(frozen=True)
class Source:
    """A data set that can be fetched, or of which it is known where people get it."""

    name: str
    title: str  # what it is, in one line
    mirrors: Sequence[str] = ()  # addresses that end in "/", each with all files; in order
    files: Sequence[File] = ()
    licence: str = ""
    home: str = ""  # its page
    folder: str = ""  # the name of its folder; by default its own
    archive: Archive | None = None  # what its folders of many files come in
    # How many files each of these folders must hold, with those in folders below.
    contents: Mapping[str, int] = field(default_factory=dict)
    by_hand: str = ""  # how to get it, if it cannot be fetched

    def __post_init__(self) -> None:
        if not self.folder:
            object.__setattr__(self, "folder", self.name)

    @property
    def names(self) -> list[str]:
        """All that must be in its folder: files, and folders of many files.

        >>> source("office-31").names[-3:]
        ['amazon', 'dslr', 'webcam']
        """
        return [*(file.name for file in self.files), *self.contents]


@functools.cache
def sources() -> dict[str, Source]:
    """The data sets that are known, by name (``sources.toml``).

    >>> list(sources())[:5]
    ['mnist', 'fashion', 'office-31', 'office-home', 'nyuv2']
    """
    listed = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    return {name: _source(name, **entry) for name, entry in listed.items()}


def _source(
    name: str,
    *,
    files: Iterable[dict[str, Any]] = (),
    archive: dict[str, Any] | None = None,
    **rest: Any,
) -> Source:
    packed = None
    if archive is not None:
        rules = archive.pop("rules")
        packed = Archive(File(**archive), rules)
    return Source(name, files=[File(**file) for file in files], archive=packed, **rest)


def source(name: str) -> Source:
    """One of `sources`.

    >>> source("mnist").files[0].size
    9912422
    """
    if name not in sources():
        raise BadValue(f"data set must be one of {', '.join(sources())}, found {name!r}")
    return sources()[name]


# --- where it is ----------------------------------------------------------------------------------


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
    """Where the system's users keep what can be computed or fetched again."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local, "trimol", "trimol", "Cache")
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return Path(named, "trimol")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "trimol"


def locate(dataset: str, file: str) -> Path:
    """Where a file (a path inside the data set's folder) is; one clear line if it is nowhere.

    >>> locate("mnist", "no-such-file")
    Traceback (most recent call last):
    ...
    trimol.data._files.datasets.MissingData: mnist/no-such-file is not in ...
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
        if known.folder == folder and (file in known.names or known.by_hand):
            return known.name
    return folder if folder in sources() else None


def resolve(root: Path, names: Iterable[str]) -> list[str]:
    """The names of these files, or else of the one of the same stem in the same folder."""
    folders: dict[str, dict[str, list[str]]] = {}
    return [_resolve(root, name, folders) for name in names]


def _resolve(root: Path, name: str, folders: dict[str, dict[str, list[str]]]) -> str:
    folder, file = os.path.split(name)
    # Folders are listed once: asking for every file takes as long as reading its image.
    if folder not in folders:
        folders[folder] = _by_stem(root / folder)
    alike = folders[folder].get(os.path.splitext(file)[0], [])
    if file in alike:
        return name
    if not alike:
        raise MissingData(f"{root / name} is not there, nor under another ending, but is listed")
    if len(alike) > 1:
        raise BadData(
            f"{root / name} is not there, and more than one other could be meant: "
            f"{', '.join(sorted(alike))}"
        )
    return os.path.join(folder, alike[0])


def _by_stem(folder: Path) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    if folder.is_dir():
        for file in os.listdir(folder):
            stems.setdefault(os.path.splitext(file)[0], []).append(file)
    return stems


# --- whether it is what it must be ----------------------------------------------------------------


def verify(path: Path, file: File) -> None:
    """Refuse a file of another size or another checksum, in one line that names it."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        wrong = "is truncated" if size < file.size else "is too long"
        raise BadData(f"{path} {wrong}: it has {size} bytes instead of {file.size}")
    kind, wanted = file.checksum
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, kind).hexdigest()
    if digest != wanted:
        said = {"sha256": "SHA-256", "md5": "MD5"}[kind]
        raise BadData(f"{path} is not the file it should be: its {said} is {digest}, not {wanted}")


def check_contents(home: Path, counts: Mapping[str, int]) -> None:
    """Refuse folders that do not hold as many files as they must, or not all that are listed."""
    for name, wanted in counts.items():
        if not (home / name).is_dir():
            raise MissingData(f"{home / name} is not there: it should hold {wanted} files")
        check_count(home / name, wanted)
    resolve(home, listed(home))


def check_count(folder: Path, wanted: int) -> None:
    """Refuse a folder that holds another number of files (hidden ones do not count)."""
    there = sum(not path.name.startswith(".") for path in folder.rglob("*") if path.is_file())
    if there != wanted:
        raise BadData(f"{folder} is not whole: it holds {there} files instead of {wanted}")


def listed(home: Path) -> list[str]:
    """The files that the lists of a data set name, relative to its folder.

    >>> listed(Path("no such folder"))
    []
    """
    lists = sorted((home / _LISTS).glob("*.txt"))
    lines = (line for path in lists for line in path.read_text(encoding="utf-8").splitlines())
    return [line.rsplit(" ", 1)[0] for line in lines if line.strip()]
