"""Tuned static weighting against tuned methods, at equal samples and at equal time.

Every contender is tried alike (:mod:`trimol.runs._trying`): its own hyper-parameters (for static
weighting, the weights) × step sizes × schedules, then around the best on validation data. What is
chosen is run again with seeds that the choice has not seen (:mod:`trimol.runs._final_runs`), and
judged on test data (:mod:`trimol.runs.verdict`): once with as many steps as the baseline has, once
with as many as take the baseline's time.

In the folder, ``tuning-only/`` has the trials, ``runs/`` the final runs, ``costs-….json`` the
measured cost of a step, so that a study that is resumed has the same steps, and ``stopped-….json``,
where time is limited, how many rounds of trials there were, and how many around the best.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars

from trimol.runs import _storage as files
from trimol.runs._candidates import Candidate
from trimol.runs._final_runs import final
from trimol.runs._grids import usual_trials
from trimol.runs._journal import Progress
from trimol.runs._lock import locked
from trimol.runs._run_folders import RunFolders
from trimol.runs._trial_plan import TrialPlan as TrialPlan
from trimol.runs._trial_stages import Final, mean_point
from trimol.runs._trial_verdict import judged, volumes_of
from trimol.runs._trying import BEST, Trying
from trimol.runs._trying import held_out as held_out
from trimol.runs.config import task_of
from trimol.runs.statistics import Interval, bootstrap
from trimol.runs.store import StoredRun
from trimol.runs.verdict import Verdict, Ways


@dataclass(frozen=True)
class Trial:
    """What a trial found.

    Attributes:
        verdict: What the rule says.
        ways: The metrics that were judged by, and which way is better.
        scales: What each of them is relative to in the scores that settings were chosen by.
        settings: What was chosen, by contender.
        tuning: One row per setting that was tried, as in the ``tuning`` of `trimol.runs.Outcome`.
        costs: How long a step of each contender takes, in steps of the baseline.
        steps: The steps of each contender at equal time.
        runs: The final runs at equal samples, by contender.
        timed: Those at equal time.
        failed: Final runs that diverged, in words.
        reached: The hypervolume of all that each contender's settings reach on validation data, the
            mean over tuning seeds with a bootstrap interval; empty where it was not computed.
        reference: The reference point of the hypervolume, by metric.
        points: The settings' metrics on validation data, means over seeds, by contender.
        notes: What a reader has to know about how the trial went.
        held_out: Samples of train that were its validation data; 0 where the task has its own.
    """

    verdict: Verdict
    ways: Ways
    scales: dict[str, float]
    settings: dict[str, Candidate]
    tuning: polars.DataFrame
    costs: dict[str, float]
    steps: dict[str, int]
    runs: dict[str, list[StoredRun]]
    timed: dict[str, list[StoredRun]]
    failed: list[str]
    reached: dict[str, Interval]
    reference: dict[str, float]
    points: dict[str, list[dict[str, float]]]
    notes: list[str]
    held_out: int


def trial(
    plan: TrialPlan,
    folder: Path | str,
    *,
    jobs: int | None = None,
    on: str | None = None,
    watch: Progress | None = None,
    stage: Callable[[str], None] | None = None,
) -> Trial:
    """Run a trial, or go on with it, or read what is finished.

    Args:
        plan: What is tried.
        folder: Where the runs are kept.
        jobs: How many runs at a time; as many as there are cores by default.
        on: A Ray cluster to run them on (`trimol.runs.execute_all`).
        watch: Called with (done, total), in steps of all runs that are known of.
        stage: Told in a few words what is being done.

    Raises:
        Diverged: Every setting of static weighting did, or every final run.
    """
    path, say = Path(folder), stage or (lambda _: None)
    task = task_of(plan.task, plan.options)
    count = plan.trials or usual_trials(len(task.objectives))
    each = count * plan.tuning_seeds + (BEST + 2) * plan.seeds
    total = plan.steps * len(plan.contenders) * each
    folders = RunFolders(path, total, watch, jobs=jobs, on=on, together=True)
    trying = Trying(plan, task, path, folders, say)
    files.make_folder(path)
    with locked(path):
        trying.run()
        found = _concluded(trying, final(trying, path, say))
        files.write_table(path / "tuning.parquet", found.tuning)
    return found


def _concluded(trying: Trying, done: Final) -> Trial:
    plan, tried = trying.plan, trying.tried
    points = {name: tried.points(name) for name in trying.series}
    reference, volumes = volumes_of(points, tried.ways, plan.tuning_seeds)
    verdict, notes = judged(done, tried.ways, tried.sizes, volumes, plan.seeds)
    rows = [row for name in trying.series for row in trying.rows(name)]
    return Trial(
        verdict=verdict,
        ways=tried.ways,
        scales=tried.scales,
        settings=done.settings,
        tuning=polars.DataFrame(rows, infer_schema_length=None),
        costs=done.costs,
        steps=done.steps,
        runs=done.runs,
        timed=done.timed,
        failed=done.failed,
        reached={name: _mean_over_seeds(own) for name, own in volumes.items()},
        reference=reference,
        points={name: [mean_point(each) for each in own] for name, own in points.items()},
        notes=[*trying.notes, *notes],
        held_out=trying.held_out,
    )


def _mean_over_seeds(volumes: Sequence[float]) -> Interval:
    values = np.array(volumes)
    return bootstrap(lambda places: float(values[places].mean()), len(values))
