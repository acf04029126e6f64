"""Static weights against some methods, within a budget of trainings: who is better, by how much?"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimol._words import count
from trimol.compare._answer import Answer, decide
from trimol.compare._spending import Spending
from trimol.methods._registry import BASELINE
from trimol.runs.statistics import Paired
from trimol.runs.verdict import Gain, Pair, judge
from trimol.search._problem import Problem
from trimol.search._sampler import OptunaSampler
from trimol.search._score import paired_gains, percent
from trimol.search._setting import Setting
from trimol.search._space import space_of
from trimol.search._study import BudgetStudy, Stage
from trimol.search._trial import Point, Trial
from trimol.search._tune import reference_of
from trimol.training.loop import Schedule

UNDECIDED = "undecided"
KEPT = 2  # methods that go on after the first rounds
EACH = 2  # settings of each method before that, where the budget allows


class Contest:
    """Static weights against some methods, within a budget.

    Args:
        problem: What is trained.
        spending: How the budget is spent.
        methods: The methods.
        now: What the user has now: weights and learning rate, as far as given.
        lengths: The gradients' lengths, where they are known.
        scaled: Whether steps are as long as the weighted gradient.
        schedule: How learning rates fall.
        seed: Trials have this seed, final runs those after it.
        stage: Told in a few words what is being done.

    Attributes:
        study: The trials.
        rival: The method that static weights are compared with at last; empty before.
        finals: Metrics of the final runs on test data, by method and seed.
        notes: What a reader has to know about how it went.
    """

    def __init__(
        self,
        problem: Problem,
        spending: Spending,
        methods: Sequence[str],
        *,
        now: Mapping[str, Any],
        lengths: Sequence[float] | None = None,
        scaled: bool = False,
        schedule: Schedule | None = None,
        seed: int = 0,
        stage: Stage = lambda _: None,
    ) -> None:
        self.problem, self.spending, self.stage, self.seed = problem, spending, stage, seed
        self.alive, self.notes, self.rival = list(methods), list[str](), ""
        self.finals: dict[str, dict[int, Point]] = {}
        rate, size = problem.rate(BASELINE), len(problem.objectives)
        spaces = {
            name: space_of(name, size, rate, schedule=schedule, lengths=lengths if scaled else None)
            for name in (BASELINE, *methods)
        }
        self.reference, first = reference_of(spaces[BASELINE], now, problem, lengths)
        self.has_current = bool(now)
        firsts = {BASELINE: first, **{name: [spaces[name].start()] for name in methods}}
        samplers = {
            name: OptunaSampler(space, firsts[name], seed=seed) for name, space in spaces.items()
        }
        self.study = BudgetStudy(problem, samplers, spending.budget, seeds=[seed], stage=stage)

    def run(self) -> Answer | None:
        """Try settings, keep the best methods, and decide between the best of them and static.

        Returns:
            None where there were no final runs to decide by.
        """
        self._tune()
        return self._confirm() if self.spending.seeds else None

    @property
    def settings(self) -> dict[str, Setting]:
        """The best setting of every method of which one came to an end."""
        return {
            name: self.study.best(name).setting
            for name, trials in self.study.trials.items()
            if _best_score(trials) > -math.inf
        }

    def use(self, answer: Answer | None) -> str:
        """Return the method to use, or that it is undecided."""
        if answer is None:
            return UNDECIDED
        return {"use": self.rival, "stay": BASELINE}.get(answer.kind, UNDECIDED)

    def _tune(self) -> None:
        """Try as many settings of all that are still in, round by round."""
        limit, number = self.spending.tuning, 0
        if not self.spending.seeds:  # nothing could be decided: good static weights are worth more
            self.alive = []
        while self.study.spent < limit:
            number += 1
            names = [BASELINE, *self.alive]
            count = min(len(names), limit - self.study.spent)
            self.stage(f"trials, round {number} ({self.study.spent} of {limit} trainings)")
            self.study.round(dict.fromkeys(names[:count], 1))
            self._leave_out(number)
        self.study.best(BASELINE)  # raises where no setting came to an end

    def _leave_out(self, number: int) -> None:
        """After the first rounds, keep the methods with the best scores."""
        early = EACH if self.spending.tuning >= 2 * EACH * (len(self.alive) + 1) else 1
        if number != early or len(self.alive) <= KEPT:
            return
        scores = {name: _best_score(self.study.trials[name]) for name in self.alive}
        ranked = sorted(scores, key=lambda name: -scores[name])
        self.alive = ranked[:KEPT]
        ends = "one setting" if number == 1 else f"{number} settings"
        self.notes.append(
            f"{', '.join(ranked[KEPT:])}: left out after {ends} each, behind {ranked[KEPT - 1]}."
        )

    def _confirm(self) -> Answer | None:
        """Train the best method and static weights on fresh seeds."""
        rivals = [name for name in self.alive if _best_score(self.study.trials[name]) > -math.inf]
        if not rivals:
            self.notes.append("No setting of any method came to an end.")
            return None
        self.rival = max(rivals, key=lambda name: _best_score(self.study.trials[name]))
        chosen = {name: self.study.best(name).setting for name in (BASELINE, self.rival)}
        seeds = range(self.seed + 1, self.seed + 1 + self.spending.seeds)
        self.stage(f"{self.rival} and {BASELINE} on {len(seeds)} fresh seeds")
        self.finals = self.study.confirm(chosen, seeds)
        lost = [n for n, own in self.finals.items() if len(own) < len(seeds)]
        for name in lost:
            done = len(self.finals[name])
            self.notes.append(f"{name} diverged in {len(seeds) - done} of {len(seeds)} final runs.")
        shared = [s for s in seeds if all(s in own for own in self.finals.values())]
        base, own = ([self.finals[n][s] for s in shared] for n in (BASELINE, self.rival))
        return None if lost or not shared else decide(paired_gains(base, own, self.study.scorer))

    def sentence(self, answer: Answer | None) -> str:
        """Say what to do, and why, with the numbers and the budget."""
        use, settings = self.use(answer), self.settings
        budget = count(self.study.spent, "training")
        static = f"{settings[BASELINE]}"
        if answer is None:
            told = self.spending.sentence if not self.spending.seeds else "no final runs to compare"
            return f"Undecided: {told} The best so far is {static}.{self._beside_current()}"
        each = len(self.study.trials[self.rival])
        gain = percent(answer.gain, answer.ci, ratio=self.study.scorer.is_ratio)
        tuned = f"tuned with {count(len(self.study.trials[BASELINE]), 'training')}"
        if use == self.rival:
            return (
                f"Use {settings[self.rival]}: with {count(each, 'training')} each, it is better "
                f"than static weights as tuned with them by {gain} ({answer.n} fresh seeds, "
                f"{budget} in all)."
                f"{self._more_tuning()}"
            )
        if use == BASELINE:
            most = percent(answer.most, ratio=self.study.scorer.is_ratio)
            limit = f"{self.rival}, the best of the methods, gains at most {most}"
            told = (
                limit if answer.gain + (answer.ci or 0) > 0 else f"{self.rival} is worse by {gain}"
            )
            return (
                f"Stay with {static}, {tuned}: {told} ({answer.n} fresh seeds, {budget} in all)."
                f"{self._beside_current()}{self._more_tuning()}"
            )
        way = "better" if answer.gain > 0 else "worse"
        least = percent(answer.detectable or 0.0, ratio=self.study.scorer.is_ratio)
        more = "more trainings than are reasonable"
        if answer.more:
            more = f"about {2 * answer.more} more trainings"
        return (
            f"Undecided: {self.rival} is {way} than static weights by {gain}, each tuned with "
            f"{count(each, 'training')}, which {answer.n} fresh seeds cannot tell from 0: they "
            f"find gains from {least} ({budget} in all). {more[0].upper()}{more[1:]} would decide. "
            f"The best static setting is {static}."
            f"{self._beside_current()}"
        )

    def _beside_current(self) -> str:
        """Say what the best static setting gains over what the user has now."""
        best = self.study.best(BASELINE)
        if not self.has_current or best.setting == self.reference:
            return ""
        base = next(t for t in self.study.trials[BASELINE] if t.setting == self.reference)
        if not base.is_complete:
            return " Your current setting came to no end."
        both = [[own.points[self.seed]] for own in (base, best)]
        (better,) = paired_gains(both[0], both[1], self.study.scorer)
        gain = percent(better, ratio=self.study.scorer.is_ratio)
        return f" On validation data it is better than your current setting by {gain}."

    def _more_tuning(self) -> str:
        """Say whether more trials might change it: was static's best still moving, or at an end?"""
        trials = self.study.trials[BASELINE]
        late = self.study.best(BASELINE).number >= len(trials) - max(1, len(trials) // 3)
        if len(trials) > 2 and late:
            return " Static weights were still improving in their last trials: more may change it."
        return ""

    def metric_gains(self) -> Sequence[Gain]:
        """The gain on every metric alone, corrected for their number."""
        base, own = self.finals[BASELINE], self.finals[self.rival]
        pairs = [
            Pair(
                self.rival,
                metric,
                Paired([base[s][metric] for s in base], [own[s][metric] for s in base]),
            )
            for metric in self.problem.ways
        ]
        return judge(pairs, self.problem.ways, baseline=BASELINE).gains


def _best_score(trials: Sequence[Trial]) -> float:
    return max((trial.score for trial in trials), default=-math.inf)
