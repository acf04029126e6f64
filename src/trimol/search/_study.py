"""The loop that spends a budget of trainings: ask, train, score, tell."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from trimol._failures import BadValue
from trimol.methods._registry import BASELINE
from trimol.search._halving import Halving
from trimol.search._problem import Failure, Outcome, Problem, Training
from trimol.search._sampler import Sampler
from trimol.search._score import Scorer
from trimol.search._setting import Setting
from trimol.search._trial import Point, Trial, TrialState, mean_point
from trimol.training import Diverged

Stage = Callable[[str], None]


class BudgetStudy:
    """Trials of several methods on one problem, within a budget of trainings.

    Nothing of it is stored but the trainings: it asks for the same ones whenever it is run again
    with the same results, and those on disk cost no time.

    Args:
        problem: What is trained.
        samplers: What proposes the settings of each method.
        budget: Trainings in all.
        seeds: Those that every setting is tried with.
        stage: Told in a few words what is being done.
        pruner: Chooses the trials that continue after short trainings; None for all.

    Attributes:
        trials: By method, in their order.
    """

    def __init__(
        self,
        problem: Problem,
        samplers: Mapping[str, Sampler],
        budget: int,
        *,
        seeds: Sequence[int] = (0,),
        stage: Stage = lambda _: None,
        pruner: Halving | None = None,
    ) -> None:
        self.problem, self.samplers, self.budget = problem, dict(samplers), budget
        self.seeds, self.stage, self.pruner = tuple(seeds), stage, pruner
        self.scorer = Scorer(problem.ways, spread=problem.spread)
        self.trials: dict[str, list[Trial]] = {method: [] for method in samplers}
        self._spent = Fraction(0)

    @property
    def spent(self) -> int:
        """Trainings so far, rounded up: one of a third of the steps counts as a third."""
        return math.ceil(self._spent)

    @property
    def left(self) -> int:
        """Whole trainings that may still be asked for."""
        return math.floor(self.budget - self._spent)

    def round(self, counts: Mapping[str, int]) -> None:
        """Try so many further settings of each method, together."""
        asked = {method: self.samplers[method].ask(count) for method, count in counts.items()}
        self.try_settings(asked)

    def try_settings(self, asked: Mapping[str, Sequence[Setting]]) -> None:
        """Try these settings of each method, and tell the samplers."""
        new = [
            (method, Trial(len(self.trials[method]) + place, setting))
            for method, settings in asked.items()
            for place, setting in enumerate(settings)
        ]
        self._train(self._prune([trial for _, trial in new]), self.seeds)
        for method, trial in new:
            self.trials[method].append(trial)
        self._score()

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Train, on the budget."""
        spent = self._spent + sum(Fraction(1, training.shorter) for training in trainings)
        if spent > self.budget:
            raise BadValue(f"budget of {self.budget} trainings must not be exceeded")
        self._spent = spent
        return self.problem.train(trainings)

    def best(self, method: str) -> Trial:
        """Return the method's complete trial of the best score.

        Raises:
            Diverged: None is complete.
        """
        complete = [trial for trial in self.trials[method] if trial.is_complete]
        if not complete:
            why = self.trials[method][0].note if self.trials[method] else "none was tried"
            raise Diverged(f"no setting of {method} came to an end: {why}")
        return max(complete, key=lambda trial: trial.score)

    def confirm(
        self, settings: Mapping[str, Setting], seeds: Sequence[int]
    ) -> dict[str, dict[int, Point]]:
        """Train settings with fresh seeds, measured on test data: metrics by label and seed."""
        asked = [Training(own, seed, final=True) for own in settings.values() for seed in seeds]
        outcomes = iter(self.train(asked))
        found: dict[str, dict[int, Point]] = {}
        for label in settings:
            own = {seed: next(outcomes) for seed in seeds}
            found[label] = {s: o for s, o in own.items() if not isinstance(o, Failure)}
        return found

    def add_seeds(self, trials: Sequence[Trial], seeds: Sequence[int]) -> None:
        """Train the settings of trials with further seeds, on validation data."""
        self._train(trials, seeds)
        self._score()

    def _prune(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """Train for part of the steps, and return the trials that continue."""
        if self.pruner is None:
            return trials
        for rung in self.pruner.rungs:
            self._train(trials, self.seeds, rung)
            reached = [trial for trial in trials if trial.is_complete]
            for trial in reached:
                trial.state, trial.note = TrialState.PRUNED, f"pruned after 1/{rung} of the steps"
            trials = self.pruner.choose(reached, rung)
            for trial in trials:
                trial.state, trial.note = TrialState.RUNNING, ""
            for trial in reached:
                trial.points.clear()
        return trials

    def _train(self, trials: Sequence[Trial], seeds: Sequence[int], shorter: int = 1) -> None:
        """Train, and note down what became of each trial."""
        asked = [(trial, seed) for trial in trials for seed in seeds]
        outcomes = self.train(
            [Training(trial.setting, seed, shorter=shorter) for trial, seed in asked]
        )
        for (trial, seed), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Failure):
                trial.state, trial.note, trial.score = TrialState.FAILED, str(outcome), -math.inf
            else:
                trial.points[seed] = outcome
                if trial.state is TrialState.RUNNING:
                    trial.state = TrialState.COMPLETE

    def _score(self) -> None:
        """Score all trials, and tell the samplers."""
        self.score_trials()
        for method, trials in self.trials.items():
            self.samplers[method].tell(trials)

    def score_trials(self) -> None:
        """Set the scales by the baseline's trials, and score all by them."""
        base = self.trials.get(BASELINE) or next(iter(self.trials.values()))
        complete = [trial for trial in base if trial.is_complete]
        all_points = [p for own in self.trials.values() for t in own for p in t.points.values()]
        self.scorer.fit([mean_point(trial) for trial in complete], all_points)
        for trials in self.trials.values():
            self.scorer.update(trials)
