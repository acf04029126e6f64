"""The non-convex toy, as in Figures 1, 5, 6 and 7: three starts, six arms, many seeds at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.paper._simulation import Arm, Trace, measure, simulate
from trimol.paper._studies import Watch
from trimol.paper.tasks.toy import STARTS, Toy, Variant
from trimol.runs import _storage as files
from trimol.runs.study import part, part_name

PROGRAM = 2  # to be raised when the numbers that this file makes change
STEPS = 50_000
LR, DECAY = 5e-3, 0.05
GAMMAS = (0.0, 1e-12, 1e-4, 1e-2)
# In the paper's order; at equal samples per step, but for MGDA, which takes the whole set.
ARMS = (
    Arm("mgda", LR),
    Arm("static", LR, batch=16),
    *(Arm("modo", LR, {"gamma": gamma}, batch=16) for gamma in GAMMAS),
)
# Above x2 = 0 the toy has no noise: runs from one start would differ by rounding alone. So only
# seed 0 starts exactly at the paper's points; the others do within this standard deviation of them.
JITTER = 1e-2
# A run has arrived when it is so near, in x, to the empirical Pareto set, which is 16 wide.
NEAR = 0.1


@dataclass(frozen=True)
class ToyTables:
    """What the toy study measured.

    ``ends`` says also when a run first came near the empirical Pareto set (``arrival``) and when it
    left the valley above x2 = 0 for good (``left``).
    """

    trajectories: polars.DataFrame  # the runs with seed 0 in detail: what the figures draw
    progress: polars.DataFrame  # every 1/50 of the way, for every seed
    ends: polars.DataFrame  # how every run ended
    source: str  # where the data come from, in words


def toy(
    folder: Path,
    *,
    seeds: int = 10,
    steps: int = STEPS,
    variant: Variant = "corrected",
    watch: Watch | None = None,
) -> ToyTables:
    """Run the toy, or read what was run before: the starts and arms of one seed see one sample."""
    if seeds < 1:
        raise BadValue(f"seeds must be at least 1, found {seeds}")
    task = Toy(variant=variant)
    (data,) = task.data().train
    settings = {
        "program": PROGRAM,
        "seeds": seeds,
        "steps": steps,
        "variant": variant,
        "arms": [_named(arm) for arm in ARMS],
        "starts": STARTS,
        "jitter": JITTER,
        "decay": DECAY,
        "data": data.tolist(),
    }
    kept = folder / f"{part_name('toy', settings)}-state.pt"
    files.make_folder(folder)
    tables = part(folder, "toy", settings, lambda: _compute(task, data, seeds, steps, watch, kept))
    files.drop(kept)
    return ToyTables(**tables, source=task.source)


def label(method: str, gamma: float | None) -> str:
    """What to call an arm.

    >>> label("modo", 1e-4), label("mgda", None)
    ('modo γ=0.0001', 'mgda')
    """
    return method if gamma is None else f"{method} γ={gamma:g}"


def _compute(
    task: Toy, data: Tensor, seeds: int, steps: int, watch: Watch | None, kept: Path
) -> dict[str, polars.DataFrame]:
    trials = [(start, seed) for seed in range(seeds) for start in range(len(STARTS))]
    every = max(1, steps // 2000)
    trace = simulate(
        task,
        ARMS,
        data=data.expand(len(trials), -1, -1),
        start=_starts(trials),
        seeds=[seed for _, seed in trials],
        steps=steps,
        snapshots=[*range(0, steps, every), steps],
        decay=DECAY,
        watch=watch,
        kept=kept,
    )
    coarse = _thin(trace, max(1, len(trace.steps) // 50))
    first = len(STARTS)  # the trials of seed 0
    shown = Trace(trace.steps, trace.x[:, :, :first], trace.weights[:, :, :first])
    return {
        "trajectories": _table(task, data, shown, trials[:first]),
        "progress": _table(task, data, coarse, trials),
        "ends": _ends(task, data, trace, trials),
    }


def _starts(trials: Sequence[tuple[int, int]]) -> Tensor:
    """The paper's points for seed 0, points nearby for the others."""
    exact = np.array([STARTS[start] for start, _ in trials])
    moved = [np.random.default_rng(seed).standard_normal((len(STARTS), 2)) for _, seed in trials]
    noise = np.stack([each[start] for each, (start, _) in zip(moved, trials, strict=True)])
    away = JITTER * np.array([[seed > 0] for _, seed in trials])
    return torch.from_numpy(exact + away * noise)


