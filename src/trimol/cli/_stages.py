"""What is seen of work in stages while it goes on."""

from typing import TYPE_CHECKING

from trimol.cli._progress import Progress
from trimol.cli._tables import bar_of

if TYPE_CHECKING:
    from rich.console import RenderableType


class Stages:
    """The stage that is going on, and how far all of it is.

    Args:
        title: What is being done, in a few words.
    """

    def __init__(self, title: str) -> None:
        self.stage = ""
        self.progress = Progress(title, 0)

    def begin(self, stage: str) -> None:
        """Another stage begins."""
        self.stage = stage

    def advance(self, done: int, total: int) -> None:
        """So many steps of all runs are done; how many there are may have grown."""
        self.progress.total = total
        self.progress.advance(done)

    def line(self) -> str:
        """How far it is, in one line."""
        return f"{self.progress.line()} ({self.stage})" if self.stage else self.progress.line()

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        done, total = self.progress.done, self.progress.total
        return Group(
            Text(self.progress.title, style="bold"),
            Text(self.stage),
            bar_of(done, max(1, total), width=40),
            Text(self.progress.pace),
        )
