"""A sampler that proposes given settings, each once."""

from collections.abc import Sequence

from trimol.search._setting import Setting
from trimol.search._trial import Trial


class GridSampler:
    """Proposes given settings in their order, none twice.

    Args:
        settings: What to try.

    Example:
        >>> sampler = GridSampler([Setting("static", lr) for lr in (0.1, 1.0, 0.1)])
        >>> [setting.lr for setting in sampler.ask(5)], sampler.ask(1)
        ([0.1, 1.0], [])
    """

    def __init__(self, settings: Sequence[Setting]) -> None:
        self._waiting = list({setting.key: setting for setting in settings}.values())

    def ask(self, count: int) -> list[Setting]:
        """Return the next settings, at most so many."""
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def tell(self, trials: Sequence[Trial]) -> None:
        """Do nothing: a grid does not learn from its trials."""
