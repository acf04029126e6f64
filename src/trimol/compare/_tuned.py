"""Multi-task methods against each other and against single-task learning, at equal budgets.

`compare_tuned` works off a `TuningPlan`: each method is tuned on validation data, run with several
seeds and judged on test data at the epochs that validation data chose. All is done by ordinary runs
in folders of their own, so a study that was killed resumes, and nothing is run twice:

- ``runs/<method>/<key>/seed-<n>`` are the final runs, and nothing else, to be reported on;
  ``runs/alone-<objective>/…`` are those of single-task learning;
- ``tuning-only/<method>/<key>/seed-<n>`` are the runs of settings that were not chosen, which
  `trimol.runs.store.find` passes over;
- ``seeds.parquet`` and ``tuning.parquet`` are the tables of the `TunedResults`.

``<key>`` names what decides the runs apart from the seed. A setting's folder is in one of the two
places: in ``tuning-only`` until it is chosen, then it is moved as it is, and its finished seeds are
the first of the final ones. (Another comparison in the same folder that chooses otherwise moves it
back.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars

from trimol._checks import MOST_RUNS
from trimol.compare import _tuned_tables as tables
from trimol.compare._epochs import judge_run
from trimol.compare._tuned_problem import EpochProblem, EpochScorer
from trimol.compare._tuning_plan import TuningPlan
from trimol.runs._journal import Progress
from trimol.runs._lock import locked
from trimol.runs._storage import make_folder, write_table
from trimol.runs.store import StoredRun
from trimol.search._grid import GridSampler, exhaust
from trimol.search._problem import Failure, Training
from trimol.search._setting import Setting
from trimol.search._study import BudgetStudy
from trimol.search._trial import Point
from trimol.training import Diverged


@dataclass(frozen=True)
class TunedResults:
    """What a comparison of tuned methods found.

    Attributes:
        seeds: One row per method, seed and metric: ``value`` on test data at the ``epoch`` that is
            best on validation data for the metric's objective, ``joint`` at the ``joint_epoch``
            that is best for all. ``ΔA_id`` (against the mean of single-task learning), ``ΔA_st``
            (against the mean of the reference method) and ``ΔA_id (<name>)`` (against the
            plan's baselines) are metrics too, without epochs, and so are ``ΔA_id/<objective>``
            and ``ΔA_st/<objective>``, one objective's share of them. Single-task learning is the
            method ``alone``.
        tuning: One row per setting (``candidate`` is its number): its ``score`` on validation data
            (−ΔA_id, mean over seeds; of single-task learning, as epochs are compared; −∞ if a run
            diverged, as the ``note`` says), whether it was ``chosen``, which of its numbers are at
            the ``edge`` of those tried, and how many settings ``tied`` with it at the top (the
            first is chosen). How stable the choice is: how far it is ``behind`` the chosen one,
            with half its 95 % interval (``behind_ci``) over the seeds it was tried with, whether
            it is ``worse`` than the chosen one by more than the noise (Holm's p for all settings
            of the method), and of how many seeds, each taken alone, it would be the first
            (``first_of_seeds``).
        curves: The records of the final runs, per ``method`` and ``seed``.
        scores: The metrics of the final runs, per ``method``, ``seed`` and ``epoch``; single-task
            runs by the names of their folders.
        settings: The setting that was chosen, by method.
        baseline: The means over seeds of single-task learning on test data, by metric.
        runs: The final runs, by method.
    """

    seeds: polars.DataFrame
    tuning: polars.DataFrame
    curves: polars.DataFrame
    scores: polars.DataFrame
    settings: dict[str, Setting]
    baseline: Point
    runs: dict[str, list[StoredRun]]


def compare_tuned(
    plan: TuningPlan,
    folder: Path | str,
    *,
    jobs: int | None = None,
    watch: Progress | None = None,
    on: str | None = None,
) -> TunedResults:
    """Run a comparison of tuned methods, or resume it, or read what is finished.

    Single-task learning is given what the methods are: as many samples of the objective per step,
    as many steps, and the same rules for the choice of setting and epoch.

    Args:
        plan: What is compared.
        folder: Where the runs are kept.
        jobs: How many runs at a time; by default as many as there are cores, here or on a cluster.
        watch: Called with (done, total), in steps of all runs.
        on: A Ray cluster to run them on (`trimol.runs.execute_all`).

    Raises:
        Diverged: A final run did, or every setting of a method.
    """
    path = Path(folder)
    work = _Comparison(plan, EpochProblem(plan, path, watch, jobs=jobs, on=on))  # needs the data
    make_folder(path)
    with locked(path):
        outcome = work.run()
        write_table(path / "seeds.parquet", outcome.seeds)
        write_table(path / "tuning.parquet", outcome.tuning)
    return outcome


class _Comparison:
    """One comparison of tuned methods at work."""

    def __init__(self, plan: TuningPlan, problem: EpochProblem) -> None:
        self.plan, self.problem = plan, problem
        samplers = {
            label: GridSampler(grid, extend=plan.extend)
            for label, grid in problem.grids.items()
            if grid
        }
        seeds = range(plan.tuning_seeds)
        self.study = BudgetStudy(problem, samplers, MOST_RUNS, seeds=seeds)
        self.study.scorer = self.scorer = EpochScorer(problem)
        self.settings: dict[str, Setting] = {}

    def run(self) -> TunedResults:
        """Tune and run single-task learning, then the methods against it."""
        plan, problem, study = self.plan, self.problem, self.study
        study.round({label: len(grid) for label, grid in problem.grids.items() if grid})
        goals = {label: own.goals for label, own in problem.recipes.items() if own.alone}
        alone = self._finish(list(goals))
        baseline = tables.average(
            judge_run(run, goals[label]) for label, runs in alone.items() for run in runs
        )
        self.scorer.baseline = baseline.validation
        study.try_settings({})  # scores all again, against the baseline
        longer = [label for label, grid in problem.grids.items() if not grid]
        compared = self._finish(list(plan.methods), longer)
        seeds = tables.tabulate_seeds(compared, plan, problem.goals, baseline)
        return TunedResults(
            seeds=polars.concat([tables.tabulate_alone(alone, goals), seeds]),
            tuning=tables.tabulate_trials(study, self.scorer),
            curves=tables.join_records(compared, "metrics"),
            scores=tables.join_records(alone | compared, "scores"),
            settings=self.settings,
            baseline=baseline.test,
            runs=alone | compared,
        )

    def _finish(self, labels: list[str], longer: Sequence[str] = ()) -> dict[str, list[StoredRun]]:
        """Extend the grids of labels, choose, and run what was chosen with all seeds."""
        exhaust(self.study, labels)
        chosen = {label: self.study.best(label).setting for label in labels}
        for label in longer:
            chosen[label] = replace(chosen[self.problem.recipes[label].method], method=label)
        self.settings |= chosen
        for setting in chosen.values():
            self.problem.choose(setting)
        seeds = range(self.plan.seeds)
        asked = [Training(own, seed, final=True) for own in chosen.values() for seed in seeds]
        for training, outcome in zip(asked, self.study.train(asked), strict=True):
            if isinstance(outcome, Failure):
                label = training.setting.method
                raise Diverged(f"{label} diverged with seed {training.seed}: {outcome}")
        runs = self.problem.runs
        return {label: [runs[own.key, seed] for seed in seeds] for label, own in chosen.items()}
