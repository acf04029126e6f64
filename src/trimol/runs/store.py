"""The results store: one folder a run, readable while it runs and after.

- ``config.json``: what was asked for (`RunConfig`);
- ``environment.json``: the versions, machine and time of its start;
- ``metrics.parquet``: the records, one row a measurement (:mod:`trimol.training.records`);
- ``scores.parquet``: the task's metrics over training, if they were asked for: ``step``,
  ``validation_loss/<objective>`` and ``validation/<metric>`` (of a task with validation data),
  ``test/<metric>``;
- ``checkpoint.pt``: where to go on from, with the records and scores up to there;
  ``checkpoint.previous``: the one before, until the run is finished (of runs that train together
  both are beside their folders: :mod:`trimol.runs._together`);
- ``model.pt``, ``direction.pt``: the parameters at the end, and the vector ∇F_S(λ − λ*_ρ) there;
- ``directions.pt``: these vectors at the steps that were asked for, by step, in single precision;
- ``state.json``: who runs it, or why it stopped; until it is finished
  (:mod:`trimol.runs._run_state`);
- ``summary.json``: the last record, what it took (of runs that train together, its share), the
  task's goals, where it has any, why its steps do not repeat bit for bit, where they are known not
  to (``unrepeatable``), and the digests of the tables, parameters and vectors. It is there exactly
  if the run is finished.

A run that is only looked at on validation data (``validation_only``) has these numbers in its
record, and neither parameters nor vectors.

Each holds the digest of its own content, which is checked before it is read
(:mod:`trimol.runs._storage`). Other files in the folder are left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars
from pydantic import ValidationError
from torch import Tensor

from trimol import _files
from trimol._warnings import say
from trimol.runs import _run_state
from trimol.runs._storage import (
    Damaged,
    StoreError,
    check,
    earlier,
    read_json,
    read_table,
    read_tensors,
)
from trimol.runs.config import RunConfig, one_line
from trimol.tasks.loading import are_goals
from trimol.training.records import COUNTS, Record, objectives_of

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.parquet"
SCORES = "scores.parquet"
CHECKPOINT = "checkpoint.pt"
PREVIOUS = earlier(Path(CHECKPOINT)).name
MODEL = "model.pt"
DIRECTION = "direction.pt"
DIRECTIONS = "directions.pt"
SUMMARY = "summary.json"
STATE = _run_state.FILE
# What a run writes. The last two are removed last: a kill meanwhile leaves a run that failed.
OWN = (
    *(METRICS, SCORES, PREVIOUS, CHECKPOINT, MODEL, DIRECTION, DIRECTIONS, ENVIRONMENT),
    *(CONFIG, STATE),
)
# The files whose digests a summary has.
LAST = frozenset({METRICS, SCORES, DIRECTIONS, MODEL, DIRECTION})
# A folder of runs that only served to choose a setting.
ASIDE = "tuning-only"
# A folder of runs that studies share, and report on themselves.
OF_STUDIES = "runs-of-studies"


@dataclass(frozen=True)
class StoredRun:
    """A run as it is on disk.

    Attributes:
        path: Its folder.
        config: What was asked for.
        environment: Versions, machine and time of its start; empty if it never got that far, or if
            the file is damaged.
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
    def task(self) -> str:
        """The task's name; where it was not noted, the file and class that the run was asked by."""
        own = (self.summary or {}).get("task")
        return own if isinstance(own, str) else Path(self.config.task).name

    @property
    def finished(self) -> bool:
        """Whether it got to its end."""
        return self.summary is not None

    @cached_property
    def state(self) -> _run_state.RunState:
        """What has become of it: running, finished, failed or interrupted, and why."""
        return _run_state.read(self.path, finished=self.finished)

    @property
    def record(self) -> Record:
        """The last record of a finished run."""
        if self.summary is None:
            raise StoreError(f"{self.path} is not finished: it has no last record")
        return records(self.metrics)[-1]

    @cached_property
    def direction(self) -> Tensor:
        """∇F_S(λ − λ*_ρ) at the end of a finished run: E_ca is the square of its norm."""
        vector: Tensor = self._tensors(DIRECTION)
        return vector

    @cached_property
    def directions(self) -> dict[int, Tensor]:
        """The same at the steps that the configuration asks for (``measure_at``)."""
        there = (self.path / DIRECTIONS).exists() or DIRECTIONS in _digests(self.summary)
        vectors: dict[int, Tensor] = self._tensors(DIRECTIONS) if there else {}
        return vectors

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The model's ``state_dict`` at the end of a finished run."""
        state: dict[str, Tensor] = self._tensors(MODEL)
        return state

    def _tensors(self, name: str) -> Any:
        """What one of its files holds: of a finished run, the very file that it ended with."""
        return read_tensors(self.path / name, digest=_digests(self.summary).get(name))


