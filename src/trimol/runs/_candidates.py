"""What is tried of a method: candidates, and the runs that they are."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimol.runs.config import RunConfig, configure, hyperparameters_of, is_number
from trimol.tasks.task import Goals
from trimol.training.loop import Schedule

CHECKPOINTS = 5  # of a run, if nothing interrupts it


@dataclass(frozen=True)
class Candidate:
    """A setting of a method that is tried.

    Attributes:
        lr: α.
        hyperparameters: The method's own, by name.
        task_options: Options of the task that go with it, such as ``weight_decay``.
        schedule: How α falls to 0 over the steps; None: it stays.
    """

    lr: float
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None = None

    @property
    def numbers(self) -> dict[str, Any]:
        """All of it that may be numbers, by name."""
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
        validation_only: Whether runs are only looked at on validation data, at their end.
        hold_out: Samples of train that are the validation data of a task without.
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
    validation_only: bool = False
    hold_out: int = 0

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
            schedule=candidate.schedule,
            hyperparameters={**own, **candidate.hyperparameters},
            task_options={**self.options, **candidate.task_options},
            steps=self.steps,
            batch_size=self.batch_size,
            seed=seed,
            score_every=0 if self.validation_only else self.epoch,
            validation_only=self.validation_only,
            hold_out=self.hold_out,
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


def edges(candidate: Candidate, candidates: Sequence[Candidate]) -> list[str]:
    """The numbers of a candidate that are the smallest or largest of those tried.

    >>> edges(Candidate(0.1, {"gamma": 1.0}), [Candidate(lr, {"gamma": 1.0}) for lr in (0.1, 1)])
    ['lr']
    """
    at_edge = []
    for name, value in candidate.numbers.items():
        tried = _tried(name, candidates)
        if len(tried) > 1 and is_number(value) and value in (tried[0], tried[-1]):
            at_edge.append(name)
    return at_edge


def beyond(candidate: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidate moved over each edge that it is at, one number at a time.

    By the factor of the grid: as far from the edge as the edge is from what was tried next to it.
    A number that is not positive is at no edge that could be moved.

    >>> tried = [Candidate(lr, {"gamma": 1.0}) for lr in (0.1, 0.5)]
    >>> beyond(tried[1], tried)[0].lr
    2.5
    """
    more = []
    for name in edges(candidate, candidates):
        tried, value = _tried(name, candidates), candidate.numbers[name]
        if tried[0] <= 0:
            continue
        beside = tried[1] if value == tried[0] else tried[-2]
        # Rounded, or 5e-4 · (5e-4 / 1e-4) is 0.0025000000000000005.
        more.append(_with(candidate, name, float(f"{value * value / beside:.12g}")))
    return more


def _tried(name: str, candidates: Sequence[Candidate]) -> list[float]:
    """The values of a number that were tried, in order."""
    return sorted({c.numbers[name] for c in candidates if is_number(c.numbers.get(name))})


def _with(candidate: Candidate, name: str, value: float) -> Candidate:
    """The candidate with another number."""
    if name == "lr":
        return replace(candidate, lr=value)
    if name in candidate.hyperparameters:
        return replace(candidate, hyperparameters={**candidate.hyperparameters, name: value})
    return replace(candidate, task_options={**candidate.task_options, name: value})
