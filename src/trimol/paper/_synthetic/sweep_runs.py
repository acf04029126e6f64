"""The strongly convex toy, as in Figure 3: T, α and γ swept one at a time, many trials at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
import torch

from trimol._failures import BadValue
from trimol.paper._synthetic.simulation import Arm, Trace, Watch, conflict, measure, simulate
from trimol.runs.study import part
from trimol.tasks.quadratic import Quadratic

PROGRAM = 2  # to be raised when the numbers that this file makes change
STEPS, LR, GAMMA = 100, 0.01, 0.001  # the paper's defaults, which the other two keep
BATCH = 2  # one sample for each of MoDo's draws
RUNS = 10  # on each data set: the expectation over the algorithm


@dataclass(frozen=True)
class Sweep:
    """One quantity that is varied, the others at their defaults.

    Attributes:
        name: ``"T"``, ``"alpha"`` or ``"gamma"``.
        values: What it is set to.
    """

    name: str
    values: tuple[float, ...]


# What the paper does not say: A = I, E[z] = 1, x_0 = 0. The second problem is for the one claim
# that the first does not show: below a threshold of α, E_ca is small although R_opt is not.
PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "d=2, n=20": {"dimension": 2, "samples": 20},
    "d=10, n=100": {"dimension": 10, "samples": 100},
}


def sweeps(points: int = 11) -> tuple[Sweep, ...]:
    """The three sweeps, evenly in the logarithm.

    >>> [len(sweep.values) for sweep in sweeps()]
    [11, 11, 11]
    """
    return (
        Sweep("T", tuple(sorted({float(round(t)) for t in np.geomspace(10, 1000, points)}))),
        Sweep("alpha", _even(1e-3, 0.3, points)),
        Sweep("gamma", _even(1e-5, 0.1, points)),
    )


def sweep(
    folder: Path,
    problem: str,
    varied: Sweep,
    *,
    datasets: int = 50,
    runs: int = RUNS,
    watch: Watch | None = None,
) -> polars.DataFrame:
    """Run MoDo over one sweep, or read what was run before.

    Args:
        folder: Where finished parts are kept.
        problem: One of `PROBLEMS`.
        varied: The sweep.
        datasets: How many training sets.
        runs: How many runs on each.
        watch: Called with (steps done, T).

    Returns:
        One row for each value and data set: the means over runs of R_opt, R_pop, R_gen, |R_gen|
        (taken of each run), E_ca as the mean of squares and, without bias, by its definition.
    """
    if datasets < 1:
        raise BadValue(f"datasets must be at least 1, found {datasets}")
    settings = {
        "program": PROGRAM,
        "problem": dict(PROBLEMS[problem]),
        "sweep": [varied.name, *varied.values],
        "datasets": datasets,
        "runs": runs,
        "defaults": [STEPS, LR, GAMMA, BATCH],
    }

    def compute() -> dict[str, polars.DataFrame]:
        return {"errors": _compute(problem, varied, datasets, runs, watch)}

    return part(folder, f"sweep-{varied.name}", settings, compute)["errors"]


def _compute(
    problem: str, varied: Sweep, datasets: int, runs: int, watch: Watch | None
) -> polars.DataFrame:
    task = Quadratic(**PROBLEMS[problem])
    data = task.draw(range(datasets)).repeat_interleave(runs, 0)
    trace = _RUNNERS[varied.name](task, varied.values, data, watch)
    found = measure(task, trace.x, trace.weights, data, task.population)
    by_set = {name: each.unflatten(1, (datasets, runs)) for name, each in found.items()}
    definition, squares = conflict(by_set["direction"])
    columns = {
        "R_opt": by_set["R_opt"].mean(-1),
        "R_pop": by_set["R_pop"].mean(-1),
        "R_gen": by_set["R_gen"].abs().mean(-1),
        "R_gen_signed": by_set["R_gen"].mean(-1),
        "gen_bound": by_set["gen_bound"].mean(-1),
        "E_ca": squares,
        "E_ca_unbiased": definition,
    }
    values, sets = np.indices(definition.shape)
    return polars.DataFrame(
        {
            "problem": problem,
            "sweep": varied.name,
            "value": np.array(varied.values)[values.ravel()],
            "dataset": sets.ravel(),
            **{name: column.flatten().numpy() for name, column in columns.items()},
        }
    )


def _over_time(
    task: Quadratic, values: Sequence[float], data: torch.Tensor, watch: Watch | None
) -> Trace:
    """With constant step sizes, T is a moment of one long run."""
    steps = [int(value) for value in values]
    trace = _run(task, [_arm()], data, max(steps), steps, watch)
    return Trace(trace.steps, trace.x[:, 0], trace.weights[:, 0])


def _over_arms(
    make: Callable[[float], Arm],
) -> Callable[[Quadratic, Sequence[float], torch.Tensor, Watch | None], Trace]:
    def run(
        task: Quadratic, values: Sequence[float], data: torch.Tensor, watch: Watch | None
    ) -> Trace:
        trace = _run(task, [make(value) for value in values], data, STEPS, [STEPS], watch)
        return Trace(trace.steps, trace.x[0], trace.weights[0])

    return run


def _arm(lr: float = LR, gamma: float = GAMMA) -> Arm:
    return Arm("modo", lr, {"gamma": gamma}, batch=BATCH)


def _run(
    task: Quadratic,
    arms: Sequence[Arm],
    data: torch.Tensor,
    steps: int,
    snapshots: Sequence[int],
    watch: Watch | None,
) -> Trace:
    return simulate(
        task,
        arms,
        data=data,
        start=task.start,
        seeds=range(len(data)),
        steps=steps,
        objectives=len(task.objectives),
        snapshots=snapshots,
        watch=watch,
    )


_RUNNERS: dict[str, Callable[[Quadratic, Sequence[float], torch.Tensor, Watch | None], Trace]] = {
    "T": _over_time,
    "alpha": _over_arms(lambda value: _arm(lr=value)),
    "gamma": _over_arms(lambda value: _arm(gamma=value)),
}


def _even(least: float, most: float, points: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in np.geomspace(least, most, points))
