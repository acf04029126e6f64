"""`tune`: good static weights and a learning rate, with few trainings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

from trimol._checks import number_of_runs, whole_number
from trimol._failures import BadValue
from trimol._words import count
from trimol.methods._registry import BASELINE
from trimol.runs.look import Look, look
from trimol.runs.statistics import interval
from trimol.search._problem import FunctionProblem, Jackknifed, Problem, TaskProblem
from trimol.search._sampler import Kind, OptunaSampler
from trimol.search._score import paired_gains, percent
from trimol.search._setting import Setting
from trimol.search._space import SearchSpace, space_of
from trimol.search._study import BudgetStudy, Stage
from trimol.search._trial import Trial
from trimol.tasks.task import Better
from trimol.training import Diverged
from trimol.training.loop import Schedule

CAUTION = 0.3  # standard errors that a gain must have, or the reference is kept
PAIRED = 10  # of so many trainings, one pair of the best setting and the reference
LOOKED, FEWEST_STEPS = 20, 20  # the gradient check takes one step in so many of a training's
SMALLER, TRIES = 0.1, 3  # where it diverges, it is repeated with a learning rate so much smaller


@dataclass(frozen=True)
class Tuned:
    """The static weights and learning rate that a search found.

    Attributes:
        setting: What to use.
        reference: What it is compared with: what the user has now, or equal weights.
        gain: How much better its score is on seeds that the search did not use, as a share; None
            where no training was left to find out.
        ci: Half of the gain's 95 % interval; None for fewer than two seeds.
        seeds: How many seeds that is.
        trials: All that was tried, in order.
        spent: How many trainings that took.
        command: What trains a task with the setting; empty for a function.
        is_ratio: Whether the gain is the logarithm of a ratio (about the same, where it is small).
        error: The gain's standard error, validation samples included; None where nothing was
            compared.
        balanced: The weights that balance the gradients' lengths; None where these are not known.
        seen: The gain on the seed of the search, which is too large on average: of many settings
            the best is lucky, too. None where the reference came to no end.
    """

    setting: Setting
    reference: Setting
    gain: float | None
    ci: float | None
    seeds: int
    trials: tuple[Trial, ...]
    spent: int
    command: str = ""
    is_ratio: bool = True
    error: float | None = None
    balanced: Setting | None = None
    seen: float | None = None

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights, which sum to one."""
        assert self.setting.weights is not None
        return self.setting.weights

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self.setting.lr

    @property
    def sentence(self) -> str:
        """Say what to use, and what it is expected to gain."""
        if len(self.trials) == 1:
            tried = f"Only {self.reference} was trained: more trainings would compare others."
            return f"{tried} {self._balancing()}".strip()
        if self.setting == self.reference:
            better = "" if self.error is None else " by more than noise"
            found = f"Keep {self.reference}: none of {len(self.trials)} settings was better{better}"
            return f"{found} ({count(self.spent, 'training')})."
        if self.gain is None:
            seen = "" if self.seen is None else f" by {percent(self.seen, ratio=self.is_ratio)}"
            ends = f"better than {self.reference}{seen} on validation data, not confirmed"
        else:
            seeds = "1 fresh seed" if self.seeds == 1 else f"{self.seeds} fresh seeds"
            gain = percent(self.gain, self.ci, ratio=self.is_ratio)
            ends = f"better than {self.reference} by {gain} on {seeds}"
        return f"Use {self.setting}: {ends} ({count(self.spent, 'training')})."

    def _balancing(self) -> str:
        """Say which weights balance the gradients, where they were not tried."""
        if self.balanced is None or self.balanced == self.reference:
            return ""
        return f"Try next what balances the gradients' lengths: {self.balanced}."

    @property
    def advice(self) -> str:
        """Say what to do with the setting."""
        return (
            "Now train with it on all data, the validation part included: where data are few, that "
            "gains more than any tuning."
        )

    @property
    def summary(self) -> dict[str, Any]:
        """What ``trimol tune --json`` prints."""
        return {
            "weights": list(self.weights),
            "lr": self.lr,
            "schedule": self.setting.schedule,
            "gain": self.gain,
            "ci": self.ci,
            "seeds": self.seeds,
            "seen": self.seen,
            "spent": self.spent,
            "sentence": self.sentence,
            "command": self.command,
            "trials": [
                {
                    "weights": list(trial.setting.weights or ()),
                    "lr": trial.setting.lr,
                    "state": trial.state.value,
                    "score": trial.score if math.isfinite(trial.score) else None,
                    "metrics": next(iter(trial.points.values()), {}),
                }
                for trial in self.trials
            ],
        }

    def __str__(self) -> str:
        return self.sentence


