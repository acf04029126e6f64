"""Data sets that can be fetched: where from, under which licence, and what they must be."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimol._failures import BadValue


@dataclass(frozen=True)
class File:
    """One file of a data set, and what it must be.

    Attributes:
        name: Its name: a path inside the data set's folder.
        size: Its size in bytes; None where nobody published it.
        sha256: Its SHA-256, in hexadecimal.
        md5: Its MD5, where that is all that is published.
        addresses: Whole addresses of the file, instead of the data set's mirrors; tried in order.
    """

    name: str
    size: int | None
    sha256: str | None = None
    md5: str | None = None
    addresses: tuple[str, ...] = ()

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
    """An archive that a data set's folders come in.

    Attributes:
        file: The archive itself.
        rules: A pattern for whole member names, and the path in the data set's folder that a
            member of such a name gets; the first that fits counts. Other members are left out.
    """

    file: File
    rules: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Source:
    """A data set that can be fetched, or of which it is known where people get it.

    Attributes:
        name: What it is called.
        title: What it is, in one line.
        mirrors: Addresses that end in ``/``, each with all files; tried in order.
        files: Its files.
        licence: What may be done with it.
        home: Its home page.
        folder: The name of its folder; by default its own.
        archive: Where its folders of many files come from.
        contents: How many files each of these folders must hold, with those in folders below.
        by_hand: How to get it, if it cannot be fetched.
    """

    name: str
    title: str
    mirrors: tuple[str, ...]
    files: tuple[File, ...]
    licence: str = ""
    home: str = ""
    folder: str = ""
    archive: Archive | None = None
    contents: Mapping[str, int] = field(default_factory=dict)
    by_hand: str = ""

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

    >>> list(sources())
    ['mnist', 'fashion', 'office-31', 'office-home', 'nyuv2', 'mobilenet_v2']
    """
    listed = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    return {name: _source(name, **entry) for name, entry in listed.items()}


def _source(
    name: str,
    *,
    mirrors: list[str] | None = None,
    files: list[dict[str, Any]] | None = None,
    archive: dict[str, Any] | None = None,
    **rest: Any,
) -> Source:
    return Source(
        name=name,
        mirrors=tuple(mirrors or ()),
        files=tuple(_file(**file) for file in files or ()),
        archive=None if archive is None else _archive(**archive),
        **rest,
    )


def _file(
    name: str, *, size: int | None = None, addresses: list[str] | None = None, **checksum: str
) -> File:
    return File(name, size, addresses=tuple(addresses or ()), **checksum)


def _archive(rules: list[list[str]], **file: Any) -> Archive:
    return Archive(_file(**file), tuple((pattern, path) for pattern, path in rules))


def source(name: str) -> Source:
    """One of `sources`.

    >>> source("mnist").files[0].size
    9912422
    """
    if name not in sources():
        raise BadValue(f"data set must be one of {', '.join(sources())}, found {name!r}")
    return sources()[name]
