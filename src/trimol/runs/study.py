"""A study's results on disk: rows for machines, tables as parquet, figures, and what to make of it.

A study's folder holds ``study.json`` (rows, notes, the command that made it, the environment), one
``<table>.parquet`` per table, and its figures. ``study.json`` is written last, so that a study that
was interrupted never looks finished.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

from trimol._failures import BadValue
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
    if not path.is_file():
        raise BadValue(f"folder must hold {FILE}, found none in {folder}")
    content = files.read_json(path)
    missing = {"study", "title", "rows", "files"} - set(content)
    if missing:
        raise BadValue(f"{path} must have {', '.join(sorted(missing))}")
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
    return [load(path.parent) for path in sorted(Path(folder).rglob(FILE))]


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
            files.say(f"{error.flaw}: the part of the study is computed again")
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


def _plain(own: Row) -> Row:
    """A row that JSON can hold: NaN and inf, which it cannot, become null."""
    missing = [name for name in COLUMNS if name not in own]
    if missing:
        raise BadValue(f"a row must have {', '.join(missing)}, found only {sorted(own)}")
    return {name: _number(value) for name, value in own.items()}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
