"""What a run leaves in its folder, in an order that makes a kill at any moment harmless.

The configuration comes first, the summary comes last. A checkpoint holds the records and scores up
to its step, from which the tables on disk are written anew; of the vectors, which are large, it has
the digests. What was measured after it is measured again.
"""

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from trimol._failures import BadValue
from trimol.runs import _run_state as run_state
from trimol.runs import store
from trimol.runs._environment import environment, now
from trimol.runs._storage import (
    Damaged,
    StoreError,
    read_table,
    read_tensors,
    write_json,
    write_table,
    write_tensors,
)
from trimol.runs.config import RunConfig
from trimol.tasks import Task
from trimol.training import Diverged
from trimol.training.records import Record

Watch = Callable[[RunConfig, int, Record | None], None]
Progress = Callable[[int, int], None]
# Between checkpoints, how old the tables on disk may be (for those who look on), in seconds.
STALE = 2.0


class Journal:
    """One run's records, scores and files.

    Args:
        config: The run.
        path: Its folder; None in a process that does not write.
        watch: Told of its steps and records.
        along: Whether it only goes along with others, as it is finished or not asked for.

    Attributes:
        failed: That it diverged, once it has.
        saved: Whether there is a checkpoint to go on from.
    """

    def __init__(
        self, config: RunConfig, path: Path | None, watch: Watch | None, *, along: bool = False
    ) -> None:
        self.config, self.path, self.watch, self.along = config, path, watch, along
        self.begun = along
        self.saved = False
        self.records: list[Record] = []
        self.scores: list[Record] = []
        self.directions: dict[int, Tensor] = {}
        self.failed: Diverged | None = None
        self.when = time.monotonic()  # when the tables were written last
        self.written: dict[str, int] = {}  # how much of each is on disk
        self.digests: dict[str, str] = {}  # of the files that were written
        self.vectors: dict[int, str] = {}  # the digests of the directions

    def begin(self) -> None:
        """Say what is run, and where, unless that has been said."""
        if self.begun or self.failed is not None:
            return
        self.begun = True
        if not self._there(store.CONFIG):
            self._write(write_json, store.CONFIG, self.config.model_dump(mode="json"))
        if not self._there(store.ENVIRONMENT):
            self._write(write_json, store.ENVIRONMENT, environment())
        if self.path is not None:
            run_state.begin(self.path)

    def stop(self, error: BaseException) -> None:
        """Say on disk why it has stopped, if it had begun and is not finished."""
        if self.begun and self.path is not None and not self._there(store.SUMMARY):
            with suppress(StoreError):  # the disk may be full: the error itself says more
                run_state.stop(self.path, error, saved=self.saved)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of it: rows, column by column; None if it only goes along."""
        if self.along:
            return None
        rows = {store.METRICS: self.records, store.SCORES: self.scores}
        columns = {
            name: store.table(own).to_dict(as_series=False) if own else {}
            for name, own in rows.items()
        }
        return {**columns, store.DIRECTIONS: dict(self.vectors)}

    def resume(self, step: int, kept: dict[str, Any] | None) -> None:
        """Take over what a checkpoint of this step keeps; an older version's has only the step."""
        if self.path is None or self.along:
            return
        self.records, self.scores = _rows(self.path, step, kept)
        self.directions = _directions(self.path, step, kept)
        self.vectors = {at: _digest(vector) for at, vector in self.directions.items()}

    def measured(self, record: Record, direction: Tensor | None) -> None:
        """Note a measurement."""
        self.records.append(record)
        step = int(record["step"])
        if direction is not None and step in self.config.measure_at:
            self.directions[step] = vector = direction.float()
            self.vectors[step] = _digest(vector)
        self.tell(step, record)

    def tell(self, step: int, record: Record | None = None) -> None:
        """Tell who watches of a step, or of a measurement."""
        if self.watch is not None:
            self.watch(self.config, step, record)

    def write_stale(self) -> None:
        """Write what is new, unless that was done just now."""
        if time.monotonic() - self.when > STALE:
            self.write_tables()

    def write_tables(self) -> None:
        """Write what is new."""
        for name, rows in ((store.METRICS, self.records), (store.SCORES, self.scores)):
            if len(rows) > self.written.get(name, 0):
                self._write(write_table, name, store.table(rows))
            self.written[name] = len(rows)
        if len(self.directions) > self.written.get(store.DIRECTIONS, 0):
            self._write(write_tensors, store.DIRECTIONS, self.directions)
        self.written[store.DIRECTIONS] = len(self.directions)
        self.when = time.monotonic()

    def finish(
        self,
        *,
        model: dict[str, Tensor],
        direction: Tensor | None,
        took: dict[str, float],
        task: Task,
        unrepeatable: str,
        parts: list[Record],
    ) -> None:
        """Write the last files."""
        self.write_tables()
        record, goals = self.records[-1], task.goals
        if not self.config.validation_only:
            self._write(write_tensors, store.MODEL, model)
            self._write(write_tensors, store.DIRECTION, direction)
        summary = {
            "record": {k: v if math.isfinite(v) else None for k, v in record.items()},
            "steps": record["step"],
            "samples": record["samples"],
            **{name: round(seconds, 3) for name, seconds in took.items()},
            "finished": now(),
            "task": task.name,
            **({"goals": {name: dict(own) for name, own in goals.items()}} if goals else {}),
            **({"unrepeatable": unrepeatable} if unrepeatable else {}),
            **({"without_parts": parts} if parts else {}),
            "digests": {name: own for name, own in self.digests.items() if name in store.LAST},
        }
        self._write(write_json, store.SUMMARY, summary)
        if self.path is not None:
            run_state.finish(self.path)

    def _there(self, name: str) -> bool:
        return self.path is not None and (self.path / name).exists()

    def _write(self, how: Callable[[Path, Any], str], name: str, content: Any) -> None:
        if self.path is not None:
            self.digests[name] = how(self.path / name, content)


