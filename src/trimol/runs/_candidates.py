"""What is tried of a method: candidates, and the runs that they are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimol.runs.config import RunConfig, configure, hyperparameters_of
from trimol.tasks.task import Goals

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
