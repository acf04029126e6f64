"""``python -m trimol.demo``: three methods on real data, and the three errors of each.

The first form of ``trimol compare digits``: what is computed is in :mod:`trimol.study`; here it is
shown, on a terminal or in a pipe.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

import torch

from trimol import tasks
from trimol._extras import MissingExtra, require
from trimol.study import Row, compare, summarise
from trimol.tasks import Task
from trimol.training import Assessment

if TYPE_CHECKING:
    from rich.table import Table

BATCH_SIZE = 64

Results = dict[str, list[Assessment]]

HOW_TO_READ = """\
[b]R_opt[/b]  distance from where no small step improves all losses, on training data
[b]R_pop[/b]  the same on test data; [b]R_gen[/b] is the gap between the two
[b]E_ca[/b]   squared distance from the direction that avoids conflict of the losses

Lower is better, except for accuracy. A small R_opt alone makes no good model
(one loss that is flat is enough for it): read it beside the losses.
Gaps between methods that are within their ± rank nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    options = _options(arguments)
    torch.set_num_threads(1)  # the network is so small that threads would wait for each other
    try:
        require("rich", extra="studies", purpose="the demo")
        _demo(tasks.get("digits")(), options)
    except MissingExtra as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trimol.demo",
        description="Train handwritten digits on three losses with three methods; compare them.",
    )
    parser.add_argument(
        "--steps", type=_at_least_one, default=500, help="of each run (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds", type=_at_least_one, default=5, help="runs a method (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, found {text!r}")
    return int(text)


def _demo(task: Task, options: argparse.Namespace) -> None:
    names = list(task.settings)  # the methods whose step sizes on this task are known
    task.data()  # a missing package is missed before anything is drawn
    with _bars(names, options.steps * options.seeds) as watch:
        results = compare(
            task,
            names,
            seeds=options.seeds,
            steps=options.steps,
            batch_size=BATCH_SIZE,
            watch=watch,
        )
    found = summarise(results)
    if options.json:
        study = {"study": f"compare {task.name}", "rows": [asdict(row) for row in found]}
        print(json.dumps({**study, "files": []}, indent=1))
    else:
        _show(task, results, found, options.steps)


class _Watch(Protocol):
    def __call__(self, method: str) -> None: ...


@contextmanager
def _bars(names: Sequence[str], total: int) -> Iterator[_Watch]:
    """A progress bar for each method, on stderr; to be called with the method at every step."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("training {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars = {name: progress.add_task(name, total=total, start=False) for name in names}

        def watch(method: str) -> None:
            progress.start_task(bars[method])  # its clock starts with its first step
            progress.advance(bars[method])

        yield watch


def _show(task: Task, results: Results, found: Sequence[Row], steps: int) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(found))
    console.print(_setting(task, steps, seeds=found[0].n))
    console.print(_weights(results))
    console.print(HOW_TO_READ)


def _setting(task: Task, steps: int, seeds: int) -> str:
    data = task.data()
    spread = f"mean ± standard deviation of {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{task.name}: {len(data.train[0])} training and {len(data.test[0])} test samples; losses "
        f"and metrics on test data. {steps} steps, {spread}. Every method saw {BATCH_SIZE} samples "
        "a step, split where it takes several draws. Step sizes, not tuned method by method: "
        f"{_step_sizes(task)}."
    )


def _step_sizes(task: Task) -> str:
    return ", ".join(
        " ".join([name, f"lr={found.lr:g}", *(f"{k}={v}" for k, v in found.method.items())])
        for name, found in task.settings.items()
    )


def _weights(results: Results) -> "Table":
    """The mean weights at the end, and what would avoid conflict there."""
    table = _plain_table("λ at the end")
    for objective in next(iter(results.values()))[0].weights:
        table.add_column(objective, justify="right")
    table.add_column("conflict-avoiding λ*")
    for method, runs in results.items():
        means = [
            _mean(column) for column in zip(*(run.weights.values() for run in runs), strict=True)
        ]
        avoiding = [
            _mean(column) for column in zip(*(run.errors.min_norm for run in runs), strict=True)
        ]
        table.add_row(method, *means, "  ".join(avoiding))
    return table


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f}"


def _table(found: Sequence[Row]) -> "Table":
    """Methods down, numbers across; the spread under each mean."""
    table = _plain_table("method")
    columns = {metric: [r for r in found if r.metric == metric] for metric in _in_order(found)}
    units = {metric: _unit(column) for metric, column in columns.items()}
    for metric, unit in units.items():
        table.add_column(_heading(metric, unit), justify="right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(cells[0].method, *[_cell(row, units[row.metric]) for row in cells])
    return table


def _in_order(found: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.metric for row in found))


def _plain_table(first: str) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    return table


def _unit(column: Sequence[Row]) -> int:
    """The power of ten (0, −3, −6, …) in which the column's largest mean is about one."""
    largest = max(abs(row.mean) for row in column)
    return min(0, 3 * math.floor((math.log10(largest) + 1.3) / 3)) if largest > 0 else 0


def _heading(metric: str, unit: int) -> str:
    name = metric.replace("-", "-\n")
    return f"{name}\n[dim]×1e{unit}[/dim]" if unit else name


def _cell(row: Row, unit: int) -> str:
    """The mean, and the spread under it in two digits; both to the same decimal."""
    mean, std = row.mean / 10**unit, None if row.std is None else row.std / 10**unit
    if not std:
        return f"{mean:.3g}" + ("" if std is None else "\n[dim]±0[/dim]")
    decimals = max(0, 1 - math.floor(math.log10(std)))
    return f"{mean:.{decimals}f}\n[dim]±{std:.{decimals}f}[/dim]"


if __name__ == "__main__":
    sys.exit(main())