def tune(
    train: str | Callable[..., Mapping[str, float]],
    *,
    budget: int = 5,
    objectives: Sequence[str] | None = None,
    current: Mapping[str, Any] | None = None,
    lr: float | None = None,
    goals: Mapping[str, Better] | None = None,
    steps: int = 500,
    batch_size: int | None = None,
    task_options: Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
    sampler: Kind = "gp",
    seed: int = 0,
    folder: Path | str | None = None,
    jobs: int | None = None,
    on: str | None = None,
    stage: Stage = lambda _: None,
) -> Tuned:
    """Find good static weights and a learning rate with few trainings.

    It tries what you have now, equal weights, other learning rates, weights that balance the
    gradients' lengths, and then what a Gaussian process proposes. From ten trainings on, one in
    five compares the best with the reference on fresh seeds; where they show no gain, the reference
    is kept. Afterwards, train once more on all data, the validation part included.

    Args:
        train: A task's name, ``path/to/file.py:Class``, or a function that trains with a `Setting`
            (``setting.weights``, ``setting.lr``) and returns metrics by name. The function may
            take ``seed``, too.
        budget: Trainings in all.
        objectives: For a function: the names of the objectives, in the order of the weights.
        current: What you have now, such as ``{"weights": [1, 0.1, 5], "lr": 3e-4}``.
        lr: The learning rate to begin with; by default the current one, or the task's.
        goals: For a function: the metrics to judge by, and whether "lower" or "higher" is better;
            by default the objectives, lower.
        steps: Steps of a training of a task.
        batch_size: Samples per step; by default the task's.
        task_options: Keyword arguments of the task's constructor.
        schedule: How the learning rate falls over a training.
        sampler: What proposes settings: "gp", "tpe" or "random".
        seed: Decides all that is random.
        folder: Where trainings are kept, so that none is repeated; needed for a task.
        jobs: Trainings at a time, of a task.
        on: A Ray cluster, for a task.
        stage: Told in a few words what is being done.

    Example:
        >>> def train(setting):
        ...     a, b = setting.weights
        ...     return {"a": (1 - a) ** 2 + 0.1, "b": (0.2 - b) ** 2 + 0.1}
        >>> found = tune(train, objectives=["a", "b"], lr=0.1, budget=8)
        >>> found.spent <= 8 and found.weights[0] > 0.5
        True
    """
    number_of_runs("budget", whole_number("budget", budget, least=1))
    now = dict(current or {})
    rate = lr or now.get("lr")
    problem: Problem
    if isinstance(train, str):
        if folder is None:
            raise BadValue("folder must be given for a task, found None")
        problem = TaskProblem(
            train,
            folder,
            steps=steps,
            batch_size=batch_size,
            options=task_options,
            lr=rate,
            jobs=jobs,
            on=on,
        )
    else:
        problem = function_problem(train, objectives, rate, goals, folder)
    lengths, scaled = None, False
    if isinstance(problem, TaskProblem):
        stage("the gradient check")
        lengths = lengths_of(check_gradients(problem, seed), problem.objectives)
        scaled = problem.steps_by_gradient
    return tune_problem(
        problem,
        budget,
        current=now,
        lengths=lengths,
        scaled=scaled,
        schedule=schedule,
        sampler=sampler,
        seed=seed,
        stage=stage,
        task=train if isinstance(train, str) else "",
    )


