"""Compare methods on a task: same starts, same samples, several seeds."""

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
    Texts,
    count,
    folder_path,
    names,
    nonnegative,
    typed,
    whole,
)
from trimol.methods._registry import COMPARED
from trimol.runs._variants import Variant

if TYPE_CHECKING:
    from rich.console import Console

    from trimol.runs import Comparison
    from trimol.runs.config import RunConfig

HOW_TO_READ = (
    "R_opt is how much all losses could still fall together (0: no further), on training data; "
    "R_pop is the same on test data, R_gen the gap R_pop − R_opt. E_ca is the "
    "(squared) distance from the conflict-avoiding direction, that of MGDA's λ* on all training "
    "data. A small R_opt alone makes no good model (one loss that is flat is enough for it), and "
    "R_opt may rise while training leaves a flat start: read it beside the losses."
)


@dataclass(frozen=True)
class Options:
    """Compare methods on a task: same starts, same samples, several seeds.

    Finished runs are not run again and stopped ones go on: after Ctrl-C, or to add seeds or
    methods, type the command again.

    A task of your own is a class in a file, and the file is executed, as Python executes any: run
    only files that you trust.
    """

    task: TaskName
    methods: Annotated[Names, typed(names, "A,B,…")] = COMPARED
    """The methods, compared with static weights or else with the first. Several settings of one are
    METHOD:NAME=VALUE, as in stch:mu=0.1,stch:mu=1 or preference:bounds.MSE=0.01,static:lr=1."""
    seeds: Annotated[int, typed(count, "N")] = 5
    """Runs of each method."""
    first_seed: Annotated[int, typed(whole, "N")] = 0
    """The seeds are those from here on."""
    lr: Rate = None
    schedule: Schedule = None
    optimizer: OptimizerName = None
    steps: Steps = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    set: Annotated[UseAppendAction[Texts], arg(metavar="METHOD.NAME=VALUE")] = ()
    """A step size, schedule or hyper-parameter, e.g. --set modo.gamma=0.1 --set modo.lr=1, or for
    one objective --set preference.bounds.MSE=0.01; by default the task's."""
    option: TaskOptions = ()
    measure_every: Annotated[Maybe[int], typed(whole, "N", unset="steps/10")] = None
    """Steps between measurements on all data; 0 for the end only."""
    score_every: Annotated[int, typed(whole, "N")] = 0
    """Steps between the task's metrics on validation and test data; 0 for never."""
    watch_every: Annotated[int, typed(whole, "N")] = 0
    """Steps between looks at whether a step raised a loss; 0 for never."""
    watch_full_every: Annotated[int, typed(whole, "N")] = 0
    """At every so many of these looks, the same on all training data; 0 for never."""
    measure_rho: Annotated[float, typed(nonnegative, "RHO")] = 0.0
    """ρ of the conflict-avoiding weights that E_ca compares with."""
    jobs: Jobs = None
    on: On = None
    retry: Retry = False
    out: Annotated[Maybe[Path], typed(folder_path, "DIR", unset="runs/TASK")] = None
    """Where to save the runs."""
    json: AsJson = False
    quiet: Quiet = False


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "compare")
    compared = method_list.read(options.methods, options.set)
    given = setup.checked_options(options.task, options.option)
    steps = setup.steps(options, given, default=STEPS)
    settings = dict(zip(_checked(options, compared, given), compared, strict=True))
    out = options.out or Path("runs", setup.name_of(options.task, given))
    first = not out.exists()
    comparison = _compared(options, out, steps, given, settings)
    if options.json:
        files = [str(run.path) for runs in comparison.runs.values() for run in runs]
        print_json(setup.for_machines("compare", comparison, files))
    else:
        _show(comparison, options, steps, out, first=first)
    return 0