def _thin(trace: Trace, every: int) -> Trace:
    kept = sorted({*range(0, len(trace.steps), every), len(trace.steps) - 1})
    return Trace(tuple(trace.steps[i] for i in kept), trace.x[kept], trace.weights[kept])


def _table(
    task: Toy, data: Tensor, trace: Trace, trials: Sequence[tuple[int, int]]
) -> polars.DataFrame:
    """One row for each step, arm and trial."""
    mean, population = data.mean(0), torch.zeros(2, dtype=torch.float64)
    errors = measure(task, trace.x, trace.weights, data, population)
    empirical, real = task.values(trace.x, mean), task.values(trace.x, population)
    shape = trace.x.shape[:3]
    steps, arms, numbers = (index.ravel() for index in np.indices(shape))
    columns: dict[str, Any] = {
        "method": np.array([arm.method for arm in ARMS])[arms],
        "gamma": [ARMS[arm].hyperparameters.get("gamma") for arm in arms],
        "start": np.array([start for start, _ in trials])[numbers],
        "seed": np.array([seed for _, seed in trials])[numbers],
        "step": np.array(trace.steps)[steps],
        "x1": trace.x[..., 0],
        "x2": trace.x[..., 1],
        "weight": trace.weights[..., 0],
        "f1": empirical[..., 0],
        "f2": empirical[..., 1],
        "population_f1": real[..., 0],
        "population_f2": real[..., 1],
        **{name: errors[name] for name in ("R_opt", "R_pop", "R_gen", "E_ca")},
    }
    return polars.DataFrame(
        {
            name: values.flatten().numpy() if isinstance(values, Tensor) else values
            for name, values in columns.items()
        }
    )


def _ends(
    task: Toy, data: Tensor, trace: Trace, trials: Sequence[tuple[int, int]]
) -> polars.DataFrame:
    """How each run ended: its last row, how far from what it looked for, and when it arrived."""
    last = Trace(trace.steps[-1:], trace.x[-1:], trace.weights[-1:])
    answer = task.answer(data.mean(0))
    away = _away(trace.x, answer.pareto)
    above = trace.x[..., 1] > 0
    from_mean = (trace.x[-1] - answer.of_mean).norm(dim=-1)
    return _table(task, data, last, trials).with_columns(
        polars.Series("from_front", away[-1].flatten().numpy()),
        polars.Series("from_mean", from_mean.flatten().numpy()),
        polars.Series("arrival", _first(away <= NEAR, trace.steps), dtype=polars.Int64),
        polars.Series("left", _first(_never_again(above), trace.steps), dtype=polars.Int64),
    )


def _never_again(event: Tensor) -> Tensor:
    """Whether the event does not happen at this snapshot nor later."""
    return ~event.flip(0).cummax(0).values.flip(0)


def _first(event: Tensor, steps: Sequence[int]) -> list[int | None]:
    """The first step at which the event happens in each run; None if never."""
    when = event.int().argmax(0).flatten().tolist()
    ever = event.any(0).flatten().tolist()
    return [steps[i] if happens else None for i, happens in zip(when, ever, strict=True)]


def _away(x: Tensor, curve: Tensor) -> Tensor:
    """The distance of each point from a polygon."""
    first, side = curve[:-1], curve[1:] - curve[:-1]
    nearest = torch.full(x.shape[:-1], torch.inf, dtype=x.dtype)
    for corner, edge in zip(first, side, strict=True):
        # The nearest point of an edge is the foot of the perpendicular, or the end next to it.
        along = (((x - corner) @ edge) / edge.square().sum()).clamp(0, 1)
        nearest = torch.minimum(nearest, (x - corner - along[..., None] * edge).norm(dim=-1))
    return nearest


def _named(arm: Arm) -> list[Any]:
    return [arm.method, arm.lr, dict(arm.hyperparameters), arm.batch]
