"""Run the paper's figures and tables again, and the ledger of its claims."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from trimol.cli._common_options import AsJson, On, Quiet
from trimol.cli._lines import echo, plain_console, say
from trimol.cli._live import shown
from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError, print_json, usage
from trimol.cli._values import Maybe, Texts, count, folder_path, typed
from trimol.paper import _studies as studies

if TYPE_CHECKING:
    from rich.console import Console

    from trimol.runs.study import Row, Study

ALL = "all"
MOST_ROWS = 40  # more are for machines: they are in study.json


@dataclass(frozen=True)
class Options:
    """Run the paper's figures and tables again, and the ledger of its claims.

    Without a name it lists the studies. What is done already is not done again.
    """

    names: Positional[Annotated[Texts, arg(metavar="NAME")]] = ()
    """The studies, or `all` (but those of NYU-v2, which need a GPU)."""
    quick: bool = False
    """Fewer seeds and steps: to see whether it works, not what is true."""
    full: bool = False
    """As far as the paper went, where a study goes less far by default: hours."""
    regime: Annotated[
        Maybe[Literal["frozen", "finetune"]], typed(str, "frozen|finetune", unset="frozen")
    ] = None
    """Office: train on features of a frozen backbone, or the backbone, too (for a GPU)."""
    budget: Annotated[
        Maybe[Literal["equal", "paper"]], typed(str, "equal|paper", unset="equal")
    ] = None
    """Multi-task: the same samples for all, or MoDo also with the paper's larger budget."""
    seeds: Annotated[Maybe[int], typed(count, "N", unset="per-study")] = None
    """Seeds, or trials."""
    on: On = None
    out: Annotated[Path, typed(folder_path, "DIR")] = Path("runs/reproduce")
    """Where studies are kept, each in a folder of its own."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "reproduce")
    names = _names(options)
    if not names:
        return _list(options)
    results = [_run(name, options) for name in names]
    if options.json:
        print_json(_for_machines(results))
    else:
        for study in results:
            _show(study)
        echo(f"Next: trimol report {options.out}")
    return 0


def _names(options: Options) -> list[str]:
    known = studies.names()
    for name in options.names:
        if name not in (*known, ALL):
            raise UsageError(f"unknown study {name!r}: the studies are {', '.join(known)}, {ALL}")
    together = [name for name in known if not studies.get(name).apart]
    names = together if ALL in options.names else list(options.names)
    with usage():  # before anything runs
        for name in names:
            studies.get(name).checked({"regime": options.regime, "budget": options.budget})
    for name in options.names:
        if options.on is not None and name != ALL and not studies.get(name).spread:
            raise UsageError(f"--on: {name} has no runs that a cluster could take")
    return names


def words() -> Sequence[str]:
    """What may follow the command: see `trimol completion`."""
    return studies.names()


def _list(options: Options) -> int:
    titles = {name: studies.get(name).title for name in studies.names()}
    if options.json:
        print_json([{"study": name, "title": title} for name, title in titles.items()])
        return 0
    width = max(map(len, titles))
    for name, title in titles.items():
        say(f"{name:<{width}}  {title}", indent=width + 2)
    return 0


def _run(name: str, options: Options) -> "Study":
    from trimol.cli._progress import Progress
    from trimol.cli._run_view import RunView

    progress = Progress(name, total=0)
    with shown(RunView(progress, ()), quiet=options.quiet) as changed:

        def watch(done: int, total: int) -> None:
            progress.total = total
            progress.advance(done)
            changed()

        return studies.run(
            name,
            options.out,
            quick=options.quick,
            full=options.full,
            seeds=options.seeds,
            watch=watch,
            regime=options.regime,
            budget=options.budget,
            on=options.on,
        )


def _for_machines(results: Sequence["Study"]) -> dict[str, Any]:
    """One object, whether of one study or of several; then every row says of which it is."""
    files = [str(path) for study in results for path in _paths(study)]
    if len(results) == 1:
        return {**results[0].summary(), "files": files}
    rows = [{"study": study.name, **row} for study in results for row in study.summary()["rows"]]
    return {"study": ", ".join(study.name for study in results), "rows": rows, "files": files}


def _paths(study: "Study") -> list[Path]:
    from trimol.runs.study import FILE

    return [(study.folder or Path()) / name for name in (FILE, *study.files)]


def _show(study: "Study") -> None:

    from trimol.cli._tables import draw, grid

    console = plain_console()
    console.print(study.title, style="bold")
    methods = compared(study.rows)
    if methods:
        console.print(draw(grid(methods), console.width))
        console.print("Mean over seeds, ± half its 95 % interval.")
    for note in study.notes:
        console.print(fill(note, console.width))
    if len(study.rows) <= MOST_ROWS and not methods:
        _table(console, study)
    else:
        console.print(f"{len(study.rows)} numbers: see {_paths(study)[0]}")
    for path in _paths(study):
        console.print(str(path), soft_wrap=True)
    console.print()


def compared(rows: Sequence["Row"]) -> list["Row"]:
    """The rows that make a table of methods and metrics, for a study that says its budgets.

    Left out are metrics that are a share of another (``ΔA_id/depth``) or another reading of it
    (``ΔA_id (…)``). None for other studies.

    >>> row = {"method": "modo", "metric": "mIoU", "mean": 0.5, "std": None, "n": 1, "ci": None}
    >>> [each["method"] for each in compared([{**row, "budget": "paper"}])]
    ["modo, paper's budget"]
    >>> compared([row])
    []
    """
    labels = {"equal": "{}", "paper": "{}, paper's budget"}
    return [
        {**row, "method": labels[row["budget"]].format(row["method"])}
        for row in rows
        if "budget" in row
        and not {"/", "("} & set(row["metric"])
        and row["mean"] is not None
        and math.isfinite(row["mean"])
    ]


def _table(console: "Console", study: "Study") -> None:
    """Method, mean ± standard deviation, what the paper says, and of what."""
    from rich.text import Text

    from trimol.cli._tables import plain_table
    from trimol.report._numbers import interval, number
    from trimol.runs.study import COLUMNS

    table = plain_table("method", "mean ± std", "n", "paper")
    table.add_column("what")  # long, so it wraps
    for row in study.rows:
        own = {k: v for k, v in row.items() if k not in (*COLUMNS, "paper_std") and v is not None}
        what = ", ".join([row["metric"], *(f"{k}={_value(v)}" for k, v in own.items())])
        mean = number(None) if row["mean"] is None else interval(row["mean"], row["std"])
        paper = (
            number(None) if row["paper"] is None else interval(row["paper"], row.get("paper_std"))
        )
        table.add_row(Text(row["method"]), mean, str(row["n"]), paper, Text(what))
    console.print(table)


def _value(value: Any) -> str:
    """A setting in few digits; whole numbers and words as they are."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
