"""A sampler of any ranges: at random, or by Optuna's TPE, for one goal or several."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from trimol.search._range_space import RangeSpace
from trimol.search._sampler import quiet
from trimol.search._setting import Setting
from trimol.search._trial import Trial, mean_point
from trimol.tasks.task import Better

TRIES, LAST_TRIES = 20, 1000  # of TPE for each setting that is new, and then at random


class RangeSampler:
    """Proposes settings of given ranges, at random or by Optuna's TPE.

    With several goals TPE looks for their Pareto front.

    Optuna's study is made anew at every `ask`, from the trials and a seed: the same trials lead to
    the same proposals. Failed and pruned trials count as worse than all others.

    Args:
        space: What may be tried.
        ways: The goals, and which way is better.
        kind: ``"tpe"`` or ``"random"``.
        seed: Decides the proposals.
    """

    def __init__(
        self, space: RangeSpace, ways: Mapping[str, Better], *, kind: str = "tpe", seed: int = 0
    ) -> None:
        self.space, self.ways, self.kind, self.seed = space, dict(ways), kind, seed
        self._trials: list[Trial] = []
        # What Optuna drew for each setting, by its key: numbers of a setting are rounded.
        self._drawn: dict[str, dict[str, Any]] = {}

    def ask(self, count: int) -> list[Setting]:
        """Return the next settings; none twice, and fewer where there are no more."""
        if self.space.size is not None:
            count = min(count, self.space.size - len(self._drawn))
        found: list[Setting] = []
        with quiet() as optuna:
            study = self._replay(optuna)
            for place in range(TRIES * count + LAST_TRIES):
                if len(found) == count:
                    break
                if place == TRIES * count:
                    study.sampler = optuna.samplers.RandomSampler(seed=self._seed)
                asked = study.ask()
                setting = self._suggest(asked)
                if setting.key not in self._drawn:
                    drawn = {"params": asked.params, "distributions": asked.distributions}
                    self._drawn[setting.key] = drawn
                    found.append(setting)
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take notice of all trials so far."""
        self._trials = list(trials)

    @property
    def _seed(self) -> int:
        named = f"{self.seed} {self.space.method} {len(self._trials)}"
        return int(hashlib.sha256(named.encode()).hexdigest()[:8], 16)

    def _suggest(self, asked: Any) -> Setting:
        space = self.space
        return space.setting(
            {n: own.suggest(asked, n, space.objectives) for n, own in space.dimensions.items()}
        )

    def _replay(self, optuna: Any) -> Any:
        """Make a study that knows the trials."""
        samplers = optuna.samplers
        if self.kind == "tpe":
            sampler = samplers.TPESampler(seed=self._seed, constant_liar=True)
        else:
            sampler = samplers.RandomSampler(seed=self._seed)
        ways = ["maximize" if way == "higher" else "minimize" for way in self.ways.values()]
        study = optuna.create_study(directions=ways, sampler=sampler)
        for trial in self._trials:
            drawn = self._drawn[trial.setting.key]
            if trial.is_complete:
                point = mean_point(trial)
                ends = {"values": [point[name] for name in self.ways]}
            else:
                ends = {"state": optuna.trial.TrialState.PRUNED}
            study.add_trial(optuna.create_trial(**drawn, **ends))
        return study
