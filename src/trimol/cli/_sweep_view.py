"""What is seen of a search while it goes on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trimol.cli._progress import Progress
from trimol.cli._tables import bar_of, live_table
from trimol.report._numbers import number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trimol.runs._trials import Trial
    from trimol.runs.config import RunConfig


class SweepView:
    """The trials of several methods: how many are done, and the best so far.

    Args:
        title: What is searched, in a few words.
        totals: The trials of each method.
        steps: Steps of a trial, of all its seeds.
        goals: What is looked at, by objective and name, with which way is better.
        spread: Whether trials are weighed by how far apart metrics lie (`SweepPlan.spread`).
    """

    def __init__(
        self,
        title: str,
        totals: Mapping[str, int],
        steps: int,
        goals: Mapping[str, Mapping[str, Any]],
        *,
        spread: bool = False,
    ) -> None:
        self.totals, self.steps, self.goals, self.spread = totals, steps, goals, spread
        self.done: dict[str, list[Trial]] = {method: [] for method in totals}
        self.going: dict[str, int] = {}  # steps of the runs that are under way, by key
        self.progress = Progress(title, sum(totals.values()) * steps)

    def advance(self, config: "RunConfig", step: int) -> None:
        """A run is so far."""
        self.going[config.key] = step
        self.progress.advance(self._ended() + sum(self.going.values()))

    def told(self, trials: "Sequence[Trial]") -> None:
        """Trials came to an end, or were found on disk."""
        for trial in trials:
            self.done[trial.method].append(trial)
        ran = bool(self.going)
        self.going = {}
        move = self.progress.advance if ran else self.progress.skip
        move(self._ended())

    def best(self, method: str) -> "Trial | None":
        """The best trial so far, by the score that chooses at the end."""
        from trimol.runs._judging import gains

        ended = [trial for trial in self.done[method] if trial.values]
        scores = gains([trial.values for trial in ended], self.goals, spread=self.spread)
        return ended[scores.index(max(scores))] if ended else None

    def line(self) -> str:
        """How far it is, in one line."""
        each = ", ".join(f"{m} {len(self.done[m])}/{n}" for m, n in self.totals.items())
        return f"{self.progress.line()} (trials: {each})"

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        names = [name for metrics in self.goals.values() for name in metrics]
        heads = [name.partition("/")[2] for name in names]
        table = live_table(("", "", "trials", *heads), right=("trials", *heads))
        for method, total in self.totals.items():
            best, done = self.best(method), len(self.done[method])
            table.add_row(
                method,
                bar_of(done, total),
                f"{done} of {total}",
                *[number(best.values[name]) if best else number(None) for name in names],
            )
        said = Text(self.progress.pace)
        return Group(Text(f"{self.progress.title}; best so far on validation data"), table, said)

    def _ended(self) -> int:
        return self.steps * sum(map(len, self.done.values()))
