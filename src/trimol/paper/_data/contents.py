"""What a data set's folder holds: as many files as it must, and every file that is listed."""

from collections.abc import Mapping
from pathlib import Path

from trimol.paper._data.images import resolve
from trimol.paper._data.places import BadData, MissingData

LISTS = "splits"  # the folder of the lists: lines of a path and a label


def check(home: Path, counts: Mapping[str, int]) -> None:
    """Refuse folders that do not hold as many files as they must, or not all that are listed.

    Args:
        home: The data set's folder.
        counts: How many files each of these folders in it must hold, with those in folders below.

    Raises:
        MissingData: A folder, or a listed file, is not there.
        BadData: A folder holds another number of files.
    """
    for name, wanted in counts.items():
        if not (home / name).is_dir():
            raise MissingData(f"{home / name} is not there: it should hold {wanted} files")
        check_count(home / name, wanted)
    resolve(home, listed(home))


def check_count(folder: Path, wanted: int) -> None:
    """Refuse a folder that holds another number of files (hidden ones do not count)."""
    found = sum(not path.name.startswith(".") for path in folder.rglob("*") if path.is_file())
    if found != wanted:
        raise BadData(f"{folder} is not whole: it holds {found} files instead of {wanted}")


def listed(home: Path) -> list[str]:
    """The files that the lists of a data set name, relative to its folder.

    >>> listed(Path("no such folder"))
    []
    """
    lists = sorted((home / LISTS).glob("*.txt"))
    lines = (line for path in lists for line in path.read_text(encoding="utf-8").splitlines())
    return [line.rsplit(" ", 1)[0] for line in lines if line.strip()]
