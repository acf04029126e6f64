"""A study's results on disk: rows for machines, tables as parquet, figures, and what to make of it.

A study's folder holds ``study.json`` (rows, notes, the command that made it, the environment), one
``<table>.parquet`` per table, and its figures. ``study.json`` is written last, so that a study that
was interrupted never looks finished.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

from trimol._failures import BadValue
from trimol._files import find as find_files
from trimol._warnings import say
from trimol.runs import _storage as files
from trimol.runs._environment import now

FILE = "study.json"
Row = dict[str, Any]
# What every row says; a row may add its setting, e.g. "gamma".
COLUMNS = ("method", "metric", "mean", "std", "n", "paper")


@dataclass(frozen=True)
class Study:
    """What a study found.

    Attributes:
        name: Its name, as in ``trimol reproduce NAME``.
        title: One line for people.
        rows: One dict a number: method, metric, mean, std, n, paper, and the setting.
        notes: What to make of it, a paragraph each.
        tables: The data behind the rows and figures, by name.
        figures: File names of the figures, relative to the study's folder.
        command: What to type to get it again.
        environment: Versions and machine.
        created: When it was saved (ISO 8601); empty before.
        folder: Where it was loaded from or saved to; None before.
    """

    name: str
    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    tables: Mapping[str, polars.DataFrame] = field(default_factory=dict)
    figures: Sequence[str] = ()
    command: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    folder: Path | None = None

    @property
    def files(self) -> list[str]:
        """All files beside ``study.json``, relative to the study's folder."""
        return [*(f"{name}.parquet" for name in self.tables), *self.figures]

    def summary(self) -> dict[str, Any]:
        """What ``--json`` prints: the study's name, its rows and its files."""
        return {
            "study": self.name,
            "rows": [_plain(row) for row in self.rows],
            "files": list(self.files),
        }


def row(
    method: str, metric: str, values: Sequence[float], *, paper: float | None = None, **setting: Any
) -> Row:
    """Mean and standard deviation of a number over trials, as a row.

    Args:
        method: The method's name, as in ``methods.names()``.
        metric: What was measured.
        values: One value a trial.
        paper: What the paper says, where it says something.
        **setting: What else tells this row from others, e.g. ``gamma=0.01``.

    Example:
        >>> row("modo", "R_opt", [1.0, 3.0], gamma=0.01)["mean"]
        2.0
    """
    if not len(values):
        raise BadValue(f"values of {metric} must not be empty")
    series = polars.Series([float(value) for value in values])
    return {
        "method": method,
        "metric": metric,
        "mean": series.mean(),
        "std": series.std() if len(series) > 1 else None,
        "n": len(series),
        "paper": paper,
        **setting,
    }


def save(study: Study, folder: Path | str) -> Study:
    """Write a study's tables and ``study.json`` into a folder (figures are there already).

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> study = Study("toy", "A toy", rows=[row("static", "R_opt", [1.0])])
        >>> with TemporaryDirectory() as folder:
        ...     load(save(study, folder).folder).rows[0]["mean"]
        1.0
    """
    folder = Path(folder)
    files.make_folder(folder)
    for name, table in study.tables.items():
        files.write_table(folder / f"{name}.parquet", table)
    created = now()
    content = {
        **study.summary(),
        "title": study.title,
        "notes": list(study.notes),
        "figures": list(study.figures),
        "command": study.command,
        "created": created,
        "environment": dict(study.environment),
    }
    files.write_json(folder / FILE, content)
    return Study(**{**vars(study), "created": created, "folder": folder})


def load(folder: Path | str) -> Study:
    """A study that was saved."""
    folder = Path(folder)
    path = folder / FILE
    if not os.path.lexists(path):
        raise BadValue(f"folder must hold {FILE}, found none in {folder}")
    content = files.read_json(path)
    _check(path, content)
    parquets = [Path(name) for name in content["files"] if name.endswith(".parquet")]
    return Study(
        name=content["study"],
        title=content["title"],
        rows=content["rows"],
        notes=content.get("notes", []),
        tables={name.stem: files.read_table(folder / name) for name in parquets},
        figures=content.get("figures", []),
        command=content.get("command", ""),
        environment=content.get("environment", {}),
        created=content.get("created", ""),
        folder=folder,
    )


def find(folder: Path | str) -> list[Study]:
    """All studies in a folder and below it, in the order of their paths."""
    return [load(path.parent) for path in files_in(folder)]


def files_in(folder: Path | str) -> list[Path]:
    """What may be the files of the studies that `find` finds."""
    return find_files(Path(folder), FILE)


