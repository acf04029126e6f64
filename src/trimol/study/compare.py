"""Compare methods on a task: the same starts and the same samples for all, several seeds."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trimol.tasks import Settings, Task
from trimol.training import Assessment, Run, assess, start, train


@dataclass(frozen=True)
class Row:
    """One number of a comparison, in plain units.

    Attributes:
        method: The method's name.
        metric: What was measured: an objective or a metric of the task (on test data), ``R_opt``,
            ``R_pop``, ``R_gen`` or ``E_ca``.
        mean: The mean over seeds.
        std: The standard deviation over seeds; None for a single one.
        n: How many seeds.
        paper: What the paper says, where it says something.
    """

    method: str
    metric: str
    mean: float
    std: float | None
    n: int
    paper: float | None = None


def compare(
    task: Task,
    methods: Sequence[str],
    *,
    seeds: int,
    steps: int,
    batch_size: int = 64,
    watch: Callable[[str], None] | None = None,
) -> dict[str, list[Assessment]]:
    """Train a task with each method, ``seeds`` times, at equal samples per step.

    Run i of every method starts from the same parameters and sees the same samples.

    Args:
        task: What to train; its settings say how to run each method.
        methods: The methods' names.
        seeds: Runs of each method.
        steps: Steps of each run.
        batch_size: Samples per step.
        watch: Called with the method's name after every step.

    Returns:
        What became of the runs, by method.

    Example:
        >>> from trimol.tasks import get
        >>> results = compare(get("digits")(), ["static", "modo"], seeds=2, steps=10)
        >>> {method: len(runs) for method, runs in results.items()}
        {'static': 2, 'modo': 2}
    """
    return {
        method: [
            assess(
                train(_start(task, method, batch_size, seed), steps, watch=_watch(watch, method))
            )
            for seed in range(seeds)
        ]
        for method in methods
    }


def summarise(results: Mapping[str, Sequence[Assessment]]) -> list[Row]:
    """Mean and standard deviation over seeds of every number, method by method."""
    return [
        Row(method, metric, statistics.mean(values), _std(values), len(values))
        for method, runs in results.items()
        for metric, values in _columns(runs).items()
    ]


def _start(task: Task, method: str, batch_size: int, seed: int) -> Run:
    settings = task.settings.get(method, Settings())
    return start(
        task,
        method,
        lr=settings.lr,
        hyperparameters=settings.method,
        batch_size=batch_size,
        seed=seed,
    )


def _watch(watch: Callable[[str], None] | None, method: str) -> Callable[[Run], None] | None:
    return None if watch is None else lambda run: watch(method)


def _columns(runs: Sequence[Assessment]) -> dict[str, list[float]]:
    """Every number that was measured, by its name, over the runs."""
    columns: dict[str, list[float]] = {}
    for run in runs:
        for name, value in _numbers(run).items():
            columns.setdefault(name, []).append(value)
    return columns


def _numbers(run: Assessment) -> dict[str, float]:
    errors = run.errors
    measured = {
        "R_opt": errors.opt,
        "R_pop": errors.pop,
        "R_gen": None if errors.gen is None else abs(errors.gen),  # of each run, as in the paper
        "E_ca": errors.conflict,
        "E_caw": errors.conflict_weight,
    }
    known = {name: value for name, value in measured.items() if value is not None}
    return {**run.losses, **run.metrics, **known}


def _std(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