def _compared(
    options: Options,
    out: Path,
    steps: int,
    task_options: Mapping[str, Any],
    compared: Mapping[str, Variant],
) -> "Comparison":
    """Run what is left to run, with progress shown."""
    from trimol.cli._compare_view import CompareView
    from trimol.runs import compare
    from trimol.runs._pool import at_a_time

    every = max(1, steps // 10) if options.measure_every is None else options.measure_every
    seeds = "1 seed" if options.seeds == 1 else f"{options.seeds} seeds"
    title = f"{setup.name_of(options.task, task_options)}: {seeds} of {steps} steps"
    view = CompareView(title, options.methods, options.seeds, steps)
    with shown(view, quiet=options.quiet) as changed:

        def watch(config: Any, step: int, record: Any) -> None:
            label = compared[_setting_of(config)].label
            view.advance(label, config.seed, step / max(1, config.steps), record)
            changed()

        comparison = compare(
            options.task,
            list(compared.values()),
            folder=out,
            seeds=options.seeds,
            steps=steps,
            first_seed=options.first_seed,
            batch_size=options.batch_size,
            task_options=task_options,
            lr=options.lr,
            schedule=options.schedule,
            rho=options.measure_rho,
            measure_every=every,
            score_every=options.score_every,
            watch_every=options.watch_every,
            watch_full_every=options.watch_full_every,
            optimizer=options.optimizer,
            jobs=at_a_time(options.jobs, options.on),
            on=options.on,
            watch=watch,
            retry=options.retry,
            say=lambda line: echo(line, error=True),
        )
        view.finish()
    return comparison


def _checked(options: Options, compared: Sequence[Variant], given: Mapping[str, Any]) -> list[str]:
    """What tells the methods' runs apart; what is wrong with one is said before anything runs."""
    from trimol.runs.config import check_method, configure

    found = []
    with usage():
        for variant in compared:
            config = configure(
                options.task,
                variant.method,
                lr=options.lr if variant.lr is None else variant.lr,
                schedule=variant.schedule or options.schedule,
                steps=1,
                batch_size=1,
                task_options=given,
                hyperparameters=variant.hyperparameters,
                optimizer=options.optimizer,
            )
            check_method(config)
            found.append(_setting_of(config))
    for place, own in enumerate(found):
        if own in found[:place]:
            first, second = compared[found.index(own)].label, compared[place].label
            raise UsageError(f"--methods must be different, found {first} and {second} alike")
    return found


def _setting_of(config: "RunConfig") -> str:
    own = {"lr", "schedule", "method", "hyperparameters"}
    return config.model_dump_json(include=own)


def _show(
    comparison: "Comparison", options: Options, steps: int, out: Path, *, first: bool
) -> None:
    from trimol.cli import _findings as findings
    from trimol.cli import _step_lengths as step_lengths
    from trimol.cli import _tables as tables
    from trimol.cli._outcome import measuring
    from trimol.report._step_effects import step_effects
    from trimol.runs import summarise

    console = plain_console()
    rows, marked = summarise(comparison), findings.best(comparison)
    table = tables.grid(findings.rows_of_seeds(rows), marked)
    console.print(tables.draw(table, console.width))
    console.print(_setting(comparison, options, steps, marked=bool(marked)))
    for line in (*findings.verdict(comparison), *findings.about_weights(comparison)):
        console.print(f"\n{fill(line, console.width)}")
    _list(console, "Differences, run by run:", findings.sentences(comparison))
    lengths = step_lengths.lines(comparison)
    _list(console, "Steps of different lengths:", lengths)
    _list(
        console,
        "Diverged, and left out (--retry trains them again):",
        findings.failures(comparison),
    )
    console.print(tables.weights(findings.weights(comparison), findings.objectives(comparison)))
    console.print(tables.steps(step_effects(comparison.runs)))
    if first:  # of a study; who types the command again has read it
        console.print(f"{HOW_TO_READ}\n")
    if spent := measuring(run for runs in comparison.runs.values() for run in runs):
        console.print(f"{fill(spent, console.width)}\n")
    console.print(f"Saved in {out}. Next: trimol report {out}", soft_wrap=True)


def _list(console: "Console", heading: str, lines: Sequence[str]) -> None:
    """Lines under a heading, each with its continuation indented; nothing for no lines."""
    if lines:
        console.print(f"\n{heading}")
    for line in lines:
        console.print(fill(line, console.width, initial_indent="  ", subsequent_indent="    "))


def _setting(comparison: "Comparison", options: Options, steps: int, *, marked: bool) -> str:
    """What the table shows, and under which conditions."""
    from trimol.cli._outcome import samples_a_step, setting

    groups = comparison.runs.items()
    seeds = f"{options.seeds} seeds" if options.seeds > 1 else "one seed"
    shown = "mean ± 95 % confidence interval" if options.seeds > 1 else "no spread"
    rates = "; ".join(f"{method} {setting(runs[0].config)}" for method, runs in groups if runs)
    samples = {samples_a_step(run) for _, runs in groups for run in runs}
    saw = f"Every method saw {samples.pop()} samples a step. " if len(samples) == 1 else ""
    best = " * is better than every other by more than the noise." if marked else ""
    return (
        f"{comparison.task}: losses and metrics on test data after {steps} steps, {seeds}: "
        f"{shown}.{best} {saw}{rates}."
    )
