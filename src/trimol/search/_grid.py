"""A sampler that proposes given settings, and goes on beyond the edges of their grid."""

from collections.abc import Container, Mapping, Sequence

from trimol.runs.config import is_number
from trimol.search._setting import Setting
from trimol.search._study import BudgetStudy
from trimol.search._trial import Trial

_DIGITS = 12  # of a value beyond an edge: 5e-4 · (5e-4 / 1e-4) is 0.0025000000000000005


class GridSampler:
    """Proposes given settings in their order, none twice; then settings beyond the grid's edges.

    The best trial is at an edge where one of its numbers is the smallest or the largest of several
    that were tried. It is then proposed with the next value of that number, one number at a time.
    Where all trials failed, the one with the smallest learning rate counts as the best.

    Args:
        settings: What to try.
        extend: How often the grid may be extended.
        axes: The numbers that may be extended, each with all its values in order; by default all
            numbers, by the ratio between the edge and the value next to it.
        whole: Whether all settings at the edge are moved beyond it, not only the best.

    Attributes:
        trials: Those that the sampler was told of.

    Example:
        >>> sampler = GridSampler([Setting("static", lr) for lr in (0.1, 1.0, 0.1)])
        >>> [setting.lr for setting in sampler.ask(5)], sampler.ask(1)
        ([0.1, 1.0], [])
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        *,
        extend: int = 0,
        axes: Mapping[str, Sequence[float]] | None = None,
        whole: bool = False,
    ) -> None:
        self.extend, self.axes, self.whole = extend, axes, whole
        self.trials: list[Trial] = []
        self._waiting = list({setting.key: setting for setting in settings}.values())

    @property
    def best(self) -> Setting:
        """The setting of the best trial so far."""
        complete = [trial for trial in self.trials if trial.is_complete]
        if complete:
            return max(complete, key=lambda trial: trial.score).setting
        return min((trial.setting for trial in self.trials), key=lambda setting: setting.lr)

    def ask(self, count: int) -> list[Setting]:
        """Return the next settings, at most so many."""
        if not self._waiting and self.trials and self.extend > 0:
            self.extend -= 1
            self._waiting = self._beyond_edges()
        asked, self._waiting = self._waiting[:count], self._waiting[count:]
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take notice of all trials so far."""
        self.trials = list(trials)

    def _beyond_edges(self) -> list[Setting]:
        settings = [trial.setting for trial in self.trials]
        best, moved = self.best, []
        for name in find_edges(best, settings, self.axes):
            value = best.values[name]
            after = step_beyond(value, collect_values(name, settings), (self.axes or {}).get(name))
            at_edge = [own for own in settings if self.whole and own.values.get(name) == value]
            if after is not None:
                moved += [own.with_value(name, after) for own in at_edge or [best]]
        tried = {own.key for own in settings}
        return [own for own in moved if own.key not in tried]


def find_edges(
    setting: Setting, settings: Sequence[Setting], names: Container[str] | None = None
) -> list[str]:
    """Name the numbers of a setting that are the smallest or the largest of several tried.

    >>> tried = [Setting("modo", lr, {"gamma": 1.0}) for lr in (0.1, 1.0)]
    >>> find_edges(tried[0], tried)
    ['lr']
    """
    found = []
    for name, value in setting.values.items():
        values = collect_values(name, settings)
        at_edge = is_number(value) and len(values) > 1 and value in (values[0], values[-1])
        if at_edge and (names is None or name in names):
            found.append(name)
    return found


def collect_values(name: str, settings: Sequence[Setting]) -> list[float]:
    """Return the numbers that settings have under a name, in order."""
    return sorted({own.values[name] for own in settings if is_number(own.values.get(name))})


def step_beyond(
    edge: float, values: Sequence[float], ladder: Sequence[float] | None = None
) -> float | None:
    """Return the value beyond an edge of several; None if there is none.

    It is the next of the ladder, if there is one. Otherwise it is as far from the edge, by ratio,
    as the edge is from the value next to it; a number that is not positive has no ratio.

    >>> step_beyond(0.5, [0.1, 0.5]), step_beyond(0.1, [0.1, 0.5], [0.03, 0.1, 0.5])
    (2.5, 0.03)
    """
    upwards = edge == values[-1]
    if ladder is not None:
        further = [own for own in ladder if (own > edge if upwards else own < edge)]
        return (min(further) if upwards else max(further)) if further else None
    if values[0] <= 0:
        return None
    return float(f"{edge * edge / values[-2 if upwards else 1]:.{_DIGITS}g}")


def exhaust(study: BudgetStudy, methods: Sequence[str]) -> None:
    """Try all that the samplers of these methods propose, until they propose nothing."""
    while True:
        count = study.left // len(study.seeds)
        asked = {method: study.samplers[method].ask(count) for method in methods}
        if not any(asked.values()):
            return
        study.try_settings(asked)
