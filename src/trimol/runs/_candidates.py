"""Candidates of a method as runs in folders: tried in one place, moved to another when chosen."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimol.runs import store
from trimol.runs._over_seeds import Progress, StepCount
from trimol.runs._pool import execute_all
from trimol.runs._storage import StoreError, make_folder
from trimol.runs.config import RunConfig, configure, hyperparameters_of
from trimol.runs.store import StoredRun
from trimol.tasks.task import Goals
from trimol.training import Diverged

FINAL, TUNING = "runs", store.ASIDE
CHECKPOINTS = 5  # of a run, if nothing interrupts it


@dataclass(frozen=True)
class Candidate:
    """A setting of a method that is tried.

    Attributes:
        lr: α.
        hyperparameters: The method's own, by name.
        task_options: Options of the task that go with it, such as ``weight_decay``.
    """

    lr: float
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, Any]:
        """All of it, by name."""
        return {"lr": self.lr, **self.hyperparameters, **self.task_options}


@dataclass(frozen=True)
class Series:
    """A method with its candidates, or single-task learning of one objective.

    Attributes:
        label: What it is called in tables and folders.
        task: The task.
        method: The method's name.
        goals: The metrics that judge it.
        candidates: What is tried.
        batch_size: Samples a step.
        epoch: The steps of an epoch: the metrics are taken after each.
        epochs: How many epochs a run has.
        options: The task's options.
        measure_epochs: Epochs between measurements; 0 for the end only.
    """

    label: str
    task: str
    method: str
    goals: Goals
    candidates: tuple[Candidate, ...]
    batch_size: int
    epoch: int
    epochs: int
    options: Mapping[str, Any] = field(default_factory=dict)
    measure_epochs: int = 0

    @property
    def steps(self) -> int:
        """The steps of a run."""
        return self.epoch * self.epochs

    def config(self, candidate: Candidate, seed: int) -> RunConfig:
        """The run of a candidate with a seed, which is also that of the method's random numbers."""
        own = {"seed": seed} if "seed" in hyperparameters_of(self.method) else {}
        return configure(
            self.task,
            self.method,
            lr=candidate.lr,
            hyperparameters={**own, **candidate.hyperparameters},
            task_options={**self.options, **candidate.task_options},
            steps=self.steps,
            batch_size=self.batch_size,
            seed=seed,
            score_every=self.epoch,
            measure_every=self.epoch * self.measure_epochs,
            checkpoint_every=max(1, self.steps // CHECKPOINTS),
        )

    def key(self, candidate: Candidate) -> str:
        """What names a candidate's runs, whatever their seed."""
        return self.config(candidate, 0).key

    @property
    def folder(self) -> str:
        """Its label as the name of a folder.

        >>> Series("modo (paper's budget)", "digits", "modo", {}, (), 64, 1, 1).folder
        'modo-paper-s-budget'
        """
        return re.sub(r"[^\w.]+", "-", self.label).strip("-")


Wanted = tuple[Series, Candidate, int]


class RunFolders:
    """A folder in which the runs of every `Series` are executed.

    A candidate's folder is at one of two places: below ``tuning-only`` until it is chosen, below
    ``runs`` from then on.

    Args:
        path: The folder.
        jobs: How many runs at a time.
        total: The steps of all runs that will be asked for.
        watch: Called with (done, total), in steps.
    """

    def __init__(self, path: Path, jobs: int, total: int, watch: Progress | None = None) -> None:
        self.path, self.jobs = path, jobs
        self.count = StepCount(total, watch)

    def execute(self, wanted: Sequence[Wanted]) -> list[StoredRun | Diverged]:
        """Execute runs, going on with those that are unfinished; in their order."""
        runs = [
            (series.config(candidate, seed), self._place(series, candidate) / f"seed-{seed}")
            for series, candidate, seed in wanted
        ]
        executed = execute_all(runs, jobs=self.jobs, watch=self.count, together=False)
        for (config, folder), run in zip(runs, executed, strict=True):
            self.count(config, config.steps)
            if isinstance(run, StoredRun):  # a finished run is never resumed
                (folder / store.CHECKPOINT).unlink(missing_ok=True)
        return executed

    def choose(self, series: Series, candidate: Candidate) -> None:
        """Make a candidate's runs the series's final ones, and no other's."""
        key = series.key(candidate)
        final, tuning = self.path / FINAL / series.folder, self.path / TUNING / series.folder
        make_folder(final)
        for other in sorted(final.iterdir()):
            if other.name != key:
                _move(other, tuning)
        if (tuning / key).exists():
            _move(tuning / key, final)
        make_folder(final / key)

    def _place(self, series: Series, candidate: Candidate) -> Path:
        key = series.key(candidate)
        final = self.path / FINAL / series.folder / key
        return final if final.exists() else self.path / TUNING / series.folder / key


def _move(folder: Path, into: Path) -> None:
    make_folder(into)
    try:
        os.rename(folder, into / folder.name)
    except OSError as error:
        raise StoreError(f"cannot move {folder} into {into}: {error.strerror}") from error
