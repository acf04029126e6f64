"""Find good static weights and a learning rate, with few trainings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated

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
from trimol.cli._lines import plain_console
from trimol.cli._live import shown
from trimol.cli._parse import parse
from trimol.cli._reporting import print_json, usage
from trimol.cli._values import Maybe, count, typed, whole


@dataclass(frozen=True)
class Options:
    """Find good static weights and a learning rate, with few trainings.

    What you have now and equal weights are tried first, then other learning rates, weights that
    balance the gradients' lengths, and others, all on validation data. From ten trainings on, one
    in five compares the best with what you have now on fresh seeds; without a gain there, that is
    kept.

    Finished runs are not run again and stopped ones resume: after Ctrl-C type the command again.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.
    """

    task: TaskName
    budget: Annotated[int, typed(count, "N")] = 5
    """Trainings in all."""
    current: Current = ()
    steps: Steps = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    schedule: Schedule = None
    seed: Annotated[int, typed(whole, "N")] = 0
    """The seed of the trials; fresh seeds are those after it."""
    option: TaskOptions = ()
    jobs: Jobs = None
    on: On = None
    out: Annotated[Maybe[Path], typed(Path, "DIR", unset="runs/TASK-tuning")] = None
    """Where to save the runs."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "tune")
    current = setup.current(options.current)
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    from trimol.cli._stages import Stages
    from trimol.search import tune
    from trimol.tasks import load

    with usage():
        name = load(options.task, given).name
    out = options.out or Path("runs", f"{name}-tuning")
    view = Stages(name)
    with shown(view, quiet=options.quiet) as changed, usage():

        def stage(name: str) -> None:
            view.begin(name)
            changed()

        found = tune(
            options.task,
            budget=options.budget,
            current=current,
            steps=steps,
            batch_size=options.batch_size,
            task_options=given,
            schedule=options.schedule,  # type: ignore[arg-type]
            seed=options.seed,
            folder=out,
            jobs=options.jobs,
            on=options.on,
            stage=stage,
        )
    if options.json:
        print_json(found.summary)
        return 0
    console = plain_console()
    for text in (found.sentence, found.advice):
        console.print(f"{fill(text, console.width)}\n")
    console.print(f"To train with it: {found.command}", soft_wrap=True)
    return 0
