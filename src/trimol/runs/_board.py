"""Where the workers of a Ray cluster leave their news, until whoever started them comes for it.

It is an actor on the cluster's head, which imports no more than this file: no torch. There is one
for each connection to a cluster: a study comes back many times, and each actor is a process to be
started. What comes late for a launch that is over is not for the next.
"""

from dataclasses import dataclass
from typing import Any


class Board:
    """News in the order in which it came, under the name of the launch that it is for.

    >>> board = Board()
    >>> board.tell("first", 1, 2); board.tell("first", 3); board.tell("second", 4)
    >>> board.take("first"), board.take("first"), board.take("second")
    ([1, 2, 3], [], [4])
    """

    def __init__(self) -> None:
        self.news: dict[str, list[Any]] = {}

    def tell(self, launch: str, *news: Any) -> None:
        """Leave something; or nothing, to know that all before has arrived."""
        self.news.setdefault(launch, []).extend(news)

    def take(self, launch: str) -> list[Any]:
        """All that was left for a launch since the last time."""
        return self.news.pop(launch, [])


@dataclass(frozen=True)
class Desk:
    """The board as one launch and its workers see it.

    Attributes:
        board: The actor.
        launch: The name of the launch.
    """

    board: Any
    launch: str

    def tell(self, *news: Any) -> Any:
        """Leave something; a reference that is ready when it has arrived."""
        return self.board.tell.remote(self.launch, *news)

    def take(self) -> Any:
        """A reference to all that was left since the last time."""
        return self.board.take.remote(self.launch)


_boards: dict[tuple[str, str], Any] = {}  # by the node and the job of a connection


def board_of(ray: Any) -> Any:
    """The board of this process's connection to a cluster."""
    here = ray.get_runtime_context()
    connection = here.get_node_id(), here.get_job_id()
    if connection not in _boards:
        head = {"node:__internal_head__": 0.001}
        remote = ray.remote(num_cpus=0, resources=head, max_restarts=-1, max_task_retries=-1)
        _boards[connection] = remote(Board).remote()
    return _boards[connection]
