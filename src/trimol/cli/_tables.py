"""Tables for people: what stands in them, and how it is drawn."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimol.cli._cells import with_spread
from trimol.report._numbers import number, unit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from trimol.runs import Row

BEST = "*"


@dataclass(frozen=True)
class Grid:
    """A table of methods and metrics.

    Attributes:
        methods: Their names.
        metrics: Their names.
        units: The power of ten in which each metric is given.
        cells: Mean and spread as text, by method and metric.
    """

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    units: dict[str, int]
    cells: dict[tuple[str, str], tuple[str, str]]


def grid(rows: Sequence["Row"], best: Collection[tuple[str, str]] = ()) -> Grid:
    """The numbers of a comparison as text, each metric in one unit.

    Args:
        rows: One for each method and metric.
        best: Method and metric of the numbers to mark.
    """
    metrics = tuple(dict.fromkeys(row.metric for row in rows))
    units = {m: unit(row.mean for row in rows if row.metric == m) for m in metrics}
    cells = {}
    for row in rows:
        mean, spread = with_spread(row.mean, row.ci, units[row.metric])
        mark = BEST if (row.method, row.metric) in best else ""
        cells[row.method, row.metric] = (mean + mark, spread)
    return Grid(tuple(dict.fromkeys(row.method for row in rows)), metrics, units, cells)


def draw(found: Grid, width: int) -> "Table":
    """Methods down and metrics across if the width allows it, else metrics down.

    Args:
        found: What to draw.
        width: Columns there are.
    """
    from rich.console import Console

    table = _methods_down(found)
    needs = Console(width=10_000).measure(table).maximum
    return table if needs <= width else _metrics_down(found)


def readings(found: Sequence[tuple[str, float, float, float]]) -> "RenderableType":
    """Both readings of E_ca over seeds, as a table; nothing for a single seed."""
    if not found:
        return ""
    table = plain_table("E_ca", "mean over seeds", "definition (mean inside)", "without bias")
    for method, *values in found:
        table.add_row(method, *map(number, values))
    return table


def weights(
    found: Sequence[tuple[str, Sequence[float], Sequence[float]]], objectives: Sequence[str]
) -> "RenderableType":
    """The means of λ and λ*, as a table."""
    table = plain_table("λ at the end", *objectives, "λ* that avoids conflict")
    for method, own, avoiding in found:
        cells = [f"{weight:.2f}" for weight in own]
        table.add_row(method, *cells, "  ".join(f"{weight:.2f}" for weight in avoiding))
    return table


def plain_table(first: str, *others: "str | Text") -> "Table":
    """A table with a line under its head; numbers are to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        # As text, not as rich's markup: a user may have named a loss "[b]".
        head = Text(name) if isinstance(name, str) else name
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _methods_down(found: Grid) -> "Table":
    from rich.text import Text

    table = plain_table("method", *[_heading(m, found.units[m]) for m in found.metrics])
    for method in found.methods:
        table.add_row(Text(method), *[_cell(found, method, metric) for metric in found.metrics])
    return table


def _metrics_down(found: Grid) -> "Table":
    from rich.text import Text

    table = plain_table("", *found.methods)
    for metric in found.metrics:
        scale = found.units[metric]
        name = Text.assemble(metric, (f" ×1e{scale}" if scale else "", "dim"))
        table.add_row(name, *[_cell(found, method, metric) for method in found.methods])
    return table


def _heading(metric: str, scale: int) -> "Text":
    from rich.text import Text

    return Text.assemble(metric.replace("-", "-\n"), (f"\n×1e{scale}" if scale else "", "dim"))


def _cell(found: Grid, method: str, metric: str) -> "Text":
    """The mean, and its spread under it."""
    from rich.text import Text

    mean, spread = found.cells.get((method, metric), ("–", ""))
    style = "bold" if mean.endswith(BEST) else ""
    return Text.assemble((mean, style), (f"\n{spread}" if spread else "", "dim"))
