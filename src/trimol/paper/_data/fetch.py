"""Whole data sets: which are there, whether they are whole, and how they are fetched."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from trimol.paper._data import contents
from trimol.paper._data.archives import unpack
from trimol.paper._data.download import DownloadFailed, Watch, download
from trimol.paper._data.places import BadData, MissingData, places, verify
from trimol.paper._data.sources import File, Source


class ByHand(DownloadFailed):
    """This data set cannot be fetched; the text says how to get it."""


def find(source: Source) -> Path | None:
    """The folder of a data set of which all is there; whether it is sound is for `check`."""
    for place in places():
        home = place / source.folder
        if all((home / name).exists() for name in source.names):
            return home
    return None


def get(
    source: Source,
    folder: Path | None = None,
    *,
    mirrors: Sequence[str] | None = None,
    watch: Watch | None = None,
) -> list[Path]:
    """Fetch what is not there yet of a data set; verify all of it.

    What is there but wrong is named and refused, never overwritten. Files are downloaded by
    `download`, an archive too; it is unpacked by `archives` and removed.

    Args:
        source: What to fetch, e.g. ``source("mnist")``.
        folder: Under which folder; the first of `places` by default.
        mirrors: Addresses that end in ``/`` to fetch from, instead of the known ones.
        watch: Called with a file's name, the bytes that are there and the bytes there will be.

    Returns:
        Where its files, and its folders of many files, are.

    Raises:
        ByHand: It cannot be fetched, and is not there.
        DownloadFailed: No mirror gave a file.
        BadData: What is there, or what came, is not what it must be.
    """
    place = next(places()) if folder is None else folder
    home = place / source.folder
    if source.by_hand and not all((home / name).exists() for name in source.names):
        raise ByHand(_told(source, home))
    _refuse_half(source, home)
    for file in source.files:
        download(file, home, _addresses(file, source, mirrors), watch)
    if source.archive is not None and not all((home / name).exists() for name in source.contents):
        file = source.archive.file
        path = download(file, home, _addresses(file, source, mirrors), watch)
        unpack(path, home, source.archive.rules)
        path.unlink()
    contents.check(home, source.contents)
    return [home / name for name in source.names]


def _told(source: Source, home: Path) -> str:
    where = ", ".join(f"{name}/ ({count} files)" for name, count in source.contents.items())
    return (
        f"{source.name} cannot be fetched from here. {source.by_hand} Home page: {source.home}. "
        f"Licence: {source.licence}. Put into {home}: {where}. Then: "
        f"trimol data check {source.name}"
    )


def _refuse_half(source: Source, home: Path) -> None:
    for name, count in source.contents.items():
        if (home / name).exists():
            try:
                contents.check_count(home / name, count)
            except BadData as error:
                raise BadData(f"{error}; remove it and fetch it again") from error


def _addresses(file: File, source: Source, mirrors: Sequence[str] | None) -> list[str]:
    if mirrors is None and file.addresses:
        return list(file.addresses)
    chosen = source.mirrors if mirrors is None else mirrors
    return [mirror + PurePosixPath(file.name).name for mirror in chosen]


def check(source: Source, folder: Path | None = None) -> tuple[list[Path], list[str]]:
    """Whether a data set is whole.

    Args:
        source: Which.
        folder: Under which folder; by default the first of `places` that has anything of it.

    Returns:
        Where its files, and its folders of many files, should be; and what is wrong with them, one
        line each.
    """
    home = (_begun(source) if folder is None else folder) / source.folder
    return [home / name for name in source.names], list(_problems(source, home))


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
        contents.check(home, source.contents)
    except (MissingData, BadData) as error:
        yield str(error)


def _begun(source: Source) -> Path:
    known = list(places())
    begun = (p for p in known if any((p / source.folder / n).exists() for n in source.names))
    return next(begun, known[0])
