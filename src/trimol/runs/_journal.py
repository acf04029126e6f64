"""What a run leaves in its folder, in an order that makes a kill at any moment harmless.

The configuration comes first, a checkpoint comes after the records and scores up to its step, the
summary comes last. On resuming, those of steps that the checkpoint has not done are dropped and
measured again.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from trimol.runs import store
from trimol.runs._environment import environment, now
from trimol.runs._storage import read_table, read_tensors, write_json, write_table, write_tensors
from trimol.runs.config import RunConfig
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
    """

    def __init__(
        self, config: RunConfig, path: Path | None, watch: Watch | None, *, along: bool = False
    ) -> None:
        self.config, self.path, self.watch, self.along = config, path, watch, along
        self.begun = along
        self.records: list[Record] = []
        self.scores: list[Record] = []
        self.directions: dict[int, Tensor] = {}
        self.failed: Diverged | None = None
        self.when = time.monotonic()  # when the tables were written last
        self.written: dict[str, int] = {}  # how much of each is on disk

    def begin(self) -> None:
        """Say what is run, and where, unless that has been said."""
        if self.begun:
            return
        self.begun = True
        if not self._there(store.CONFIG):
            self._write(write_json, store.CONFIG, self.config.model_dump(mode="json"))
        if not self._there(store.ENVIRONMENT):
            self._write(write_json, store.ENVIRONMENT, environment())

    def resume(self, step: int) -> None:
        """Take over what is on disk up to a step."""
        # A step is measured before x moves in it, and scored when it has.
        self.records = [row for row in self._kept(store.METRICS) if row["step"] < step]
        self.scores = [row for row in self._kept(store.SCORES) if row["step"] <= step]
        if self.path is not None and self._there(store.DIRECTIONS):
            kept = read_tensors(self.path / store.DIRECTIONS)
            self.directions = {at: vector for at, vector in kept.items() if at < step}

    def measured(self, record: Record, direction: Tensor | None) -> None:
        """Note a measurement."""
        self.records.append(record)
        step = int(record["step"])
        if direction is not None and step in self.config.measure_at:
            self.directions[step] = direction.float()
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
        self, *, model: dict[str, Tensor], direction: Tensor | None, took: dict[str, float]
    ) -> None:
        """Write the last files."""
        self.write_tables()
        record = self.records[-1]
        if not self.config.validation_only:
            self._write(write_tensors, store.MODEL, model)
            self._write(write_tensors, store.DIRECTION, direction)
        summary = {
            "record": {k: v if math.isfinite(v) else None for k, v in record.items()},
            "steps": record["step"],
            "samples": record["samples"],
            **{name: round(seconds, 3) for name, seconds in took.items()},
            "finished": now(),
        }
        self._write(write_json, store.SUMMARY, summary)

    def _there(self, name: str) -> bool:
        return self.path is not None and (self.path / name).exists()

    def _kept(self, name: str) -> list[Record]:
        """The rows of a table that is on disk; none if it is not."""
        if self.path is None or not self._there(name):
            return []
        return store.records(read_table(self.path / name))

    def _write(self, how: Callable[[Path, Any], None], name: str, content: Any) -> None:
        if self.path is not None:
            how(self.path / name, content)


def complete(config: RunConfig, folder: Path, step: int) -> bool:
    """Whether a folder has all rows and vectors that a checkpoint of this step builds on."""
    every, scored = config.measure_every, config.score_every
    at = {asked for asked in config.measure_at if asked < step}
    needed = {
        store.METRICS: at | set(range(0, step, every) if every else ()),
        store.SCORES: set(range(scored, step + 1, scored) if scored else ()),
    }
    there = {
        name: set(read_table(folder / name)["step"]) if (folder / name).exists() else set()
        for name in needed
    }
    if not config.validation_only:
        vectors = folder / store.DIRECTIONS
        needed[store.DIRECTIONS] = at
        there[store.DIRECTIONS] = set(read_tensors(vectors)) if vectors.exists() else set()
    return all(rows <= there[name] for name, rows in needed.items())


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
