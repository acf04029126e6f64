"""Successive halving: short trainings first, and whole ones for the best."""

from collections.abc import Callable, Sequence
from itertools import groupby

from trimol.search._trial import Point, Trial, mean_point

FACTOR = 3  # one in three continues, with three times the steps


class Halving:
    """Chooses the trials that continue: the best third of their method's so far, at every rung.

    Args:
        score: Scores metrics relative to each other, larger is better.

    Attributes:
        rungs: How many times shorter than a whole training the first ones are.
    """

    rungs = (FACTOR**2, FACTOR)

    def __init__(self, score: Callable[[Sequence[Point]], list[float]]) -> None:
        self._score = score
        self._reached: dict[tuple[str, int], list[Point]] = {}  # by method and rung

    def choose(self, trials: Sequence[Trial], rung: int) -> list[Trial]:
        """Return those of the trials, which reached a rung, that continue."""
        chosen: list[Trial] = []
        for method, each in groupby(trials, key=lambda trial: trial.setting.method):
            own = list(each)
            reached = self._reached.setdefault((method, rung), [])
            reached += map(mean_point, own)
            scores = self._score(reached)
            bar = sorted(scores, reverse=True)[max(1, len(scores) // FACTOR) - 1]
            new = zip(own, scores[-len(own) :], strict=True)
            chosen += [trial for trial, score in new if score >= bar]
        return chosen
