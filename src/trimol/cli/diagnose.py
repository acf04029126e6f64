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
    Epochs,
    Jobs,
    On,
    Quiet,
    Steps,
    TaskName,
    TaskOptions,
)
from trimol.cli._live import shown
from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError, print_json, usage
from trimol.cli._values import Maybe, Names, count, names, positive, typed, whole
from trimol.methods._registry import BASELINE, TRIED

if TYPE_CHECKING:
    from rich.console import Console

    from trimol.runs.diagnosis import Diagnosis

OTHERWISE = 3  # the exit code of a verdict for a method, where that is asked for


@dataclass(frozen=True)
class Options:
    """Does this task need a multi-objective method, and which? A sentence, and why.

    First a look at plain training: do the gradients oppose each other, by more than noise? Then a
    trial: static weighting and every method, each tuned on validation data with as many trials, run
    again with fresh seeds and compared on test data, at equal samples and at equal time.

    Finished runs are not run again and stopped ones go on: after Ctrl-C type the command again.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.
    """

    task: TaskName
    methods: Annotated[Names, typed(names, "A,B,…")] = TRIED
    """The methods that are to beat static weighting."""
    look_only: bool = False
    """Only look at plain training: a few per cent of one run."""
    steps: Steps = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    trials: Annotated[Maybe[int], typed(count, "N", unset="per-task")] = None
    """Settings tried of static weighting and of each method; by default 9 for each objective and 9
    more."""
    tuning_seeds: Annotated[int, typed(count, "N")] = 3
    """Runs of each setting that is tried."""
    seeds: Annotated[int, typed(count, "N")] = 10
    """Final runs of each, with seeds that the choice has not seen."""
    first_seed: Annotated[int, typed(whole, "N")] = 0
    """The first of the seeds."""
    minutes: Annotated[Maybe[float], typed(positive, "MIN", unset="any")] = None
    """Begin no more trials after so long; the most usual settings come first."""
    option: TaskOptions = ()
    jobs: Jobs = None
    on: On = None
    out: Annotated[Maybe[Path], typed(Path, "DIR", unset="runs/TASK-diagnosis")] = None
    """Where to save the runs."""
    exit_code: bool = False
    """Exit with 3 where the verdict is to use a method; otherwise every verdict exits with 0."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "diagnose")
    for method in options.methods:
        setup.checked_method(method)
    if BASELINE in options.methods:
        raise UsageError(f"--methods must be other than {BASELINE}, which all are compared with")
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    found, out = _diagnosed(options, given, steps)
    if options.json:
        print_json(found.summary)
    else:
        _show(found, out)
    return OTHERWISE if options.exit_code and found.use != BASELINE else 0


def _diagnosed(options: Options, given: Mapping[str, Any], steps: int) -> "tuple[Diagnosis, Path]":
    """Do what is left to do, with progress shown."""
    from trimol.cli._stages import Stages
    from trimol.runs.diagnosis import diagnose
    from trimol.runs.trial import TrialPlan, held_out
    from trimol.tasks import load

    with usage():
        task = load(options.task, given)
        TrialPlan(options.task, options.methods, given)
        if not options.look_only:
            held_out(task)
    out = options.out or Path("runs", f"{task.name}-diagnosis")
    view = Stages(options.task)
    with shown(view, quiet=options.quiet) as changed:

        def stage(name: str) -> None:
            view.begin(name)
            changed()

        def watch(done: int, total: int) -> None:
            view.advance(done, total)
            changed()

        found = diagnose(
            options.task,
            folder=out,
            methods=options.methods,
            task_options=given,
            steps=steps,
            batch_size=setup.batch_size(options, given),
            trials=options.trials,
            seeds=options.seeds,
            tuning_seeds=options.tuning_seeds,
            first_seed=options.first_seed,
            minutes=options.minutes,
            look_only=options.look_only,
            jobs=options.jobs,
            on=options.on,
            watch=watch,
            stage=stage,
        )
    return found, out


def _show(found: "Diagnosis", out: Path) -> None:
    from trimol.cli import _tables as tables
    from trimol.report._diagnosed import chosen, gains, remarks
    from trimol.report._numbers import number

    console = tables.plain_console()
    _paragraph(console, found.sentence)
    if found.look.reason not in found.sentence:  # of a look alone, it is the sentence
        _paragraph(console, f"The losses ({found.regime}): {found.look.reason}")
    content = found.summary
    table, settings = gains(content), chosen(content)
    if table is not None and settings is not None:
        console.print(tables.plain(table))
        for name, setting, trials, cost, reached in settings.rows:
            told = f"{name}: {setting}; {trials} trials, cost {cost}"
            told += "" if reached == number(None) else f", hypervolume {reached}"
            console.print(fill(told, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    for line in remarks(content):
        _paragraph(console, line)
    console.print(f"Saved in {out}. Next: trimol report {out}", soft_wrap=True)


def _paragraph(console: "Console", text: str) -> None:
    console.print(f"{fill(text, console.width)}\n")
