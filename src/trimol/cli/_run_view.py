"""What is seen of a run while it goes on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimol.cli._cells import bar, trend
from trimol.cli._outcome import SENTENCES, objectives
from trimol.cli._progress import Progress
from trimol.report._numbers import number

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


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
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        progress = self.progress
        row = Table.grid(padding=(0, 2))
        row.add_row(
            ProgressBar(total=progress.total, completed=progress.done, width=24),
            f"{progress.done} of {progress.total} steps",
            progress.pace,
        )
        return row

    def _losses(self) -> "RenderableType":
        from rich.text import Text

        table = _grid("loss", "training", "test", "trend", "λ", "")
        for loss in objectives(self.progress.records[-1], self.objectives):
            table.add_row(
                Text(loss.name),
                number(loss.train),
                number(loss.test),
                trend(self._history(f"loss/{loss.name}")),
                "–" if loss.weight is None else f"{loss.weight:.2f}",
                "" if loss.weight is None else bar(loss.weight),
            )
        return table

    def _errors(self) -> "RenderableType":
        table = _grid("error", "now", "trend", "")
        for name, sentence in SENTENCES.items():
            values = self._history(name)
            if values:
                kind, colon, _ = sentence.partition(":")
                table.add_row(name, number(values[-1]), trend(values), kind if colon else sentence)
        return table

    def _history(self, name: str) -> list[float]:
        return [record[name] for record in list(self.progress.records) if name in record]


def _grid(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        numeric = column in ("training", "test", "now")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    return table
