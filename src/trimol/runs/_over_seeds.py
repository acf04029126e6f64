"""Settings, each run with several seeds, and what was measured as one table a setting."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars

from trimol.runs import store
from trimol.runs._journal import Progress, StepCount
from trimol.runs._pool import at_a_time, execute_all
from trimol.runs.comparison import folder_name, readings
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.training import Diverged


def run_over_seeds(
    settings: Sequence[RunConfig],
    seeds: int | Sequence[int],
    folder: Path,
    watch: Progress | None = None,
    *,
    jobs: int | None = None,
    on: str | None = None,
) -> list[list[StoredRun | Diverged]]:
    """Run each setting with so many seeds, or read what is finished.

    Args:
        settings: What is run; the same one twice is run once.
        seeds: The seeds of each, or how many it has: then from 0.
        folder: Where runs are kept, in a folder that belongs to studies: reports pass over them.
        watch: Called with (done, total), in steps of all runs.
        jobs: How many at a time; by default as many as there are cores, here or on a cluster.
        on: A Ray cluster to run them on (`execute_all`).

    Returns:
        For each setting its runs in the order of the seeds; where one diverged, that it did.
    """
    each = [_seeded(setting, seeds) for setting in settings]
    runs = {c.key: (c, _folder(c, folder)) for own in each for c in own}
    count = StepCount(sum(config.steps for config, _ in runs.values()), watch)
    for config, path in runs.values():
        count(config, config.steps if (path / store.SUMMARY).exists() else 0)
    executed = execute_all(list(runs.values()), jobs=at_a_time(jobs, on), watch=count, on=on)
    by_key = dict(zip(runs, executed, strict=True))
    return [[by_key[config.key] for config in own] for own in each]


def begun(setting: RunConfig, seeds: int, folder: Path) -> list[StoredRun]:
    """What is on disk of a setting, finished or not; nothing before all seeds are measured."""
    found = []
    for config in _seeded(setting, seeds):
        path = _folder(config, folder)
        if not (path / store.METRICS).exists():
            return []
        found.append(store.load(path))
    steps = set.intersection(*(set(run.metrics["step"]) for run in found))
    alike = polars.col("step").is_in(sorted(steps))  # one may have been written when it stopped
    return [replace(run, metrics=run.metrics.filter(alike)) for run in found]


def _seeded(setting: RunConfig, seeds: int | Sequence[int]) -> list[RunConfig]:
    listed = range(seeds) if isinstance(seeds, int) else seeds
    return [setting.model_copy(update={"seed": seed}) for seed in listed]


def _folder(config: RunConfig, folder: Path) -> Path:
    return folder / store.OF_STUDIES / folder_name(config)


def table_of(runs: Sequence[StoredRun | Diverged]) -> polars.DataFrame:
    """What was measured of one setting; of runs that are not finished, so far.

    Returns:
        One row a seed and measurement: ``seed``, then the record (`trimol.training.records`), then
        of all seeds together ``E_ca_definition`` and ``E_ca_unbiased``, and the seconds of wall
        clock that training and measuring the whole run took (0 while it is not finished).

    Raises:
        Diverged: A run did.
    """
    stored = []
    for seed, run in enumerate(runs):
        if isinstance(run, Diverged):
            raise Diverged(f"the run with seed {seed} diverged: {run}")
        stored.append(run)
    table = polars.concat([_rows(run) for run in stored], how="diagonal")
    together = [{"step": step, **_readings(stored, step)} for step in sorted(set(table["step"]))]
    readings_ = polars.DataFrame(together, infer_schema_length=None)  # most steps have none
    return table.join(readings_, on="step", maintain_order="left").sort("step", maintain_order=True)


def seconds(table: polars.DataFrame) -> tuple[float, float]:
    """The seconds of wall clock that training and measuring all seeds of a setting took."""
    last = at_end(table)
    return float(last["train_seconds"].sum()), float(last["measure_seconds"].sum())


def at_end(table: polars.DataFrame) -> polars.DataFrame:
    """The last measurement of every seed."""
    return table.filter(polars.col("step") == table["step"].max())


def _rows(run: StoredRun) -> polars.DataFrame:
    took = run.summary or {}
    measuring = took.get("measuring", 0.0)
    return run.metrics.select(
        polars.lit(run.config.seed, polars.Int64).alias("seed"),
        polars.all(),
        polars.lit(took.get("seconds", 0.0) - measuring).alias("train_seconds"),
        polars.lit(measuring).alias("measure_seconds"),
    )


def _readings(runs: Sequence[StoredRun], step: int) -> dict[str, float]:
    """The readings of E_ca over seeds, at a step whose vectors were kept."""
    config = runs[0].config
    if config.validation_only or step not in (config.steps, *config.measure_at):
        return {}
    return readings([r.direction if step == config.steps else r.directions[step] for r in runs])