def check_complete(config: RunConfig, folder: Path, step: int, kept: dict[str, Any] | None) -> None:
    """Check that all rows and vectors are there that a checkpoint of this step builds on.

    Raises:
        Damaged: Some are gone from the disk, or not the same.
        BadValue: Some are not in the checkpoint that must have them.
    """
    every, scored = config.measure_every, config.score_every
    at = {asked for asked in config.measure_at if asked < step}
    needed = {
        store.METRICS: at | set(range(0, step, every) if every else ()),
        store.SCORES: set(range(scored, step + 1, scored) if scored else ()),
        store.DIRECTIONS: set() if config.validation_only else at,
    }
    records, scores = _rows(folder, step, kept)
    there: dict[str, set[int]] = {
        store.METRICS: {int(row["step"]) for row in records},
        store.SCORES: {int(row["step"]) for row in scores},
        store.DIRECTIONS: set(_directions(folder, step, kept)),
    }
    for name, steps in needed.items():
        if missing := steps - there[name]:
            if kept is not None:
                raise BadValue(f"{name} must have step {min(missing)} in it, found none")
            raise Damaged(f"{folder / name} lacks step {min(missing)}, which was measured")


def _rows(
    folder: Path, step: int, kept: dict[str, Any] | None
) -> tuple[list[Record], list[Record]]:
    """The records and scores that a checkpoint keeps; an older version's are on disk."""
    if kept is None:
        tables = [folder / name for name in (store.METRICS, store.SCORES)]
        records, scores = (
            store.records(read_table(table)) if table.exists() else [] for table in tables
        )
    else:
        records, scores = (
            store.records(store.table(_by_row(kept[name])))
            for name in (store.METRICS, store.SCORES)
        )
    # A step is measured before x moves in it, and scored when it has.
    return (
        [row for row in records if row["step"] < step],
        [row for row in scores if row["step"] <= step],
    )


def _by_row(columns: dict[str, list[Any]]) -> list[Record]:
    """The rows of a table that was saved column by column."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _directions(folder: Path, step: int, kept: dict[str, Any] | None) -> dict[int, Tensor]:
    """The vectors on disk up to a step, which must be those that a checkpoint knows."""
    file = folder / store.DIRECTIONS
    there = read_tensors(file) if file.exists() else {}
    vectors = {at: vector for at, vector in there.items() if at < step}
    if kept is not None:
        known = kept[store.DIRECTIONS]
        for at, digest in known.items():
            if at not in vectors or _digest(vectors[at]) != digest:
                raise Damaged(f"{file} lacks the vector of step {at} that was measured")
        vectors = {at: vectors[at] for at in known}
    return vectors


def _digest(vector: Tensor) -> str:
    """The digest of a vector's numbers."""
    return hashlib.sha256(vector.cpu().numpy().tobytes()).hexdigest()


class StepCount:
    """Counts the steps of many runs, for one who watches them as a whole: (done, total)."""

    def __init__(self, total: int, watch: Progress | None) -> None:
        self.total, self.watch, self.done = total, watch, 0
        self.each: dict[str, int] = {}

    def __call__(self, config: RunConfig, step: int, record: Record | None = None) -> None:
        self.done += step - self.each.get(config.key, 0)
        self.each[config.key] = step
        if self.watch is not None:
            self.watch(self.done, self.total)
