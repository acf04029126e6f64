"""Train a task with a method, watch the three errors, and save the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from trimol.cli import _hyperparameters as hyperparameters
from trimol.cli import _setup as setup
from trimol.cli._common_options import (
    AsJson,
    Epochs,
    OptimizerName,
    Quiet,
    Schedule,
    TaskName,
    TaskOptions,
)
from trimol.cli._lines import echo, plain_console
from trimol.cli._live import shown
from trimol.cli._parse import parse, split_flags
from trimol.cli._reporting import print_json, speaks, usage
from trimol.cli._values import (
    Maybe,
    count,
    folder_path,
    nonnegative,
    positive,
    typed,
    whole,
)
from trimol.methods._registry import DEFAULT

if TYPE_CHECKING:
    from trimol.runs.config import RunConfig
    from trimol.runs.store import StoredRun
    from trimol.training.records import Record

STEPS = 1000


@dataclass(frozen=True)
class Options:
    """Train a task with a method, watch the three errors, and save the run.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.

    All other flags are hyper-parameters of the method, named as in its constructor: --gamma 0.01.
    `trimol methods NAME` lists them. Where this command has a flag of the same name (--lr, --seed),
    write --method.lr, --method.seed.
    """

    task: TaskName
    method: Annotated[str, typed(str, "NAME")] = DEFAULT
    """The method that weighs the losses (see `trimol methods`)."""
    lr: Annotated[Maybe[float], typed(positive, "ALPHA", unset="per-task")] = None
    """Step size; by default the task's for the method, with its own optimizer; else torch's."""
    schedule: Schedule = None
    optimizer: OptimizerName = None
    steps: Annotated[Maybe[int], typed(count, "N", unset=f"{STEPS}")] = None
    """Steps to take."""
    epochs: Epochs = None
    batch_size: Annotated[Maybe[int], typed(count, "N", unset="per-task")] = None
    """Samples a step, split where the method takes several draws."""
    seed: Annotated[int, typed(whole, "N")] = 0
    """Decides the model's start and the samples."""
    measure_every: Annotated[Maybe[int], typed(whole, "N", unset="steps/20")] = None
    """Steps between measurements on all data; 0 for the end only."""
    score_every: Annotated[int, typed(whole, "N")] = 0
    """Steps between the task's metrics on validation and test data; 0 for never."""
    watch_every: Annotated[int, typed(whole, "N")] = 0
    """Steps between looks at whether a step raised a loss; 0 for never."""
    watch_full_every: Annotated[int, typed(whole, "N")] = 0
    """At every so many of these looks, the same on all training data; 0 for never."""
    measure_rho: Annotated[Maybe[float], typed(nonnegative, "RHO", unset="method-rho")] = None
    """ρ of the conflict-avoiding weights that E_ca compares with. (--rho is the method's own.)"""
    checkpoint_every: Annotated[int, typed(whole, "N")] = 100
    """Steps between checkpoints; 0 to save one only when interrupted."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision; `no` leaves the model as it is."""
    option: TaskOptions = ()
    out: Annotated[Maybe[Path], typed(folder_path, "DIR", unset="runs/...")] = None
    """Where to save the run."""
    resume: bool = False
    """Continue a run that was stopped."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    own, flags = split_flags(arguments, Options)
    options = parse(Options, own, "run")
    config = configuration(options, flags)
    from trimol.runs.comparison import Comparison, folder_name

    run = _executed(config, options.out or Path("runs", folder_name(config)), options)
    if options.json:
        files = sorted(str(path) for path in run.path.iterdir() if not path.name.startswith("."))
        comparison = Comparison(run.task, {config.method: [run]}, [])
        print_json(setup.for_machines("run", comparison, files))
    else:
        _show(run)
    return 0


def configuration(options: Options, flags: Mapping[str, str | None]) -> "RunConfig":
    """What to run, from the command's own options and the method's hyper-parameters as text."""
    setup.checked_method(options.method)
    taken = {field.name for field in fields(Options)}
    values = hyperparameters.read(options.method, flags, taken=taken)
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    every = max(1, steps // 20) if options.measure_every is None else options.measure_every
    from trimol.runs.config import check_method, configure, usual_batch_size

    with usage():
        config = configure(
            options.task,
            options.method,
            lr=options.lr,
            schedule=options.schedule,
            hyperparameters=values,
            task_options=given,
            steps=steps,
            batch_size=options.batch_size or 1,
            seed=options.seed,
            measure_every=every,
            score_every=options.score_every,
            watch_every=options.watch_every,
            watch_full_every=options.watch_full_every,
            optimizer=options.optimizer,
            checkpoint_every=options.checkpoint_every,
            precision=options.precision,
        )
        check_method(config)
    size = options.batch_size or usual_batch_size(options.task, given)
    rho = _measured_rho(config, options.measure_rho)
    return config.model_copy(update={"rho": rho, "batch_size": size})


def _executed(config: "RunConfig", folder: Path, options: Options) -> "StoredRun":
    """Run it, with its progress shown."""
    from trimol.cli._outcome import setting
    from trimol.cli._progress import Progress
    from trimol.cli._run_view import RunView
    from trimol.runs import Interrupted, execute
    from trimol.runs.config import task_of
    from trimol.runs.store import SUMMARY

    task = task_of(config.task, config.task_options)
    progress = Progress(f"{task.name} with {config.method} ({setting(config)})", config.steps)
    view = RunView(progress, task.objectives)
    with shown(view, quiet=options.quiet) as changed:

        def watch(_: "RunConfig", step: int, record: "Record | None") -> None:
            progress.advance(step)
            if record is not None:
                progress.measured(record)
            changed()

        try:
            run = execute(config, folder, resume=options.resume, watch=watch)
        except Interrupted as stop:
            if (folder / SUMMARY).exists():
                raise
            raise Interrupted(f"{stop} (the same command with --resume)", stop.code) from None
    if progress.done < config.steps and not options.quiet and speaks():
        echo(f"{folder} is finished already: nothing was run", error=True)
    return run


def _show(run: "StoredRun") -> None:
    from trimol.cli._outcome import render

    console = plain_console()
    for part in render(run):
        console.print(part)
    console.print(f"Saved in {run.path}. Next: trimol report {run.path}", soft_wrap=True)


def _measured_rho(config: "RunConfig", given: float | None) -> float:
    """ρ of the measure: as given, else the method's own, else 0."""
    if given is not None:
        return given
    own = hyperparameters.of(config.method).get("rho")
    default = 0.0 if own is None else own.default
    return float(config.hyperparameters.get("rho", default))
