"""Where the workers of a Ray cluster leave their news, until whoever started them comes for it.

It is an actor on the cluster's head, which imports no more than this file: no torch.
"""

from typing import Any


class Board:
    """News in the order in which it came.

    >>> board = Board()
    >>> board.tell("one", "two"); board.tell("three")
    >>> board.take(), board.take()
    (['one', 'two', 'three'], [])
    """

    def __init__(self) -> None:
        self.news: list[Any] = []

    def tell(self, *news: Any) -> None:
        """Leave something; or nothing, to know that all before has arrived."""
        self.news += news

    def take(self) -> list[Any]:
        """All that was left since the last time."""
        news, self.news = self.news, []
        return news
