"""Does this task need a multi-objective method, and which? A sentence, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from trimol.cli import _setup as setup
from trimol.cli._common_options import (
    STEPS,
    AsJson,
    BatchSize,
    Current,
    Epochs,
    Jobs,
    On,
    Quiet,
    Schedule,
    Steps,
    TaskName,
    TaskOptions,
)
from trimol.cli._lines import echo, plain_console
from trimol.cli._live import shown
from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError, print_json, usage
from trimol.cli._values import Maybe, Names, count, folder_path, names, positive, typed, whole
from trimol.methods._registry import BASELINE, TRIED

if TYPE_CHECKING:
    from rich.console import Console

    from trimol.compare import Diagnosis

BUDGET = 30
OTHERWISE = 3  # the exit code of an answer for a method, where that is asked for
ENDS = {BASELINE: 0, "undecided": 4}


@dataclass(frozen=True)
class Options:
    """Does this task need a multi-objective method, and which? A sentence, and why.

    First the gradient check, a few per cent of a training: do the gradients oppose each other, by
    more than noise? Then --budget trainings: settings of static weights and of every method are
    tried on validation data, the best method and static weights are trained on fresh seeds and
    compared on test data. The answer is to use a method, to stay with static weights, or undecided.

    Finished runs are not run again and stopped ones resume: after Ctrl-C type the command again. A
    larger budget later uses what was trained before.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.
    """

    task: TaskName
    budget: Annotated[Maybe[int], typed(count, "N", unset=f"{BUDGET}")] = None
    """Trainings in all."""
    hours: Annotated[Maybe[float], typed(positive, "H", unset="any")] = None
    """In place of a budget: as many trainings as fit, by the time that the first one takes."""
    methods: Annotated[Names, typed(names, "A,B,…")] = TRIED
    """The methods that are compared with static weights."""
    current: Current = ()
    check_only: bool = False
    """Only the gradient check."""
    look_only: bool = False
    """The same, by its old name."""
    steps: Steps = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    schedule: Schedule = None
    seed: Annotated[int, typed(whole, "N")] = 0
    """The seed of the trials; the final runs have those after it."""
    option: TaskOptions = ()
    jobs: Jobs = None
    on: On = None
    out: Annotated[Maybe[Path], typed(folder_path, "DIR", unset="runs/TASK-diagnosis")] = None
    """Where to save the runs."""
    exit_code: bool = False
    """Exit with 3 where the answer is to use a method, 4 where it is undecided; otherwise every
    answer exits with 0."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "diagnose")
    for method in options.methods:
        setup.checked_method(method)
    if BASELINE in options.methods:
        raise UsageError(f"--methods must be other than {BASELINE}, which all are compared with")
    if options.budget is not None and options.hours is not None:
        raise UsageError("give --budget or --hours, not both")
    current = setup.current(options.current)
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    found, out = _diagnosed(options, given, steps, current)
    if options.json:
        print_json(found.summary)
    else:
        _show(found, out)
    return ENDS.get(found.use, OTHERWISE) if options.exit_code else 0


def _diagnosed(
    options: Options, given: Mapping[str, Any], steps: int, current: Mapping[str, Any]
) -> "tuple[Diagnosis, Path]":
    """Do what is left to do, with progress shown."""
    from trimol.cli._stages import Stages
    from trimol.compare import diagnose
    from trimol.compare._diagnose import checked_spending
    from trimol.runs._hold_out import count_held_out
    from trimol.tasks import load

    check_only = options.check_only or options.look_only
    with usage():
        task = load(options.task, given)
        checked_spending(options.budget or BUDGET, options.methods)
        if not check_only:
            count_held_out(task)
    out = options.out or Path("runs", f"{task.name}-diagnosis")
    view = Stages(task.name)
    with shown(view, quiet=options.quiet) as changed, usage():

        def stage(name: str) -> None:
            view.begin(name)
            changed()

        def watch(done: int, total: int) -> None:
            view.advance(done, total)
            changed()

        found = diagnose(
            options.task,
            folder=out,
            budget=options.budget or BUDGET,
            hours=options.hours,
            methods=options.methods,
            current=current,
            task_options=given,
            steps=steps,
            batch_size=options.batch_size,
            schedule=options.schedule,  # type: ignore[arg-type]
            seed=options.seed,
            check_only=check_only,
            jobs=options.jobs,
            on=options.on,
            watch=watch,
            stage=stage,
            plan=lambda text: None if options.quiet else echo(fill(text), error=True),
        )
    return found, out


def _show(found: "Diagnosis", out: Path) -> None:
    from trimol._words import count
    from trimol.cli import _tables as tables
    from trimol.report._diagnosed import chosen, gains, remarks
    from trimol.report._numbers import number

    console = plain_console()
    _paragraph(console, found.sentence)
    if (
        found.look is not None and found.look.reason not in found.sentence
    ):  # of a look alone, it is the sentence
        _paragraph(console, f"The losses ({found.regime}): {found.look.reason}")
    content = found.summary
    if (table := gains(content)) is not None:
        console.print(tables.plain(table))
    if (settings := chosen(content)) is not None:
        for name, setting, trials, cost in settings.rows:
            told = f"{name}: {setting}; {count(int(trials), 'trial')}"
            told += "" if cost == number(None) else f", cost {cost}"
            console.print(fill(told, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    for line in remarks(content):
        _paragraph(console, line)
    for line in found.copyable:
        console.print(line, soft_wrap=True)
    console.print(f"Saved in {out}. Next: trimol report {out}", soft_wrap=True)


def _paragraph(console: "Console", text: str) -> None:
    console.print(f"{fill(text, console.width)}\n")