def find(folder: Path | str) -> list[StoredRun]:
    """All runs in a folder and the folders below it, finished or not, sorted by path.

    A ``config.json`` that is no run's is passed over, and so are the runs below a folder
    ``tuning-only`` or ``runs-of-studies`` (unless it is the folder asked for, or above it): they
    are not to be mixed with those that are to be looked at.
    """
    return [load(file.parent) for file in configs_in(folder) if is_config(file)]


def configs_in(folder: Path | str) -> list[Path]:
    """What may be the configurations of the runs that `find` finds."""
    return [
        file
        for file in _files.find(Path(folder), CONFIG)
        if not {ASIDE, OF_STUDIES} & set(file.relative_to(folder).parts)
    ]


def load(folder: Path | str, config: RunConfig | None = None) -> StoredRun:
    """The run of one folder.

    Raises:
        StoreError: There is none, or one of its files is damaged, which is named.
    """
    path = Path(folder)
    summary = _summary(path / SUMMARY)
    tables = {name: _table(path / name, summary) for name in (METRICS, SCORES)}
    return StoredRun(
        path=path,
        config=config or read_config(path),
        environment=_environment(path / ENVIRONMENT),
        metrics=tables[METRICS],
        summary=summary,
        objectives=objectives_of(tables[METRICS].columns),
        scores=tables[SCORES],
    )


def load_whole(folder: Path, config: RunConfig | None = None) -> StoredRun:
    """A finished run, every file that it left checked: also those that are read when asked for.

    Raises:
        Damaged: One is not as it was written, or gone.
    """
    run = load(folder, config)
    for name, digest in _digests(run.summary).items():
        if name not in (METRICS, SCORES):
            check(folder / name, digest=digest)
    return run


def _environment(file: Path) -> dict[str, Any]:
    """Versions, machine and time; nothing depends on them, so that a run is read without, too."""
    try:
        found: dict[str, Any] = read_json(file) if file.exists() else {}
    except Damaged as error:
        say(f"{error.flaw}: the run is read without it")
        return {}
    return found


def _digests(summary: dict[str, Any] | None) -> dict[str, str]:
    """The digests of a finished run's files; none of one that an older version wrote."""
    found: dict[str, str] = {} if summary is None else summary.get("digests", {})
    return found


def _table(file: Path, summary: dict[str, Any] | None) -> polars.DataFrame:
    """A table of a run: of a finished one, the very file that it ended with."""
    digest = _digests(summary).get(file.name)
    if digest is None and not file.exists():
        if summary is not None and file.name == METRICS:
            raise Damaged(f"cannot read {file}, which a finished run has: it is gone")
        return polars.DataFrame()
    return read_table(file, digest=digest)


def _summary(file: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None if there is none."""
    if not file.exists():
        return None
    summary = read_json(file)
    needed = {"record", "steps", "samples", "seconds"}
    if (
        not isinstance(summary, dict)
        or not needed <= summary.keys()
        or not isinstance(summary.get("digests", {}), dict)
        or not summary.get("digests", {}).keys() <= LAST
        or not are_goals(summary.get("goals", {}))
    ):
        raise Damaged(f"{file} is damaged or not ours: no summary of a run; move it away")
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
    whole = ("step", "samples", "kept", *COUNTS)
    schema = {name: polars.Int64 if name in whole else polars.Float64 for name in names}
    return polars.DataFrame(list(records), schema=schema)


def records(metrics: polars.DataFrame) -> list[Record]:
    """The records of a table: `table` backwards."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in metrics.to_dicts()
    ]


def is_config(file: Path) -> bool:
    """Whether a file is the configuration of a run, not of something else.

    Raises:
        StoreError: It cannot be read.
    """
    content = read_json(file)
    return isinstance(content, dict) and {"task", "method", "lr", "steps"} <= content.keys()