def tune_problem(
    problem: Problem,
    budget: int,
    *,
    current: Mapping[str, Any] | None = None,
    lengths: Sequence[float] | None = None,
    scaled: bool = False,
    schedule: Schedule | None = None,
    sampler: Kind = "gp",
    seed: int = 0,
    stage: Stage = lambda _: None,
    task: str = "",
) -> Tuned:
    """Find good static weights and a learning rate for a problem (`tune`).

    Args:
        problem: What is trained.
        budget: Trainings in all.
        current: What the user has now.
        lengths: The gradients' lengths, where they are known.
        scaled: Whether steps are as long as the weighted gradient.
        schedule: How the learning rate falls over a training.
        sampler: What proposes settings.
        seed: Decides all that is random.
        stage: Told in a few words what is being done.
        task: The task's name, for the command that trains with the setting.
    """
    space = space_of(
        BASELINE,
        len(problem.objectives),
        problem.rate(BASELINE),
        schedule=schedule,
        lengths=lengths if scaled else None,
    )
    reference, first = reference_of(space, current or {}, problem, lengths)
    # The learning rate first: at a wrong one, weights cannot be compared.
    begin, then = (first, []) if lengths is None else (first[:-1], first[-1:])
    study = BudgetStudy(
        problem,
        {BASELINE: OptunaSampler(space, begin, then=then, kind=sampler, seed=seed)},
        budget,
        seeds=[seed],
        stage=stage,
    )
    found = _concluded(_searched(study, len({own.key for own in begin})), reference, task)
    return replace(found, balanced=None if lengths is None else first[-1])


def function_problem(
    train: Callable[..., Mapping[str, float]],
    objectives: Sequence[str] | None,
    lr: float | None,
    goals: Mapping[str, Better] | None,
    folder: Path | str | None,
) -> FunctionProblem:
    """Return a function as a problem; what it cannot be asked for must be given."""
    if objectives is None or lr is None:
        missing = "objectives" if objectives is None else "lr"
        raise BadValue(f"{missing} must be given with a function, found None")
    return FunctionProblem(train, objectives, lr=lr, goals=goals, folder=folder)


def _searched(study: BudgetStudy, begin: int) -> BudgetStudy:
    """Spend the part of the budget that is not for confirming; so many settings are given."""
    pairs = study.budget // PAIRED
    count = max(1, study.budget - 2 * pairs)
    study.stage(f"the first of {count} trials")
    study.round({BASELINE: min(begin, count)})
    while len(study.trials[BASELINE]) < count:
        left = count - len(study.trials[BASELINE])
        study.stage(f"trial {count - left + 1} of {count}")
        study.round({BASELINE: min(2, left)})
    # Nothing to confirm yet: what was meant for that looks for something better.
    while study.left > 2 and study.trials[BASELINE][0] is study.best(BASELINE):
        study.stage(f"trial {len(study.trials[BASELINE]) + 1}")
        study.round({BASELINE: 1})
    return study


def _concluded(study: BudgetStudy, reference: Setting, task: str) -> Tuned:
    """Compare the best with the reference on fresh seeds, and keep the better one.

    The reference is kept, too, where the gain is below its standard error: with few validation
    samples the best of several settings is the one that fits their noise best.
    """
    trials = study.trials[BASELINE]
    base = next(trial for trial in trials if trial.setting == reference)
    best = study.best(BASELINE)
    pairs = study.left // 2
    seeds = range(study.seeds[-1] + 1, study.seeds[-1] + 1 + pairs)
    gains: list[float] = []
    noise = 0.0
    if best is not base and base.is_complete:
        if pairs:
            study.stage(f"the best and the reference on {pairs} fresh seeds")
            study.add_seeds([best, base], seeds)
        gains = _paired_gains(study, best, base, seeds)
        noise = _noise_of_samples(study, best, base)
    # The seed of the search counts here, as fresh ones are few; the gain that is said is of these.
    seen = [*gains, *_paired_gains(study, best, base, study.seeds)]
    of_seeds = stdev(seen) / math.sqrt(len(seen)) if len(seen) > 1 else 0.0
    gain = fmean(seen) if seen else 0.0
    error = math.hypot(of_seeds, noise)
    is_better = best.is_complete and (not base.is_complete or gain > CAUTION * error)
    half = interval(gains)
    return Tuned(
        setting=(best if is_better else base).setting,
        reference=reference,
        gain=fmean(gains) if gains else None,
        ci=None if half is None else math.hypot(half, 2 * noise),
        seeds=len(gains),
        trials=tuple(trials),
        spent=study.spent,
        command=(best if is_better else base).setting.command(task) if task else "",
        is_ratio=study.scorer.is_ratio,
        error=error if best is not base and base.is_complete else None,
        seen=next(iter(_paired_gains(study, best, base, study.seeds)), None),
    )


