"""Search for good settings of methods on validation data: grids, at random, or by TPE."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import UseAppendAction, arg

from trimol.cli import _setup as setup
from trimol.cli import _space_list as space_list
from trimol.cli._common_options import (
    STEPS,
    AsJson,
    BatchSize,
    Epochs,
    Jobs,
    On,
    OptimizerName,
    Quiet,
    Steps,
    TaskName,
    TaskOptions,
)
from trimol.cli._lines import plain_console
from trimol.cli._live import shown
from trimol.cli._parse import parse
from trimol.cli._reporting import print_json, usage
from trimol.cli._values import (
    Maybe,
    Names,
    Texts,
    choice,
    count,
    folder_path,
    names,
    positive,
    schedule_name,
    typed,
    whole,
)
from trimol.methods._registry import BASELINE, DEFAULT

if TYPE_CHECKING:
    from trimol.search import Sweep, SweepPlan


def _rates(text: str) -> Any:
    return space_list.read(text, positive)


def _schedules(text: str) -> Any:
    return space_list.read(text, schedule_name)


_search = partial(choice, choices=("grid", "random", "tpe"))


@dataclass(frozen=True)
class Options:
    """Search for good settings of methods on validation data: grids, at random, or by TPE.

    What may be tried of a setting: values (0.1,1,10), a range by ratio (log:1e-3..10), evenly
    (lin:0..1) or of whole numbers (int:1..8), so many points of it (log:1e-3..10:5), or weights
    that sum to one (simplex, or simplex:4 for multiples of 1/4).

    Trials that are on disk are not run again and stopped ones continue: after Ctrl-C, or for more
    trials, type the command again. tpe asks for four trials of each method at once, and learns from
    them then. Test data are not used: where the task has no validation data, a fifth of the
    training samples serves as such.
    """

    task: TaskName
    methods: Annotated[Names, typed(names, "A,B,…")] = (BASELINE, DEFAULT)
    """The methods."""
    lr: Annotated[Maybe[str], typed(_rates, "SPACE", unset="per-task")] = None
    """Step sizes to try for every method that is not given its own, e.g. log:1e-3..1. Where nothing
    else is to be tried either, five from a tenth to ten times the task's own."""
    schedule: Annotated[Maybe[str], typed(_schedules, "A,B,…", unset="constant")] = None
    """Schedules of the step size to try: constant, linear, cosine."""
    set: Annotated[UseAppendAction[Texts], arg(metavar="METHOD.NAME=SPACE")] = ()
    """What to try of a hyper-parameter, e.g. --set 'modo.gamma=log:1e-3..10' --set
    static.weights=simplex."""
    search: Annotated[Maybe[str], typed(_search, "grid|random|tpe", unset="by-space")] = None
    """Every combination, or what Optuna proposes; by default a grid if all settings are values or
    points, else tpe."""
    trials: Annotated[Maybe[int], typed(count, "N", unset="20")] = None
    """Trials of each method, for random and tpe."""
    prune: Literal["none", "halving"] = "none"
    """Successive halving: trials begin with a ninth of the steps, and the best third goes on."""
    seeds: Annotated[int, typed(count, "N")] = 1
    """Runs of each trial."""
    seed: Annotated[int, typed(whole, "N")] = 0
    """Decides what Optuna proposes."""
    optimizer: OptimizerName = None
    steps: Steps = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    option: TaskOptions = ()
    jobs: Jobs = None
    on: On = None
    out: Annotated[Maybe[Path], typed(folder_path, "DIR", unset="runs/TASK-sweep")] = None
    """Where to save the trials."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "sweep")
    for method in options.methods:
        setup.checked_method(method)
    settings = space_list.by_setting(options.set, options.methods)
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    plan = _plan(options, settings, given, steps)
    out = options.out or Path("runs", f"{plan.problem.made.name}-sweep")
    found = _searched(plan, options, out)
    if options.json:
        print_json(_for_machines(found))
    else:
        _show(found)
    return 0


def _plan(options: Options, settings: Any, given: dict[str, Any], steps: int) -> "SweepPlan":
    from trimol.search import SweepPlan

    with usage():
        return SweepPlan(
            task=options.task,
            methods=options.methods,
            steps=steps,
            settings=settings,
            lr=options.lr,
            schedule=options.schedule,
            search=options.search,
            trials=options.trials,
            prune=options.prune,
            seeds=options.seeds,
            seed=options.seed,
            batch_size=options.batch_size,
            options=given,
            optimizer=options.optimizer,
        )


def _searched(plan: "SweepPlan", options: Options, out: Path) -> "Sweep":
    """Run what is left to run, with progress shown."""
    from trimol.cli._sweep_view import SweepView
    from trimol.runs._pool import at_a_time
    from trimol.search import sweep

    title = f"{plan.problem.made.name}: {sum(plan.counts.values())} trials by {plan.how}"
    title += "" if plan.prune == "none" else ", pruned by successive halving"
    view = SweepView(title, plan.counts, plan.steps * plan.seeds, list(plan.columns))
    with shown(view, quiet=options.quiet) as changed:

        def watch(config: Any, step: int, record: Any) -> None:
            view.advance(config, step)
            changed()

        jobs = at_a_time(options.jobs, options.on)
        return sweep(plan, out, jobs=jobs, on=options.on, watch=watch, show=view.add)


def _for_machines(found: "Sweep") -> dict[str, Any]:
    from trimol.runs.study import FILE
    from trimol.search import _results as results

    names = [FILE, "trials.parquet", "axes.parquet"]
    return {
        **results.make_study(found).summary(),
        "files": [str(path) for name in names if (path := found.folder / name).exists()],
        "search": found.plan.how,
        "prune": found.plan.prune,
        "best": results.summarise_best(found),
        "next": results.write_comparison(found),
    }


def _show(found: "Sweep") -> None:
    from rich.text import Text

    from trimol.cli import _tables as tables
    from trimol.report._numbers import number
    from trimol.search import _results as results

    console = plain_console()
    best = results.summarise_best(found)
    columns = found.plan.columns
    table = tables.plain_table("best", "trial", "score", *columns)
    for method, own in best.items():
        values = [number(own["values"][column]) for column in columns.values()]
        table.add_row(Text(method), str(own["trial"]), f"{own['score']:+.1f} %", *values)
    console.print(table)
    for own in best.values():
        console.print(f"  {own['label']}", soft_wrap=True)
    *said, last = results.write_notes(found)
    for note in said:
        console.print(f"\n{note}")
    about, _, command = last.rpartition(": ")
    console.print(f"\n{about}:")
    console.print(f"  {command}", soft_wrap=True)
    console.print(f"\nSaved in {found.folder}. Next: trimol report {found.folder}", soft_wrap=True)
