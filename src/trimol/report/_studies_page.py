"""A study of ``trimol reproduce`` as the page shows it: notes, figures, measured beside paper."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimol.report._numbers import interval, number
from trimol.report._summary import Table
from trimol.runs._storage import StoreError
from trimol.runs.study import COLUMNS, Row, Study

KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
# These have a column of their own beside the setting's.
VERDICT = "verdict"
SPREAD = "paper_std"
INTERVAL = "ci"


@dataclass(frozen=True)
class Picture:
    """A figure inside the page.

    Attributes:
        name: Its file's name.
        uri: The file itself, as a ``data:`` URI.
    """

    name: str
    uri: str


def pictures(study: Study) -> list[Picture]:
    """The study's figures: of one drawn in several formats the vector graphic, once."""
    if study.folder is None:
        return []
    chosen: dict[str, Path] = {}
    for ending in KINDS:
        for name in study.figures:
            path = study.folder / name
            if path.suffix == ending:
                chosen.setdefault(path.stem, path)
    order = list(dict.fromkeys(Path(name).stem for name in study.figures))
    return [_picture(chosen[stem]) for stem in order if stem in chosen]


def measured_and_paper(study: Study) -> Table:
    """The study's rows: mean ± standard deviation, interval, the paper's number and the verdict."""
    rows = study.rows
    settings = dict.fromkeys(
        name for row in rows for name in row if name not in (*COLUMNS, VERDICT, SPREAD, INTERVAL)
    )
    columns = {
        "method": [str(row["method"]) for row in rows],
        **{name: [_setting(row.get(name)) for row in rows] for name in settings},
        "metric": [str(row["metric"]) for row in rows],
        _measured(rows): [_spread(row["mean"], row["std"]) for row in rows],
        "n": [str(row["n"]) for row in rows],
    }
    if any(row.get(INTERVAL) is not None for row in rows):
        columns["95 % interval of the mean"] = [_ends(row) for row in rows]
    if any(row["paper"] is not None for row in rows):
        columns["paper"] = [_spread(row["paper"], row.get(SPREAD)) for row in rows]
    if any(row.get(VERDICT) for row in rows):
        columns["verdict"] = [_setting(row.get(VERDICT)) for row in rows]
    return Table(tuple(columns), tuple(zip(*columns.values(), strict=True)))


def facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """An environment, ready to be listed."""
    return [(name, str(value)) for name, value in environment.items() if value is not None]


def _measured(rows: Sequence[Row]) -> str:
    """The heading of what was measured; a calculation or a single trial has no spread."""
    spread = any(row["std"] is not None for row in rows)
    return "measured (mean ± std)" if spread else "measured"


def _picture(path: Path) -> Picture:
    try:
        content = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    return Picture(path.name, f"data:{KINDS[path.suffix]};base64,{content}")


def _spread(mean: float | None, std: float | None) -> str:
    return number(None) if mean is None else interval(mean, std)


def _ends(row: Row) -> str:
    """From where to where the interval of a mean reaches."""
    half = row.get(INTERVAL)
    if half is None:
        return number(None)
    return f"{number(row['mean'] - half)} to {number(row['mean'] + half)}"


def _setting(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_setting, value))
    return number(None) if value is None else str(value)
