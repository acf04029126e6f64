"""What to try next around the best settings of a trial: far, then near, one number at a time.

For every contender alike: what lies around its best setting by the first reaches, far ones and near
ones together, and around what is better, until nothing gains enough; then by the next, finer
reaches, of those numbers that still matter at the finest of the last. Where the finer ones gained,
all is tried again from the far ones on: noise that did not show beside weights that were a little
off may ask for another step size or schedule. Where few settings may be tried, reaches come one by
one, and other schedules when the farthest gains no more.
"""

from collections.abc import Iterable, Mapping

from trimol.runs._attempts import Attempt, Attempts
from trimol.runs._candidates import Candidate, Series
from trimol.runs._grids import moves, schedules

Reaches = tuple[tuple[float, ...], ...]


class NearBest:
    """The search around the bests of several contenders.

    Args:
        series: The contenders; those that leave it are searched no more.
        tried: What was tried of them. The search reads it, and nothing else, to go on.
        names: Around whose bests it looks.
        reaches: By how much neighbours differ, level by level.
        most: So many settings of a contender may be tried in all; None: any number.
        last: Whether it is the last search, with all seeds: finer, and without other schedules.
    """

    def __init__(
        self,
        series: Mapping[str, Series],
        tried: Attempts,
        names: Iterable[str],
        reaches: Reaches,
        *,
        most: int | None,
        last: bool,
    ) -> None:
        self.series, self.tried, self.most, self.last = series, tried, most, last
        others = None if last else int(most is not None)
        self.around = {name: Around(tried.best(name), reaches, others=others) for name in names}
        self.before: dict[str, float] = {}

    def wanted(self) -> dict[str, list[Candidate]]:
        """What was not tried yet around each contender's best; empty when the search is over."""
        more = {}
        for name in [own for own in self.around if own in self.series]:
            self.before[name] = self.tried.best(name).value
            left = self._left(name)
            while not self.around[name].over and left != 0:
                if new := self._new(name):
                    more[name] = new[:left]
                    break
                self._conclude(name)
        return more

    def conclude(self, names: Iterable[str]) -> None:
        """Go on from what trying the wanted ones of these contenders came to."""
        for name in names:
            if name in self.series:
                self._conclude(name)

    def _new(self, name: str) -> list[Candidate]:
        """What was not tried yet around one contender's centre; at last, not with all seeds."""
        key, tried = self.series[name].key, self.tried.of(name)
        near = {key(candidate): candidate for candidate in self.around[name].wanted}
        return [
            candidate
            for own, candidate in near.items()
            if own not in tried or (self.last and tried[own].again is None)
        ]

    def _left(self, name: str) -> int | None:
        """How many more settings of a contender may be tried; None: any number."""
        return None if self.most is None else max(0, self.most - len(self.tried.of(name)))

    def _conclude(self, name: str) -> None:
        """Go on around a better setting, or with finer reaches of the numbers that matter."""
        if self._left(name) == 0:
            return
        search, best = self.around[name], self.tried.best(name)
        worth = self.tried.last_worth() if self.last else self.tried.worth()
        if best.value - self.before[name] > worth:
            search.centre = best.candidate
            return
        search.finer(self._mattering(name, worth))
        search.centre = best.candidate
        if search.level == 1:
            search.coarse = best.value
        if search.over and not self.last and best.value - search.coarse > worth:
            search.restart(best)

    def _mattering(self, name: str, worth: float) -> set[str]:
        """The numbers whose nearest neighbours of the centre are better or worse by that much."""
        search, key, tried = self.around[name], self.series[name].key, self.tried.of(name)
        centre = tried[key(search.centre)].value
        return {
            number
            for number, candidate in moves(search.centre, search.finest)
            if number in search.open and abs(tried[key(candidate)].value - centre) > worth
        }


class Around:
    """How far the search around one contender's best has come.

    Attributes:
        centre: What it looks around.
        reaches: How far, level by level.
        others: At which level other schedules are tried; None: never.
        level: Which of the reaches it is at.
        open: The numbers of which it tries neighbours.
        coarse: The best score that the far ones came to.
    """

    def __init__(self, best: Attempt, reaches: Reaches, *, others: int | None) -> None:
        self.reaches, self.others = reaches, others
        self.restart(best)

    def restart(self, best: Attempt) -> None:
        """Look around this one, from the far ones on."""
        self.centre, self.level, self.coarse = best.candidate, 0, best.value
        self.open = {number for number, _ in moves(self.centre, self.finest)}

    @property
    def over(self) -> bool:
        """Whether nothing is left to try."""
        return self.level == len(self.reaches) or not self.open

    @property
    def finest(self) -> float:
        """The finest reach of this level."""
        return self.reaches[self.level][-1]

    @property
    def wanted(self) -> list[Candidate]:
        """What lies around the centre; with the reaches of one level, other schedules, too."""
        near = [
            candidate
            for reach in self.reaches[self.level]
            for number, candidate in moves(self.centre, reach)
            if number in self.open
        ]
        return [*near, *(schedules(self.centre) if self.level == self.others else [])]

    def finer(self, numbers: set[str]) -> None:
        """Go on with finer reaches of these numbers."""
        self.level, self.open = self.level + 1, numbers
