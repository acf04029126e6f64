"""What is seen of a run while it goes on."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimol.cli._outcome import SENTENCES, of_loss
from trimol.cli._progress import Progress
from trimol.cli._tables import bar_of, live_table
from trimol.report._numbers import number, share

if TYPE_CHECKING:
    from rich.console import RenderableType

_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_RIGHT = ("training", "test", "now")


class RunView:
    """One run: its progress, and the losses, weights and errors as last measured."""

    def __init__(self, progress: Progress, objectives: Sequence[str]) -> None:
        self.progress, self.objectives = progress, objectives

    def line(self) -> str:
        """How far the run is, and the errors as last measured."""
        records = self.progress.records
        last = records[-1] if records else {}
        measured = [f"{name} {number(last[name])}" for name in SENTENCES if name in last]
        return ", ".join([self.progress.line(), *measured])

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text(self.progress.title, style="bold"), self._bar()]
        if self.progress.records:
            parts += [Text(), self._losses(), Text(), self._errors()]
        return Group(*parts)

    def _bar(self) -> "RenderableType":
        from rich.table import Table

        progress = self.progress
        row = Table.grid(padding=(0, 2))
        row.add_row(
            bar_of(progress.done, progress.total, width=24),
            f"{progress.done} of {progress.total} steps",
            progress.pace,
        )
        return row

    def _losses(self) -> "RenderableType":
        from rich.text import Text

        table = live_table(("loss", "training", "test", "trend", "λ", ""), _RIGHT)
        for name in self.objectives:
            train, test, weight, _ = of_loss(self.progress.records[-1], name)
            table.add_row(
                Text(name),
                number(train),
                number(test),
                trend(self._history(f"loss/{name}")),
                share(weight),
                "" if weight is None else bar(weight),
            )
        return table

    def _errors(self) -> "RenderableType":
        table = live_table(("error", "now", "trend", ""), _RIGHT)
        for name, sentence in SENTENCES.items():
            values = self._history(name)
            if values:
                kind, colon, _ = sentence.partition(":")
                table.add_row(name, number(values[-1]), trend(values), kind if colon else sentence)
        return table

    def _history(self, name: str) -> list[float]:
        return [record[name] for record in list(self.progress.records) if name in record]


def bar(fraction: float, width: int = 8) -> str:
    """A bar that fills a fraction of the width, to an eighth of a character.

    >>> bar(0.5, width=4), bar(0.33, width=4)
    ('██  ', '█▍  ')
    """
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def trend(values: Sequence[float], width: int = 12) -> str:
    """The last values as a line of small bars, on a log scale where all are positive.

    >>> trend([100, 10, 1]), trend([3, 3]), trend([])
    ('█▅▁', '▁▁', '')
    """
    recent = [value for value in values if math.isfinite(value)][-width:]
    if not recent:
        return ""
    heights = [math.log(v) for v in recent] if min(recent) > 0 else recent
    low, high = min(heights), max(heights)
    span = high - low
    steps = [round((h - low) / span * (len(_LEVELS) - 1)) if span > 0 else 0 for h in heights]
    return "".join(_LEVELS[step] for step in steps)
