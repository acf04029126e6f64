"""What proposes settings: first those that are given, then Optuna's samplers."""

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Protocol

from trimol._extras import require
from trimol.search._setting import Setting, rounded
from trimol.search._space import SearchSpace
from trimol.search._trial import Trial

Kind = Literal["gp", "tpe", "random"]
NEXT = 10**0.5  # from one learning rate to the next
SAME = 0.01  # learning rates that differ by less are one
# Powers of ten around the best; after so many trials in a row that were not better, less of them.
FAR, MISSES, NARROWER, WIDER = 0.8, 3, 0.6, 1.3


class Sampler(Protocol):
    """Proposes the settings of one method."""

    def ask(self, count: int) -> list[Setting]:
        """Return the next settings, at most so many."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take notice of all trials of the method so far, with their scores."""


class OptunaSampler:
    """Proposes given settings first, then learning rates beside the best, then Optuna's.

    The learning rate matters most: as long as one next to the best setting's, by `NEXT`, was not
    tried, it is.

    Optuna's study is made anew at every `ask`, from the scores and a seed: the same trials lead to
    the same proposals, so that a study that was killed resumes as if it had not been.

    Args:
        space: What may be tried.
        first: Settings to begin with, in their order.
        then: Settings to try once the learning rate is found, at that learning rate.
        kind: Gaussian process, TPE, or at random.
        seed: Decides the proposals.
    """

    def __init__(
        self,
        space: SearchSpace,
        first: Sequence[Setting] = (),
        *,
        then: Sequence[Setting] = (),
        kind: Kind = "gp",
        seed: int = 0,
    ) -> None:
        self.space, self.kind, self.seed = space, kind, seed
        self._waiting = list({setting.key: setting for setting in first}.values())
        self._later = list(then)
        self._trials: list[Trial] = []
        self._asked: set[str] = set()

    def ask(self, count: int) -> list[Setting]:
        """Return the next settings; none twice."""
        found = self._waiting[:count]
        self._waiting = self._waiting[len(found) :]
        self._asked |= {setting.key for setting in found}
        if len(found) < count and self.kind != "random":
            found += self._beside_best(count - len(found))
        if len(found) < count:
            found += self._at_best_rate(count - len(found))
        if len(found) < count:
            found += self._sampled(count - len(found))
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take notice of all trials so far."""
        self._trials = list(trials)

    def _beside_best(self, count: int) -> list[Setting]:
        """Return the best setting so far with the next learning rates, if they are new.

        Where all trials failed, return the first one with smaller learning rates.
        """
        complete = [trial for trial in self._trials if trial.is_complete]
        if complete:
            best = max(complete, key=lambda trial: trial.score).setting
            rates = [best.lr * NEXT, best.lr / NEXT]
        elif self._trials:  # all failed: most often the learning rate is too large
            best = self._trials[0].setting
            least = min(
                own.lr
                for own in (t.setting for t in self._trials)
                if own == replace(best, lr=own.lr)
            )
            rates = [least / NEXT**power for power in range(1, count + 1)]
        else:
            return []
        near = [replace(best, lr=rounded(rate)) for rate in rates]
        found = [setting for setting in near if self._is_new(setting)][:count]
        self._asked |= {setting.key for setting in found}
        return found

    def _is_new(self, setting: Setting) -> bool:
        """Whether nothing was asked for that is the same but for rounding."""
        like = (t.setting for t in self._trials if replace(t.setting, lr=setting.lr) == setting)
        same = any(math.isclose(own.lr, setting.lr, rel_tol=SAME) for own in like)
        return not same and setting.key not in self._asked

    def _at_best_rate(self, count: int) -> list[Setting]:
        """Return given settings, moved to the learning rate of the best one so far."""
        complete = [trial for trial in self._trials if trial.is_complete]
        if not complete:
            return []
        best = self.space.place(max(complete, key=lambda trial: trial.score).setting)
        given, self._later = self._later[:count], self._later[count:]
        moved = [self.space.setting({**self.space.place(own), "lr": best["lr"]}) for own in given]
        found = [setting for setting in moved if setting.key not in self._asked]
        self._asked |= {setting.key for setting in found}
        return found

    def _sampled(self, count: int) -> list[Setting]:
        with quiet() as optuna:
            box = {
                name: optuna.distributions.FloatDistribution(low, high)
                for name, (low, high) in self._box().items()
            }
            study = optuna.create_study(direction="maximize", sampler=self._optuna(optuna))
            self._replay(optuna, study, box)
            found: list[Setting] = []
            for _ in range(20 * count):  # some may be known already
                asked = study.ask(box)
                setting = self.space.setting(asked.params)
                if setting.key not in self._asked:
                    self._asked.add(setting.key)
                    found.append(setting)
                if len(found) == count:
                    break
        return found

    def _optuna(self, optuna: Any) -> Any:
        named = f"{self.seed} {self.space.method} {len(self._trials)}"
        seed = int(hashlib.sha256(named.encode()).hexdigest()[:8], 16)
        samplers = optuna.samplers
        if self.kind == "gp":
            return samplers.GPSampler(seed=seed, n_startup_trials=2)
        if self.kind == "tpe":
            return samplers.TPESampler(seed=seed, n_startup_trials=5, multivariate=True)
        return samplers.RandomSampler(seed=seed)

    def _box(self) -> dict[str, tuple[float, float]]:
        """Return where to look: around the best, and nearer after trials that were not better.

        A model of few trials knows nothing of the far corners, and would ask for them first.
        """
        bounds, radius, missed = self.space.dimensions, FAR, 0
        best: Trial | None = None
        for trial in self._trials:
            if trial.is_complete and (best is None or trial.score > best.score):
                best, missed, radius = trial, 0, min(FAR, radius * WIDER)
            elif best is not None:
                missed += 1
                if missed % MISSES == 0:
                    radius *= NARROWER
        if best is None or self.kind == "random":
            return bounds
        middle = self.space.place(best.setting)
        return {
            name: (max(low, middle[name] - radius), min(high, middle[name] + radius))
            for name, (low, high) in bounds.items()
        }

    def _replay(self, optuna: Any, study: Any, box: Mapping[str, Any]) -> None:
        """Tell a new study of the trials in the box; failed ones are a little below the worst.

        Losses of score are told by their logarithm: how bad a bad setting is, says little.
        """
        scores = [_flattened(trial.score) for trial in self._trials if trial.is_complete]
        if not scores:
            return
        worst = min(scores) - (max(scores) - min(scores) or 1.0)
        for trial in self._trials:
            score = _flattened(trial.score) if trial.is_complete else worst
            place = self.space.place(trial.setting)
            if all(own.low <= place[name] <= own.high for name, own in box.items()):
                made = optuna.create_trial(params=place, distributions=dict(box), value=score)
                study.add_trial(made)


def _flattened(score: float) -> float:
    return score if score >= 0 else -math.log1p(-score)


@contextmanager
def quiet() -> Iterator[Any]:
    """Give Optuna, without its log and its warnings of what is experimental."""
    optuna = require("optuna", extra="studies", purpose="a search for settings")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield optuna
    finally:
        optuna.logging.set_verbosity(before)