def _paired_gains(
    study: BudgetStudy, best: Trial, base: Trial, seeds: Sequence[int]
) -> list[float]:
    """Return how much better the best is, seed by seed, where both came to an end."""
    both = [s for s in seeds if s in best.points and s in base.points]
    if not both:
        return []
    return paired_gains(
        [base.points[s] for s in both], [best.points[s] for s in both], study.scorer
    )


def _noise_of_samples(study: BudgetStudy, best: Trial, base: Trial) -> float:
    """Return the standard error of a gain that comes from the validation samples.

    By the jackknife: both were also measured without a tenth of the samples at a time. It is 0 for
    a function, whose samples are not known.
    """
    problem = study.problem
    if not isinstance(problem, Jackknifed):
        return 0.0
    own, other = (problem.points_without_parts(t.setting, study.seeds[0]) for t in (best, base))
    return standard_error(paired_gains(other, own, study.scorer)) if own else 0.0


def standard_error(values: Sequence[float]) -> float:
    """Return the jackknife's standard error of a value, from those without one group each."""
    finite = [value for value in values if math.isfinite(value)]
    return math.sqrt(len(finite) - 1) * pstdev(finite) if len(finite) > 1 else 0.0


def _weights(given: Any, problem: Problem) -> list[float] | None:
    """Return the weights that somebody has now, in order; None for equal ones."""
    if given is None:
        return None
    values = [given[n] for n in problem.objectives] if isinstance(given, Mapping) else list(given)
    if len(values) != len(problem.objectives) or not all(0 < v < math.inf for v in values):
        raise BadValue(
            f"current weights must be {len(problem.objectives)} numbers above 0, found {given!r}"
        )
    return [float(value) for value in values]


def reference_of(
    space: SearchSpace,
    now: Mapping[str, Any],
    problem: Problem,
    lengths: Sequence[float] | None,
) -> tuple[Setting, list[Setting]]:
    """Return what others are compared with, and the settings to begin with.

    These are what somebody has now, equal weights, and weights that balance the gradients.
    """
    reference = space.start(now.get("lr"), _weights(now.get("weights"), problem))
    first = [reference, space.start()]
    if lengths is not None:
        first.append(space.start(None, [1 / length for length in lengths]))
    return reference, first


def check_gradients(problem: TaskProblem, seed: int) -> Look:
    """Train for a few per cent of the steps, and measure the gradients.

    Where training diverges, the check is repeated with a smaller learning rate.
    """
    rate = problem.rate(BASELINE)
    for power in range(TRIES):
        try:
            return look(
                problem.made,
                steps=max(FEWEST_STEPS, problem.steps // LOOKED),
                batch_size=problem.batch_size,
                lr=rate * SMALLER**power,
                seed=seed,
            )
        except Diverged as error:
            last = error
    raise Diverged(f"{last} (with {TRIES} learning rates from {rate:g} down)")


def lengths_of(seen: Look, objectives: Sequence[str]) -> list[float] | None:
    """Return the gradients' lengths, geometric means over the check; None where one is not seen."""
    found = []
    for name in objectives:
        own = [m.plain.norms[name].value for m in seen.moments if m.plain.norms[name].value > 0]
        if not own:
            return None
        found.append(math.exp(fmean(map(math.log, own))))
    return found
