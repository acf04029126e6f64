"""`sweep`: good settings of methods by grids, at random, or by Optuna's TPE."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from trimol._checks import whole_number
from trimol.runs._journal import Watch
from trimol.runs._judging import gains
from trimol.runs._lock import locked
from trimol.runs._signals import Interrupted
from trimol.runs._storage import make_folder
from trimol.runs.study import save
from trimol.search._halving import Halving
from trimol.search._plan import SweepPlan
from trimol.search._problem import TaskProblem
from trimol.search._results import Sweep, make_study
from trimol.search._study import BudgetStudy
from trimol.search._trial import Trial, mean_point

# Trials of each method that are asked for at once, where later ones depend on earlier ones, and
# where they do not. These numbers decide what a sweep finds; the number of jobs does not.
LEARNING, INDEPENDENT = 4, 32


def sweep(
    plan: SweepPlan,
    folder: Path | str,
    *,
    jobs: int | None = None,
    on: str | None = None,
    watch: Watch | None = None,
    show: Callable[[Sequence[Trial]], None] | None = None,
) -> Sweep:
    """Try settings of methods, and find each method's best on validation data.

    Nothing but the runs of its trials is stored, below ``tuning-only``, and at the end the study.
    A sweep that was interrupted or killed asks for the same trials when it is called again: runs
    that are finished are read, and the others continue. TPE asks for four trials of each method at
    a time and learns from them then, so that the same plan finds the same trials whatever ``jobs``
    is.

    Args:
        plan: What is searched.
        folder: Where the runs are stored.
        jobs: Runs at a time; by default one, and on a cluster as many as it has CPUs.
        on: A Ray cluster to run them on (`execute_all`).
        watch: Called with a run's configuration, its steps done and its record or None.
        show: Called with the trials that ended, after every few of each method.

    Raises:
        Diverged: No trial of a method is complete.
        Interrupted: Ctrl-C or SIGTERM; what was done is on disk.

    Example:
        >>> import tempfile
        >>> plan = SweepPlan(
        ...     "digits", ["static"], steps=20, lr=[0.1, 1.0, 3.0], options={"validation": 200}
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = sweep(plan, folder)
        >>> found.best["static"].setting.lr
        3.0
    """
    if jobs is not None or on is None:
        jobs = whole_number("jobs", 1 if jobs is None else jobs, least=1)
    problem = plan.make_problem(folder, jobs=jobs, on=on, watch=watch)
    make_folder(problem.folder)
    with locked(problem.folder):
        study = SweepStudy(plan, problem)
        try:
            study.run(show)
        except (Interrupted, KeyboardInterrupt) as stop:  # the latter between runs
            count = sum(map(len, study.trials.values()))
            raise Interrupted(
                f"interrupted after {count} trials, and all is saved: run the same command again "
                "to go on",
                getattr(stop, "code", 130),
            ) from None
        trials = tuple(trial for each in study.trials.values() for trial in each)
        found = Sweep(plan, problem, trials)
        save(make_study(found), found.folder)
    return found


class SweepStudy(BudgetStudy):
    """The trials of a sweep, each scored relative to the median trial of all methods.

    Args:
        plan: What is searched.
        problem: What is trained.
    """

    def __init__(self, plan: SweepPlan, problem: TaskProblem) -> None:
        self.plan = plan
        self._gains = partial(gains, goals=plan.goals, spread=problem.spread)
        super().__init__(
            problem,
            {method: plan.sampler(method) for method in plan.methods},
            math.ceil(sum(plan.counts.values()) * plan.seeds * sum(1 / r for r in plan.rungs)),
            seeds=range(plan.seeds),
            pruner=Halving(self._gains) if plan.prune == "halving" else None,
        )

    def run(self, show: Callable[[Sequence[Trial]], None] | None = None) -> None:
        """Try a few settings of each method, then the next few, until there are no more."""
        most = LEARNING if self.plan.how == "tpe" else INDEPENDENT
        while True:
            before = {method: len(trials) for method, trials in self.trials.items()}
            self.round({m: min(most, self.plan.counts[m] - n) for m, n in before.items()})
            new = [trial for m, trials in self.trials.items() for trial in trials[before[m] :]]
            if not new:
                break
            if show is not None:
                show(new)
        for method in self.trials:
            self.best(method)  # raises where there is none

    def score_trials(self) -> None:
        """Score by how much better than the median of all a trial is, as a share."""
        each = [trial for trials in self.trials.values() for trial in trials if trial.is_complete]
        scores = self._gains([mean_point(trial) for trial in each])
        for trial, score in zip(each, scores, strict=True):
            trial.score = score / 100
