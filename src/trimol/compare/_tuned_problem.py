"""Runs that are scored after every epoch: tried in one place, moved to another when chosen."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from trimol import methods
from trimol.compare._epochs import drop, judge_run, rank, read_validation_points
from trimol.compare._tuning_plan import TuningPlan
from trimol.runs import store
from trimol.runs._journal import Progress, StepCount
from trimol.runs._judging import flat_goals
from trimol.runs._pool import at_a_time, execute_all
from trimol.runs._storage import StoreError, make_folder
from trimol.runs.config import RunConfig, steps_per_epoch
from trimol.runs.store import StoredRun
from trimol.search._problem import (
    FINAL,
    Failure,
    Outcome,
    Training,
    checked_point,
    configure_setting,
)
from trimol.search._score import Scorer
from trimol.search._setting import Setting
from trimol.search._trial import Point, Trial
from trimol.tasks.task import Better, Goals
from trimol.training import Diverged

ALONE = "alone"  # what single-task learning is called among the methods
PAPERS_BUDGET = "{} (paper's budget)"


@dataclass(frozen=True)
class Recipe:
    """How the settings of a label are run: of a method, or of single-task learning.

    Attributes:
        method: The method's name.
        goals: The metrics that judge it.
        epoch: Steps of an epoch.
        options: The task's options.
        alone: Whether it is single-task learning.
    """

    method: str
    goals: Goals
    epoch: int
    options: Mapping[str, Any]
    alone: bool = False


class EpochProblem:
    """A task by runs whose metrics are taken after every epoch.

    The method of a `Setting` is the label of its `Recipe`. A setting's folder is at one of two
    places: below ``tuning-only`` until it is chosen, below ``runs`` from then on.

    Attributes:
        recipes: How settings are run, by label.
        grids: What is tried at first, by label; nothing at the paper's budget.
        runs: Those that were trained, by the setting's key and the seed.
    """

    spread = False

    def __init__(
        self,
        plan: TuningPlan,
        folder: Path,
        watch: Progress | None = None,
        *,
        jobs: int | None,
        on: str | None = None,
    ) -> None:
        self.plan, self.folder, self.goals = plan, folder, plan.check_goals()
        self.objectives: Sequence[str] = list(self.goals)
        self.ways: Mapping[str, Better] = flat_goals(self.goals)
        self.recipes = self._recipes()
        self.grids = {label: self._grid(label) for label in self.recipes}
        self.runs: dict[tuple[str, int], StoredRun] = {}
        self._count = StepCount(sum(map(self._all_steps, self.recipes)), watch)
        self._jobs, self._on = at_a_time(jobs, on), on

    def _recipes(self) -> dict[str, Recipe]:
        """List the labels: single-task learning, methods, methods at the paper's budget."""
        plan, goals = self.plan, self.goals
        epoch = self._epoch(plan.batch_size)
        recipes = {}
        for objective, own in goals.items():
            options = {**plan.options, "only": objective}
            one = Recipe(plan.reference, {objective: own}, epoch, options, alone=True)
            recipes[f"{ALONE}-{objective}"] = one
        recipes |= {method: Recipe(method, goals, epoch, plan.options) for method in plan.methods}
        for method in plan.methods if plan.budget == "paper" else ():
            draws = methods.get(method).draws
            if draws > 1:
                longer = Recipe(method, goals, self._epoch(plan.batch_size // draws), plan.options)
                recipes[PAPERS_BUDGET.format(method)] = longer
        return recipes

    def _epoch(self, batch_size: int) -> int:
        return steps_per_epoch(self.plan.task, batch_size, self.plan.options)

    def _grid(self, label: str) -> list[Setting]:
        """List the settings of a label; those that are the same runs once."""
        recipe, settings = self.recipes[label], self.plan.methods.get(label, [])
        if recipe.alone:
            like = self.plan.methods[recipe.method]
            settings = [replace(own, method=label, hyperparameters={}) for own in like]
        return list({self._key(setting): setting for setting in settings}.values())

    def rate(self, method: str) -> float:
        """Return the first learning rate that is tried."""
        return self.plan.settings[0].lr

    def _steps(self, label: str) -> int:
        """Return the steps of a run."""
        return self.recipes[label].epoch * self.plan.epochs

    def _all_steps(self, label: str) -> int:
        """Return the steps of all runs, unless the grid is extended."""
        first = self.plan.tuning_seeds if self.grids[label] else 0
        return self._steps(label) * (len(self.grids[label]) * first + self.plan.seeds - first)

    def config(self, setting: Setting, seed: int) -> RunConfig:
        """Return the run of a setting."""
        recipe = self.recipes[setting.method]
        return configure_setting(
            self.plan.task,
            replace(setting, method=recipe.method),
            seed,
            options=recipe.options,
            steps=self._steps(setting.method),
            batch_size=self.plan.batch_size,
            score_every=recipe.epoch,
            measure_every=recipe.epoch * self.plan.measure_epochs,
        )

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Train all of them, resuming runs that are unfinished."""
        for setting in (training.setting for training in trainings if not training.final):
            if setting not in self.grids[setting.method]:  # beyond an edge
                self._count.total += self._steps(setting.method)
        jobs = [(self.config(t.setting, t.seed), self._place(t)) for t in trainings]
        done = execute_all(jobs, jobs=self._jobs, watch=self._count, together=False, on=self._on)
        for training, (config, folder), run in zip(trainings, jobs, done, strict=True):
            self._count(config, config.steps)
            if isinstance(run, StoredRun):
                (folder / store.CHECKPOINT).unlink(missing_ok=True)  # it is never resumed
                self.runs[training.setting.key, training.seed] = run
        return [
            judge_epochs(run, self.recipes[training.setting.method].goals)
            for training, run in zip(trainings, done, strict=True)
        ]

    def choose(self, setting: Setting) -> None:
        """Make a setting's runs the final ones of its label, and no other's."""
        final, tuning, key = self._places(setting)
        make_folder(final)
        for other in sorted(final.iterdir()):
            if other.name != key:
                _move(other, tuning)
        if (tuning / key).exists():
            _move(tuning / key, final)
        make_folder(final / key)

    def _place(self, training: Training) -> Path:
        final, tuning, key = self._places(training.setting)
        return (final if (final / key).exists() else tuning) / key / f"seed-{training.seed}"

    def _places(self, setting: Setting) -> tuple[Path, Path, str]:
        """Return a label's folders of final and of other runs, and the setting's name in them."""
        label = re.sub(r"[^\w.]+", "-", setting.method).strip("-")
        return self.folder / FINAL / label, self.folder / store.ASIDE / label, self._key(setting)

    def _key(self, setting: Setting) -> str:
        """Name a setting's runs, whatever their seed."""
        return self.config(setting, 0).key


def _move(folder: Path, into: Path) -> None:
    make_folder(into)
    try:
        os.rename(folder, into / folder.name)
    except OSError as error:
        raise StoreError(f"cannot move {folder} into {into}: {error.strerror}") from error


def judge_epochs(run: StoredRun | Diverged, goals: Goals) -> Outcome:
    """Return the metrics on validation data at the best epochs, or why there are none."""
    if isinstance(run, Diverged):
        return Failure(run)
    ways = flat_goals(goals)
    for point in read_validation_points(run.scores, ways):
        checked = checked_point(point, ways)
        if isinstance(checked, Failure):
            return checked
    return judge_run(run, goals).validation


class EpochScorer(Scorer):
    """Scores settings by −ΔA against single-task learning, and single-task ones by `rank`.

    Args:
        problem: Whose settings are scored.

    Attributes:
        baseline: Metrics of single-task learning on validation data; empty until they are known.
    """

    def __init__(self, problem: EpochProblem) -> None:
        super().__init__(problem.ways)
        self.problem = problem
        self.baseline: Point = {}

    def fit(self, points: Sequence[Point], others: Sequence[Point] = ()) -> None:
        """Do nothing: scores are relative to single-task learning."""

    def score(self, point: Point) -> float:
        """Return −ΔA; −∞ where it is relative to 0."""
        lost = drop(point, self.baseline, self.problem.goals) if self.baseline else math.nan
        return -math.inf if math.isnan(lost) else -lost

    def score_seeds(self, trials: Sequence[Trial]) -> list[list[float]]:
        """Return the scores of complete trials of one label, seed by seed."""
        if not trials:
            return []
        points = [point for trial in trials for point in trial.points.values()]
        recipe = self.problem.recipes[trials[0].setting.method]
        single = rank(points, flat_goals(recipe.goals)) if recipe.alone else []
        scores = iter(single or map(self.score, points))
        return [[next(scores) for _ in trial.points] for trial in trials]

    def update(self, trials: Sequence[Trial]) -> None:
        """Score complete trials anew: the mean over their seeds."""
        complete = [trial for trial in trials if trial.is_complete]
        for trial, scores in zip(complete, self.score_seeds(complete), strict=True):
            trial.score = fmean(scores)
