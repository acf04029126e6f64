"""What is seen of a front while its runs go on."""

from typing import TYPE_CHECKING

from trimol._words import count
from trimol.cli._progress import Progress
from trimol.cli._tables import bar_of

if TYPE_CHECKING:
    from rich.console import RenderableType


class FrontView:
    """Many runs: how many are done, and how long the rest takes.

    Args:
        title: What is done, in a few words.
        runs: How many runs there are at most.
        steps: Steps of a run.
    """

    def __init__(self, title: str, runs: int, steps: int) -> None:
        self.runs, self.steps = runs, steps
        self.fractions: dict[str, float] = {}
        self.progress = Progress(title, runs * steps)

    def advance(self, key: str, fraction: float) -> None:
        """A run is so far, as a fraction of its steps."""
        self.fractions[key] = fraction
        self.progress.advance(round(sum(self.fractions.values()) * self.steps))

    def finish(self) -> None:
        """All runs are done; fewer than were planned, where there was no gap left to refine."""
        self.fractions = dict.fromkeys(self.fractions, 1.0)
        self.runs = len(self.fractions)
        self.progress.total = self.runs * self.steps
        self.progress.advance(self.progress.total)

    @property
    def done(self) -> int:
        """Runs that are done."""
        return sum(fraction >= 1 for fraction in list(self.fractions.values()))

    def line(self) -> str:
        """How far it is, in one line."""
        return f"{self.progress.line()} ({self.done} of {count(self.runs, 'run')})"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 2))
        row.add_row(
            bar_of(sum(list(self.fractions.values())), self.runs, width=24),
            f"{self.done} of {count(self.runs, 'run')}",
            self.progress.pace,
        )
        return Group(Text(self.progress.title, style="bold"), row)