def within(folder: Path, path: Path) -> bool:
    """Whether a path stays in a folder, wherever links lead, and whether or not it is there.

    >>> within(Path("runs"), Path("runs/a/../b.svg")), within(Path("runs"), Path("runs/../c.svg"))
    (True, False)
    """
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # half a character: no system has such a file
        return False
    if b"\0" in name:
        return False
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_number(value: Any) -> bool:
    """Whether JSON has a number here that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def is_fact(value: Any, *, deep: int = 2) -> bool:
    """Whether JSON has plain values here: text, numbers and what holds them, not nested deeply.

    >>> is_fact(["a", 1.5, None]), is_fact({"a": {"b": {}}}), is_fact(10**400)
    (True, False, False)
    """
    if isinstance(value, list | dict):
        held = value.values() if isinstance(value, dict) else value
        return deep > 0 and all(is_fact(item, deep=deep - 1) for item in held)
    return value is None or isinstance(value, bool | str) or is_number(value)


def part(
    folder: Path | str,
    name: str,
    settings: Mapping[str, Any],
    compute: Callable[[], Mapping[str, polars.DataFrame]],
) -> dict[str, polars.DataFrame]:
    """Tables that are computed once: a finished part is read, and computed again if it is damaged.

    A part is keyed by all that decides it. It has one file per table, and a list of them that is
    written last: without the list, there is no part.
    """
    stem, folder = part_name(name, settings), Path(folder)
    done = folder / f"{stem}.json"
    if done.is_file():
        try:
            kept = files.read_json(done)
            digests = kept.get("digests", dict.fromkeys(kept["tables"]))  # an older version's: none
            return {
                table: files.read_table(folder / f"{stem}-{table}.parquet", digest=digest)
                for table, digest in digests.items()
            }
        except files.Damaged as error:
            say(f"{error.flaw}: the part of the study is computed again")
    tables = dict(compute())
    files.make_folder(folder)
    digests = {
        table: files.write_table(folder / f"{stem}-{table}.parquet", content)
        for table, content in tables.items()
    }
    files.write_json(done, {"tables": list(tables), "digests": digests, "settings": dict(settings)})
    return tables


def part_name(name: str, settings: Mapping[str, Any]) -> str:
    """The name of a part, by all that decides it."""
    text = json.dumps(dict(settings), sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _check(path: Path, content: Any) -> None:
    """Refuse a file that `save` would not have written: by hand, or somebody else's."""
    needed, names = {"study", "title", "rows", "files"}, ("files", "figures")
    if not isinstance(content, dict) or not needed <= content.keys():
        missing = needed - set(content) if isinstance(content, dict) else needed
        raise BadValue(f"{path} must have {', '.join(sorted(missing))}")
    for name, (fits, wanted) in _KINDS.items():
        if name in content and not fits(content[name]):
            raise BadValue(f"{path}: {name} must be {wanted}")
    for name in (name for key in names for name in content.get(key, [])):
        if not within(path.parent, path.parent / name):
            raise BadValue(f"{path} must name files of its own folder, found {name!r}")
    for place, own in enumerate(content["rows"]):
        _check_row(f"{path}: rows[{place}]", own)


def _check_row(place: str, own: Any) -> None:
    if not isinstance(own, dict) or not {*COLUMNS} <= own.keys():
        raise BadValue(f"{place} must have {', '.join(COLUMNS)}")
    for name, value in own.items():
        # What the paper prints may be words: the rates of its tables.
        text = name == "paper" and isinstance(value, str)
        if name in _NUMBERS and not (value is None or text or is_number(value)):
            raise BadValue(f"{place}: {name} must be a number or null")
        if name in _SIZES and isinstance(value, int | float) and value < 0:
            raise BadValue(f"{place}: {name} must be at least 0, found {value}")
        if not is_fact(value):
            raise BadValue(f"{place}: {name} must be text, numbers, or a list of them")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_facts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_fact, value.values()))


# What `study.json` holds, and which numbers its rows have.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("study", "title", "command", "created"), (_is_text, "text")),
    **dict.fromkeys(("files", "figures"), (_are_texts, "a list of file names")),
    "notes": (_are_texts, "a list of texts"),
    "rows": (_is_list, "a list of rows"),
    "environment": (_are_facts, "values by name"),
}
_SIZES = ("std", "n", "paper_std", "ci")
_NUMBERS = ("mean", "paper", *_SIZES)


def _plain(own: Row) -> Row:
    """A row that JSON can hold: NaN and inf, which it cannot, become null."""
    missing = [name for name in COLUMNS if name not in own]
    if missing:
        raise BadValue(f"a row must have {', '.join(missing)}, found only {sorted(own)}")
    return {name: _number(value) for name, value in own.items()}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
