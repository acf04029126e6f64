"""The results store: one folder a run, readable while it runs and after.

- ``config.json``: what was asked for (`RunConfig`);
- ``environment.json``: the versions, machine and time of its start;
- ``metrics.parquet``: the records, one row a measurement (:mod:`trimol.training.records`);
- ``scores.parquet``: the task's metrics over training, if they were asked for: ``step``,
  ``validation_loss/<objective>`` and ``validation/<metric>`` (of a task with validation data),
  ``test/<metric>``;
- ``checkpoint.pt``: where to go on from (of runs that train together it is one file beside their
  folders: :mod:`trimol.runs._together`);
- ``model.pt``, ``direction.pt``: the parameters at the end, and the vector ∇F_S(λ − λ*_ρ) there;
- ``directions.pt``: these vectors at the steps that were asked for, by step, in single precision;
- ``summary.json``: the last record, and what it took (of runs that train together, its share). It
  is there exactly if the run is finished.

A run that is only looked at on validation data (``validation_only``) has these numbers in its
record, and neither parameters nor vectors.

Other files in the folder are left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars
from pydantic import ValidationError
from torch import Tensor

from trimol.runs._storage import StoreError, read_json, read_table, read_tensors
from trimol.runs.config import RunConfig, one_line
from trimol.training.records import Record, objectives_of

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.parquet"
SCORES = "scores.parquet"
CHECKPOINT = "checkpoint.pt"
MODEL = "model.pt"
DIRECTION = "direction.pt"
DIRECTIONS = "directions.pt"
SUMMARY = "summary.json"
# A folder of runs that only served to choose a setting (`trimol.runs.tuning`).
ASIDE = "tuning-only"
# A folder of runs that studies share, and report on themselves.
OF_STUDIES = "runs-of-studies"


@dataclass(frozen=True)
class StoredRun:
    """A run as it is on disk.

    Attributes:
        path: Its folder.
        config: What was asked for.
        environment: Versions, machine and time of its start; empty if it never got that far.
        metrics: One row a measurement; no rows before the first.
        summary: The last record and what the run took; None while it is unfinished.
        objectives: The names of the objectives, in their order; empty before the first measurement.
        scores: One row each time the metrics were taken; no rows where they were not.
    """

    path: Path
    config: RunConfig
    environment: dict[str, Any]
    metrics: polars.DataFrame
    summary: dict[str, Any] | None
    objectives: tuple[str, ...]
    scores: polars.DataFrame = field(default_factory=polars.DataFrame)

    @property
    def finished(self) -> bool:
        """Whether it got to its end."""
        return self.summary is not None

    @property
    def record(self) -> Record:
        """The last record of a finished run."""
        if self.summary is None:
            raise StoreError(f"{self.path} is not finished: it has no last record")
        return records(self.metrics)[-1]

    @cached_property
    def direction(self) -> Tensor:
        """∇F_S(λ − λ*_ρ) at the end of a finished run: E_ca is the square of its norm."""
        vector: Tensor = read_tensors(self.path / DIRECTION)
        return vector

    @cached_property
    def directions(self) -> dict[int, Tensor]:
        """The same at the steps that the configuration asks for (``measure_at``)."""
        file = self.path / DIRECTIONS
        vectors: dict[int, Tensor] = read_tensors(file) if file.exists() else {}
        return vectors

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The model's ``state_dict`` at the end of a finished run."""
        state: dict[str, Tensor] = read_tensors(self.path / MODEL)
        return state


def find(folder: Path | str) -> list[StoredRun]:
    """All runs in a folder and the folders below it, finished or not, sorted by path.

    A ``config.json`` that is no run's is passed over, and so are the runs below a folder
    ``tuning-only`` or ``runs-of-studies`` (unless it is the folder asked for, or above it): they
    are not to be mixed with those that are to be looked at.
    """
    files = sorted(
        file
        for file in Path(folder).rglob(CONFIG)
        if not {ASIDE, OF_STUDIES} & set(file.relative_to(folder).parts)
    )
    return [load(file.parent) for file in files if _is_config(file)]


def load(folder: Path | str, config: RunConfig | None = None) -> StoredRun:
    """The run of one folder.

    Raises:
        StoreError: There is none, or one of its files is damaged, which is named.
    """
    path = Path(folder)
    environment, metrics, scores = (path / name for name in (ENVIRONMENT, METRICS, SCORES))
    summary = _summary(path / SUMMARY)
    # A finished run has its records: without them it is damaged, and reading says so.
    there = metrics.exists() or summary is not None
    table = read_table(metrics) if there else polars.DataFrame()
    return StoredRun(
        path=path,
        config=config or read_config(path),
        environment=read_json(environment) if environment.exists() else {},
        metrics=table,
        summary=summary,
        objectives=objectives_of(table.columns),
        scores=read_table(scores) if scores.exists() else polars.DataFrame(),
    )


def _summary(file: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None if there is none."""
    if not file.exists():
        return None
    summary = read_json(file)
    needed = {"record", "steps", "samples", "seconds"}
    if not isinstance(summary, dict) or not needed <= summary.keys():
        raise StoreError(f"{file} is damaged or not ours: no summary of a run; move it away")
    return summary


def read_config(folder: Path) -> RunConfig:
    """The configuration in a folder."""
    file = folder / CONFIG
    content = read_json(file)
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise StoreError(f"{file} is no run's configuration: {one_line(error)}") from error


def table(records: Sequence[Record]) -> polars.DataFrame:
    """Records as a table: a column for every key that any of them has, in the order of `Record`.

    >>> table([{"step": 0, "R_opt": 0.5}, {"step": 2, "R_opt": 0.25}]).to_dicts()[1]
    {'step': 2, 'R_opt': 0.25}
    """
    names = dict.fromkeys(name for record in records for name in record)
    schema = {
        name: polars.Int64 if name in ("step", "samples") else polars.Float64 for name in names
    }
    return polars.DataFrame(list(records), schema=schema)


def records(metrics: polars.DataFrame) -> list[Record]:
    """The records of a table: `table` backwards."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in metrics.to_dicts()
    ]


def _is_config(file: Path) -> bool:
    content = read_json(file)
    return isinstance(content, dict) and {"task", "method", "lr", "steps"} <= content.keys()
