"""The live view of a search."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trimol.cli._progress import Progress
from trimol.cli._tables import bar_of, live_table
from trimol.report._numbers import number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trimol.runs.config import RunConfig
    from trimol.search import Trial


class SweepView:
    """The trials of several methods: how many are done, and the best so far.

    Args:
        title: What is searched, in a few words.
        totals: The trials of each method.
        steps: Steps of a trial, of all its seeds.
        goals: The names of the metrics that are shown.
    """

    def __init__(
        self, title: str, totals: Mapping[str, int], steps: int, goals: Sequence[str]
    ) -> None:
        self.totals, self.steps, self.goals = totals, steps, goals
        self.done: dict[str, list[Trial]] = {method: [] for method in totals}
        self.going: dict[str, int] = {}  # steps of the runs that are under way, by key
        self.progress = Progress(title, sum(totals.values()) * steps)

    def advance(self, config: "RunConfig", step: int) -> None:
        """Note how far a run is."""
        self.going[config.key] = step
        self.progress.advance(self._ended() + sum(self.going.values()))

    def add(self, trials: "Sequence[Trial]") -> None:
        """Note trials that ended, or were read from disk."""
        for trial in trials:
            self.done[trial.setting.method].append(trial)
        ran = bool(self.going)
        self.going = {}
        move = self.progress.advance if ran else self.progress.skip
        move(self._ended())

    def best(self, method: str) -> "Trial | None":
        """Return the best trial so far."""
        complete = [trial for trial in self.done[method] if trial.is_complete]
        return max(complete, key=lambda trial: trial.score, default=None)

    def line(self) -> str:
        """Say in one line how far the search is."""
        each = ", ".join(f"{m} {len(self.done[m])}/{n}" for m, n in self.totals.items())
        return f"{self.progress.line()} (trials: {each})"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        from trimol.search._trial import mean_point

        table = live_table(("", "", "trials", *self.goals), right=("trials", *self.goals))
        for method, total in self.totals.items():
            best, done = self.best(method), len(self.done[method])
            point = {} if best is None else mean_point(best)
            table.add_row(
                method,
                bar_of(done, total),
                f"{done} of {total}",
                *[number(point.get(name)) for name in self.goals],
            )
        said = Text(self.progress.pace)
        return Group(Text(f"{self.progress.title}; best so far on validation data"), table, said)

    def _ended(self) -> int:
        return self.steps * sum(map(len, self.done.values()))
