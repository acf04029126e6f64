"""Train a task for many preferences: a front of models to choose from, not one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import UseAppendAction, arg

from trimol.cli import _method_list as method_list
from trimol.cli import _setup as setup
from trimol.cli._common_options import (
    STEPS,
    AsJson,
    BatchSize,
    Epochs,
    Jobs,
    On,
    OptimizerName,
    Quiet,
    Rate,
    Retry,
    Schedule,
    Steps,
    TaskName,
    TaskOptions,
)
from trimol.cli._lines import echo, plain_console
from trimol.cli._live import shown
from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError, print_json, usage
from trimol.cli._values import (
    Maybe,
    Names,
    Numbers,
    Texts,
    count,
    folder_path,
    names,
    numbers,
    typed,
    whole,
)
from trimol.methods._registry import SPREADING, spreading
from trimol.tasks._catalogue import CONDITIONED

if TYPE_CHECKING:
    from trimol.runs import Front
    from trimol.runs._variants import Variant


@dataclass(frozen=True)
class Options:
    """Train a task for many preferences: a front of models to choose from, not one.

    Every point is an ordinary run. Finished ones are not run again and stopped ones go on: after
    Ctrl-C, or to add methods, seeds or refined points, type the command again.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.
    """

    task: TaskName
    by: Annotated[Names, typed(names, "A,B,…")] = SPREADING
    """What makes the front: methods that take a preference (or train several models at once), or
    conditioned, one model that is told it; the others are compared with the first. Several settings
    of a method are METHOD:NAME=VALUE, as in stch:mu=0.1,stch:mu=1."""
    points: Annotated[int, typed(count, "N")] = 10
    """Preferences, spread evenly on the simplex."""
    refine: Annotated[int, typed(whole, "N")] = 0
    """Preferences that are added after these, where the front is thin."""
    seeds: Annotated[int, typed(count, "N")] = 1
    """How often each front is made."""
    reference: Annotated[Maybe[Numbers], typed(numbers, "F1,F2,…", unset="from-the-runs")] = None
    """The losses up to which the hypervolume is taken."""
    lr: Rate = None
    schedule: Schedule = None
    optimizer: OptimizerName = None
    steps: Steps = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    set: Annotated[UseAppendAction[Texts], arg(metavar="METHOD.NAME=VALUE")] = ()
    """A step size, schedule or hyper-parameter, e.g. --set stch.mu=0.01; by default the task's."""
    option: TaskOptions = ()
    jobs: Jobs = None
    on: On = None
    retry: Retry = False
    out: Annotated[Maybe[Path], typed(folder_path, "DIR", unset="runs/TASK-front")] = None
    """Where to save the runs."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "front")
    by = _checked_methods(options)
    command = shlex.join(["trimol", "front", *arguments])
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    _check(options, by, given)
    out = options.out or Path("runs", f"{setup.name_of(options.task, given)}-front")
    found = _made(options, by, given, steps, out, command)
    if options.json:
        print_json(_for_machines(found, out))
    else:
        _show(found, out)
    return 0


def _checked_methods(options: Options) -> "list[Variant | str]":
    """What makes the fronts, in the order that was typed."""
    named = [label for label in options.by if label != CONDITIONED]
    by = {v.label: v for v in method_list.read(named, options.set, flag="by")}
    known = spreading()
    for variant in by.values():
        if variant.method not in known:
            raise UsageError(
                f"--by must be of {', '.join([*known, CONDITIONED])}, which make a front, found "
                f"{variant.method!r}"
            )
    return [by.get(label, label) for label in options.by]


def _check(options: Options, by: "Sequence[Variant | str]", given: Mapping[str, Any]) -> None:
    """Let the methods look at their hyper-parameters before anything runs."""
    from trimol.runs.config import check_method, configure

    with usage():
        for variant in by:
            if not isinstance(variant, str):
                config = configure(
                    options.task,
                    variant.method,
                    lr=variant.lr or options.lr,
                    steps=1,
                    batch_size=1,
                    task_options=given,
                    hyperparameters=variant.hyperparameters,
                    optimizer=options.optimizer,
                )
                check_method(config)


def _made(
    options: Options,
    by: "Sequence[Variant | str]",
    given: Mapping[str, Any],
    steps: int,
    out: Path,
    command: str,
) -> "Front":
    """Run what is left to run, with progress shown."""
    from trimol.cli._front_view import FrontView
    from trimol.runs import front
    from trimol.runs._pool import at_a_time

    points = options.points + options.refine
    title = f"{setup.name_of(options.task, given)}: {points} points by {', '.join(options.by)}"
    view = FrontView(title, len(by) * points * options.seeds, steps)
    with usage(), shown(view, quiet=options.quiet) as changed:

        def watch(config: Any, step: int, record: Any) -> None:
            view.advance(config.key, step / max(1, config.steps))
            changed()

        found = front(
            options.task,
            by,
            folder=out,
            steps=steps,
            points=options.points,
            refine=options.refine,
            seeds=options.seeds,
            batch_size=options.batch_size,
            task_options=given,
            lr=options.lr,
            schedule=options.schedule,
            optimizer=options.optimizer,
            reference=options.reference,
            jobs=at_a_time(options.jobs, options.on),
            on=options.on,
            watch=watch,
            retry=options.retry,
            say=lambda line: echo(line, error=True),
            command=command,
        )
        view.finish()
    return found


def _for_machines(found: "Front", out: Path) -> dict[str, Any]:
    from trimol.report._front import sentences
    from trimol.runs._front_tables import as_plain, front_study

    study = front_study(found, out)
    return {
        **study.summary(),
        "sentence": " ".join(sentences(study)),
        "points": [as_plain(point, found) for point in found.points],
        "reference": {name: list(at) for name, at in found.references.items()},
        "failed": [{"key": config.key, "reason": said} for config, said in found.failed],
        "files": [str(out / name) for name in ("study.json", *study.files)],
    }


def _show(found: "Front", out: Path) -> None:
    from rich.text import Text

    from trimol.cli._tables import plain_table
    from trimol.report._front import HOW_TO_READ, MARKS, listing, sentences
    from trimol.runs._front_tables import front_study

    console, study = plain_console(), front_study(found, out)
    for content in (listing(study, method) for method in found.methods):
        table = plain_table(*content.columns)
        for row in content.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for line in (MARKS, "", *sentences(study)):
        console.print(fill(line, console.width))
    for config, said in found.failed:
        console.print(fill(f"Diverged: {config.method}, seed {config.seed}: {said}", console.width))
    console.print(f"\n{fill(HOW_TO_READ, console.width)}\n")
    told = f"A point's run is the folder {out}/*-RUN*.\nNext: trimol report {out}"
    console.print(told, soft_wrap=True)
