"""What a comparison of tuned methods is to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trimol import methods
from trimol._checks import number_of_runs, whole_number
from trimol._failures import BadValue
from trimol.compare._epochs import drop
from trimol.methods._registry import BASELINE
from trimol.runs._judging import checked_goals
from trimol.runs.config import task_of
from trimol.search._setting import Setting
from trimol.tasks.task import Goals


@dataclass(frozen=True)
class TuningPlan:
    """What is compared.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``. It has `Task.goals`, validation data and
            the option ``only``.
        settings: What is tried of every method.
        epochs: Length of each run: passes through the longest of the task's data sets.
        batch_size: Samples per step; where a task has one data set per objective, of each.
        options: The task's options.
        seeds: Number of final runs of a method.
        tuning_seeds: How many of them are run of every setting.
        extend: How often a method's settings are added to, where the best is at an edge of the
            numbers tried: from there over each edge, one number at a time, by the factor between
            the edge and what was tried next to it. Numbers of which one value is tried stay.
        budget: ``"equal"``: all methods take the same samples per step and the same steps.
            ``"paper"``: methods that take k > 1 draws are *also* run as the paper's authors ran
            them, as ``<method> (paper's budget)``: their epoch ended when every one of k loaders,
            with a k-th of the batch each, was used up, so that it has k times the steps. Their
            settings are those chosen at equal budgets.
        measure_epochs: Epochs between measurements of λ and the errors; 0 for the end only. (Runs
            for tuning are measured as often: they may become final.)
        reference: The method that ΔA_st is against, and whose settings (without its
            hyper-parameters) are tried for single-task learning.
        baselines: Single-task results from elsewhere, by name and metric: ΔA_id is given against
            these too.
    """

    task: str
    settings: Sequence[Setting]
    epochs: int
    batch_size: int
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 5
    tuning_seeds: int = 1
    extend: int = 0
    budget: Literal["equal", "paper"] = "equal"
    measure_epochs: int = 0
    reference: str = BASELINE
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "seeds", "tuning_seeds"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("measure_epochs", "extend"):
            whole_number(name, getattr(self, name), least=0)
        number_of_runs("seeds × methods", self.seeds * len(self.methods))
        if self.tuning_seeds > self.seeds:
            raise BadValue(
                f"tuning_seeds must be at most seeds={self.seeds}, found {self.tuning_seeds}"
            )
        if self.budget not in ("equal", "paper"):
            raise BadValue(f"budget must be equal or paper, found {self.budget!r}")
        if self.reference not in self.methods:
            listed = ", ".join(self.methods) or "the settings' methods"
            raise BadValue(f"reference must be one of {listed}, found {self.reference!r}")
        for method in self.methods:
            if methods.growth(method):
                raise BadValue(
                    f"methods must take the same samples at every step, found {method!r}, whose "
                    "batches grow"
                )

    @property
    def methods(self) -> dict[str, list[Setting]]:
        """The settings of each method."""
        grouped: dict[str, list[Setting]] = {}
        for setting in self.settings:
            grouped.setdefault(setting.method, []).append(setting)
        return grouped

    def check_goals(self) -> Goals:
        """Return the task's goals, once what the plan needs of the task is known to be there."""
        task = task_of(self.task, self.options)
        goals = checked_goals(task.goals)
        if set(goals) != set(task.objectives):
            raise BadValue(
                f"goals of {task.name} must be of {', '.join(task.objectives)}, found "
                f"{', '.join(goals)}"
            )
        if task.data().validation is None:
            raise BadValue(f"{task.name} must have validation data to choose epochs by, found none")
        for name, baseline in self.baselines.items():
            try:
                drop(baseline, baseline, goals)
            except ValueError as error:
                raise BadValue(f"baselines[{name!r}]: {error}") from error
        return goals
