"""Tables for people: what stands in them, and how it is drawn."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trimol.report._numbers import number, share, spread, unit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from trimol.report._summary import Table as StepTable
    from trimol.runs import Row

BEST = "*"
LONG = 16  # letters of a label
CALM = "cyan"  # of the terminal's own palette: readable on dark and light


@dataclass(frozen=True)
class Grid:
    """A table of methods and metrics."""

    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    units: dict[str, int]  # the power of ten in which each metric is given
    cells: dict[tuple[str, str], tuple[str, str]]  # mean and spread, by method and metric


def grid(rows: Sequence["Row"], best: Collection[tuple[str, str]] = ()) -> Grid:
    """The numbers of a comparison as text, each metric in one unit, the best ones marked."""
    metrics = tuple(dict.fromkeys(row["metric"] for row in rows))
    units = {m: unit(row["mean"] for row in rows if row["metric"] == m) for m in metrics}
    cells = {}
    for row in rows:
        mean, half = spread(row["mean"], row["ci"], units[row["metric"]])
        mark = BEST if (row["method"], row["metric"]) in best else ""
        cells[row["method"], row["metric"]] = (mean + mark, half and f"±{half}")
    return Grid(tuple(dict.fromkeys(row["method"] for row in rows)), metrics, units, cells)


def draw(numbers: Grid, width: int) -> "RenderableType":
    """Methods down and metrics across if so many characters allow it, else metrics down.

    Where there are too many methods for that, too, they are shared out between several tables.
    """
    from rich.console import Group

    table = _methods_down(numbers)
    if _width(table) <= width:
        return table
    methods, tables = list(numbers.methods), []
    while methods:
        fits = [n for n in range(1, len(methods) + 1) if _wide(numbers, methods[:n]) <= width]
        most = max(fits, default=1)
        tables.append(_metrics_down(replace(numbers, methods=tuple(methods[:most]))))
        methods = methods[most:]
    return Group(*tables)


def _wide(numbers: Grid, methods: Sequence[str]) -> int:
    return _width(_metrics_down(replace(numbers, methods=tuple(methods))))


def _width(table: "Table") -> int:
    from rich.console import Console

    return Console(width=10_000).measure(table).maximum


def named(method: str) -> "Text":
    """A method's label, on several lines where it is that of a variant with many settings."""
    from rich.text import Text

    if len(method) <= LONG:
        return Text(method)
    parts = method.split(":")  # and a list of numbers, where it is long itself
    return Text(":\n".join(p if len(p) <= LONG else p.replace(",", ",\n") for p in parts))


def weights(
    rows: Sequence[tuple[str, Sequence[float], Sequence[float]]], objectives: Sequence[str]
) -> "RenderableType":
    """The means of λ and λ*, as a table."""
    table = plain_table("λ at the end", *objectives, "MGDA's λ*")
    for method, own, avoiding in rows:
        table.add_row(named(method), *map(share, own), "  ".join(map(share, avoiding)))
    return table


def plain(found: "StepTable") -> "Table":
    """A table of texts, drawn."""
    from rich.text import Text

    table = plain_table(found.columns[0], *found.columns[1:])
    for row in found.rows:
        table.add_row(*map(Text, row))
    return table


def steps(found: "StepTable | None") -> "RenderableType":
    """What the steps did, as a table; nothing where no step was looked at."""
    if found is None:
        return ""
    from rich.text import Text

    from trimol.report._step_effects import TITLE

    table = plain_table(TITLE.lower(), *found.columns[1:])
    for row in found.rows:
        table.add_row(named(row[0]), *map(Text, row[1:]))
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


def live_table(columns: Sequence[str], right: Collection[str]) -> "Table":
    """A table without lines, for what is redrawn; the columns to the right are named."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    return table


def bar_of(done: float, total: float, width: int = 20) -> "RenderableType":
    """How much is done of a total, as a bar in quiet colours, which a finished one keeps."""
    from rich.progress_bar import ProgressBar

    return ProgressBar(
        total=total, completed=done, width=width, complete_style=CALM, finished_style=CALM
    )


def _methods_down(numbers: Grid) -> "Table":
    metrics, units = numbers.metrics, numbers.units
    heads = [_heading(metric.replace("-", "-\n"), units[metric], "\n") for metric in metrics]
    table = plain_table("method", *heads)
    for method in numbers.methods:
        table.add_row(named(method), *[_cell(numbers, method, metric) for metric in metrics])
    return table


def _metrics_down(numbers: Grid) -> "Table":
    table = plain_table("", *map(named, numbers.methods))
    for metric in numbers.metrics:
        cells = [_cell(numbers, method, metric) for method in numbers.methods]
        table.add_row(_heading(metric, numbers.units[metric], " "), *cells)
    return table


def _heading(metric: str, exponent: int, between: str) -> "Text":
    """A metric's name and its unit."""
    from rich.text import Text

    return Text.assemble(metric, (f"{between}×1e{exponent}" if exponent else "", "dim"))


def _cell(numbers: Grid, method: str, metric: str) -> "Text":
    """The mean, and its spread under it."""
    from rich.text import Text

    mean, half = numbers.cells.get((method, metric), (number(None), ""))
    style = "bold" if mean.endswith(BEST) else ""
    return Text.assemble((mean, style), (f"\n{half}" if half else "", "dim"))
