"""Multi-task methods against each other and against single-task learning, at equal budgets.

`compare_tuned` works off a `TuningPlan`: each method is tuned on validation data, run with several
seeds and judged on test data at the epochs that validation data chose. All is done by ordinary runs
in folders of their own, so a study that was killed goes on, and nothing is run twice:

- ``runs/<method>/<key>/seed-<n>`` are the final runs, and nothing else, to be reported on;
  ``runs/alone-<objective>/…`` are those of single-task learning;
- ``tuning-only/<method>/<key>/seed-<n>`` are the runs of candidates that were not chosen, which
  `trimol.runs.store.find` passes over;
- ``seeds.parquet`` and ``tuning.parquet`` are the tables of the `Outcome`.

``<key>`` names what decides the runs beside the seed. A candidate's folder is in one of the two
places: in ``tuning-only`` until it is chosen, then it is moved as it is, and its finished seeds are
the first of the final ones. (Another comparison in the same folder that chooses otherwise moves it
back.)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import polars

from trimol import methods
from trimol._checks import number_of_runs, whole_number
from trimol._failures import BadValue
from trimol.methods._registry import BASELINE
from trimol.runs import _tuning_tables as tables
from trimol.runs._candidates import Candidate, Series, beyond
from trimol.runs._journal import Progress
from trimol.runs._judging import checked_goals, chosen, drop, jointly, standing
from trimol.runs._lock import locked
from trimol.runs._run_folders import RunFolders, Wanted
from trimol.runs._storage import make_folder, write_table
from trimol.runs._tuning_tables import ALONE, Judged, Values, judged, means
from trimol.runs.config import steps_per_epoch, task_of
from trimol.runs.store import StoredRun
from trimol.tasks.task import Goals
from trimol.training import Diverged

__all__ = [
    "ALONE",
    "PAPERS_BUDGET",
    "Candidate",
    "Outcome",
    "TuningPlan",
    "chosen",
    "compare_tuned",
    "drop",
    "jointly",
]

Tried = list[list[StoredRun | Diverged]]  # by candidate, then by seed
PAPERS_BUDGET = "{} (paper's budget)"


@dataclass(frozen=True)
class TuningPlan:
    """What is compared.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``. It has `Task.goals`, validation data and
            the option ``only``.
        methods: For each method what is tried.
        epochs: How long each run is: passes through the longest of the task's data sets.
        batch_size: Samples a step; where a task has one data set per objective, of each.
        options: The task's options.
        seeds: How many final runs a method has.
        tuning_seeds: How many of them are run of every candidate.
        extend: How often a method's candidates are added to, where one is chosen at an edge of the
            numbers tried: from there over each edge, one number at a time, by the factor between
            the edge and what was tried next to it. Numbers of which one value is tried stay.
        budget: ``"equal"``: all methods take the same samples a step and the same steps.
            ``"paper"``: methods that take k > 1 draws are *also* run as the paper's authors ran
            them, as ``<method> (paper's budget)``: their epoch ended when every one of k loaders,
            with a k-th of the batch each, was used up, so that it has k times the steps. Their
            settings are those chosen at equal budgets.
        measure_epochs: Epochs between measurements of λ and the errors; 0 for the end only. (Runs
            for tuning are measured as often: they may become final.)
        reference: The method that ΔA_st is against, and whose candidates (but for its own
            hyper-parameters) are tried for single-task learning.
        baselines: Single-task results from elsewhere, by name and metric: ΔA_id is given against
            these too.
    """

    task: str
    methods: Mapping[str, Sequence[Candidate]]
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
            raise BadValue(
                f"reference must be one of {', '.join(self.methods)}, found {self.reference!r}"
            )
        for method, candidates in self.methods.items():
            _check_method(method, candidates)


@dataclass(frozen=True)
class Outcome:
    """What a comparison of tuned methods found.

    Attributes:
        seeds: One row per method, seed and metric: ``value`` on test data at the ``epoch`` that is
            best on validation data for the metric's objective, ``joint`` at the ``joint_epoch``
            that is best for all. ``ΔA_id`` (against the mean of single-task learning), ``ΔA_st``
            (against the mean of the reference method) and ``ΔA_id (<name>)`` (against the
            plan's baselines) are metrics too, without epochs, and so are ``ΔA_id/<objective>``
            and ``ΔA_st/<objective>``, one objective's share of them. Single-task learning is the
            method ``alone``.
        tuning: One row per candidate: its setting, its ``score`` on validation data (−ΔA_id, mean
            over seeds; of single-task learning, as `chosen` compares epochs; −∞ if a run diverged,
            as the ``note`` says), whether it was ``chosen``, which of its numbers are at the
            ``edge`` of those tried, and how many candidates ``tied`` with it at the top (the first
            is chosen). How stable the choice is: how far it is ``behind`` the chosen one, with half
            its 95 % interval (``behind_ci``) over the seeds it was tried with, whether it is
            ``worse`` than the chosen one by more than the noise (Holm's p for all candidates of the
            method), and of how many seeds, each taken alone, it would be the first
            (``first_of_seeds``).
        curves: The records of the final runs, per ``method`` and ``seed``.
        scores: The metrics of the final runs, per ``method``, ``seed`` and ``epoch``; single-task
            runs by the names of their folders.
        settings: The candidate that was chosen, by method.
        baseline: The means over seeds of single-task learning on test data, by metric.
        runs: The final runs, by method.
    """

    seeds: polars.DataFrame
    tuning: polars.DataFrame
    curves: polars.DataFrame
    scores: polars.DataFrame
    settings: dict[str, Candidate]
    baseline: Values
    runs: dict[str, list[StoredRun]]


def compare_tuned(
    plan: TuningPlan,
    folder: Path | str,
    *,
    jobs: int | None = None,
    watch: Progress | None = None,
    on: str | None = None,
) -> Outcome:
    """Run a comparison of tuned methods, or go on with it, or read what is finished.

    Single-task learning is given what the methods are: as many samples of the objective a step, as
    many steps, and the same rules for the choice of setting and epoch.

    Args:
        plan: What is compared.
        folder: Where the runs are kept.
        jobs: How many runs at a time; by default as many as there are cores, here or on a cluster.
        watch: Called with (done, total), in steps of all runs.
        on: A Ray cluster to run them on (`trimol.runs.execute_all`).

    Raises:
        Diverged: A final run did, or every candidate of a method.
    """
    path = Path(folder)
    planned = _Work(plan, path, watch, jobs=jobs, on=on)  # needs the data: before any folder
    make_folder(path)
    with locked(path):
        outcome = planned.outcome()
        write_table(path / "seeds.parquet", outcome.seeds)
        write_table(path / "tuning.parquet", outcome.tuning)
    return outcome


class _Work:
    """One comparison of tuned methods at work."""

    def __init__(
        self,
        plan: TuningPlan,
        folder: Path,
        watch: Progress | None,
        *,
        jobs: int | None,
        on: str | None,
    ) -> None:
        self.plan = plan
        self.goals = _goals(plan)
        self.epoch = self._steps_per_epoch(plan.batch_size)
        self.compared = [_all_different(self._method(method)) for method in plan.methods]
        self.alone = [self._single(objective) for objective in self.goals]
        self.longer = {
            series.label: self._longer(series)
            for series in self.compared
            if plan.budget == "paper" and _draws(series.method) > 1
        }
        self.settings: dict[str, Candidate] = {}
        self.tuning: list[dict[str, Any]] = []
        self.folders = RunFolders(folder, self._steps(), watch, jobs=jobs, on=on)

    def outcome(self) -> Outcome:
        plan, tried = self.plan, self._tried([*self.alone, *self.compared])
        for series in self.alone:
            self._tune(series, tried[series.label], None)
        alone = self._final(self.alone)
        baseline = means(judged(run, e) for e in self.alone for run in alone[e.label])
        for series in self.compared:
            self._tune(series, tried[series.label], baseline)
        for label, series in self.longer.items():
            self._settle(series, self.settings[label])
        compared = [*self.compared, *self.longer.values()]
        runs = self._final(compared)
        seeds = tables.of_seeds(
            compared, runs, reference=plan.reference, baseline=baseline, others=plan.baselines
        )
        return Outcome(
            seeds=polars.concat([tables.of_alone(self.alone, alone), seeds]),
            tuning=polars.DataFrame(self.tuning, infer_schema_length=None),
            curves=tables.over_training(compared, runs, "metrics"),
            scores=tables.over_training([*self.alone, *compared], alone | runs, "scores"),
            settings=self.settings,
            baseline=baseline.test,
            runs=alone | runs,
        )

    def _method(self, method: str) -> Series:
        plan = self.plan
        return Series(
            label=method,
            task=plan.task,
            method=method,
            goals=self.goals,
            candidates=tuple(plan.methods[method]),
            batch_size=plan.batch_size,
            epoch=self.epoch,
            epochs=plan.epochs,
            options=plan.options,
            measure_epochs=plan.measure_epochs,
        )

    def _single(self, objective: str) -> Series:
        """Single-task learning, at the samples and steps that the methods have."""
        like = self._method(self.plan.reference)
        tried = {like.key(c): c for c in (replace(c, hyperparameters={}) for c in like.candidates)}
        return replace(
            like,
            label=f"{ALONE}-{objective}",
            goals={objective: self.goals[objective]},
            candidates=tuple(tried.values()),
            options={**like.options, "only": objective},
        )

    def _longer(self, series: Series) -> Series:
        """A method at the paper's budget: see `TuningPlan.budget`."""
        share = self.plan.batch_size // _draws(series.method)
        label = PAPERS_BUDGET.format(series.label)
        return replace(series, label=label, epoch=self._steps_per_epoch(share))

    def _steps_per_epoch(self, batch_size: int) -> int:
        return steps_per_epoch(self.plan.task, batch_size, self.plan.options)

    def _steps(self) -> int:
        """The steps of all runs."""
        first, all_ = self.plan.tuning_seeds, self.plan.seeds
        tuned = [*self.alone, *self.compared]
        return sum(e.steps * (len(e.candidates) * first + all_ - first) for e in tuned) + sum(
            e.steps * all_ for e in self.longer.values()
        )

    def _tried(self, all_series: Sequence[Series]) -> dict[str, Tried]:
        """Every candidate with the first seeds."""
        first = range(self.plan.tuning_seeds)
        wanted: list[Wanted] = [(e, c, s) for e in all_series for c in e.candidates for s in first]
        executed = iter(self.folders.execute(wanted))
        return {
            e.label: [[next(executed) for _ in first] for _ in e.candidates] for e in all_series
        }

    def _tune(self, series: Series, tried: Tried, baseline: Judged | None) -> None:
        """Choose the candidate that is best on validation data; the first of equals.

        Where one is chosen at an edge, those beyond it are tried, too: `TuningPlan.extend`.
        """
        rows = _judged_candidates(series, tried, baseline)
        for _ in range(self.plan.extend):
            more = beyond(_chosen(series, rows), series.candidates)
            if not more:
                break
            added = replace(series, candidates=tuple(more))
            self.folders.count.total += self.plan.tuning_seeds * series.steps * len(more)
            tried = [*tried, *self._tried([added])[series.label]]
            series = replace(series, candidates=(*series.candidates, *more))
            rows = _judged_candidates(series, tried, baseline)
        self.tuning += rows
        self._settle(series, _chosen(series, rows))

    def _settle(self, series: Series, candidate: Candidate) -> None:
        self.settings[series.label] = candidate
        self.folders.choose(series, candidate)

    def _final(self, all_series: Sequence[Series]) -> dict[str, list[StoredRun]]:
        """The runs of what was chosen, with all seeds."""
        seeds = range(self.plan.seeds)
        wanted = [(e, self.settings[e.label], seed) for e in all_series for seed in seeds]
        runs: dict[str, list[StoredRun]] = {e.label: [] for e in all_series}
        for (series, _, seed), run in zip(wanted, self.folders.execute(wanted), strict=True):
            if isinstance(run, Diverged):
                raise Diverged(f"{series.label} diverged with seed {seed}: {run}")
            runs[series.label].append(run)
        return runs


def _judged_candidates(
    series: Series, tried: Tried, baseline: Judged | None
) -> list[dict[str, Any]]:
    """The candidates' rows of the table `Outcome.tuning`."""
    notes = [_failure(runs, series) for runs in tried]
    if all(notes):
        raise Diverged(f"no candidate of {series.label} came to an end: {notes[0]}")
    usable = [
        [judged(run, series) for run in runs if isinstance(run, StoredRun)]
        for runs, note in zip(tried, notes, strict=True)
        if not note
    ]
    left = iter(_scores(series, usable, baseline))
    # NaN: relative to a baseline of 0.
    scores = [
        [-math.inf if math.isnan(score) else score for score in next(left)]
        if not note
        else [-math.inf] * len(runs)
        for runs, note in zip(tried, notes, strict=True)
    ]
    return tables.of_candidates(series, scores, notes)


def _chosen(series: Series, rows: Sequence[Mapping[str, Any]]) -> Candidate:
    """The candidate that its row says was chosen."""
    return next(c for c, row in zip(series.candidates, rows, strict=True) if row["chosen"])


def _scores(
    series: Series, tried: Sequence[Sequence[Judged]], baseline: Judged | None
) -> list[list[float]]:
    """How good candidates are on validation data, seed by seed: larger is better.

    −ΔA against single-task learning; without it, as `chosen` compares epochs.
    """
    if baseline is not None:
        return [
            [-drop(run.validation, baseline.validation, series.goals) for run in runs]
            for runs in tried
        ]
    (metrics,) = series.goals.values()
    each = [run.validation for runs in tried for run in runs]
    left = iter(standing({m: [values[m] for values in each] for m in metrics}, metrics))
    return [[next(left) for _ in runs] for runs in tried]


def _failure(runs: Sequence[StoredRun | Diverged], series: Series) -> str:
    """Why a candidate is out of question; empty if it is not."""
    for run in runs:
        if isinstance(run, Diverged):
            return str(run)
        for metric in (name for metrics in series.goals.values() for name in metrics):
            if f"validation/{metric}" not in run.scores.columns:
                has = [c.partition("/")[2] for c in run.scores.columns if c.startswith("test/")]
                raise BadValue(
                    f"goals must name metrics of the task ({', '.join(has)}), found {metric!r}"
                )
            if not run.scores[f"validation/{metric}"].is_finite().all():
                return f"{metric} on validation data became NaN or infinite"
    return ""


def _draws(method: str) -> int:
    return methods.get(method).draws


def _goals(plan: TuningPlan) -> Goals:
    """The task's goals, once what the plan needs of it is known to be there."""
    task = task_of(plan.task, plan.options)
    goals = checked_goals(task.goals)
    if set(goals) != set(task.objectives):
        raise BadValue(
            f"goals of {task.name} must be of {', '.join(task.objectives)}, found "
            f"{', '.join(goals)}"
        )
    if task.data().validation is None:
        raise BadValue(f"{task.name} must have validation data to choose epochs by, found none")
    for name, baseline in plan.baselines.items():
        try:
            drop(baseline, baseline, goals)
        except ValueError as error:
            raise BadValue(f"baselines[{name!r}]: {error}") from error
    return goals


def _all_different(series: Series) -> Series:
    """The series, if no two candidates are the same runs: they would share a folder."""
    keys = [series.key(candidate) for candidate in series.candidates]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise BadValue(
                f"candidates of {series.label} must be different, found {keys.index(key)} and "
                f"{number} alike: {series.candidates[number]}"
            )
    return series


def _check_method(method: str, candidates: Sequence[Candidate]) -> None:
    if not candidates:
        raise BadValue(f"methods[{method!r}] must have a candidate, found none")
    if methods.growth(method):
        raise BadValue(
            f"methods must take the same samples at every step, found {method!r}, whose batches "
            "grow"
        )
