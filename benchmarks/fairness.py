"""Fronts of accuracy and fairness on Adult, beside the published ones: docs/howto/fairness.md.

    python benchmarks/fairness.py --work DIR --json results/fairness.json   # 15 min of a core
    python benchmarks/fairness.py --work DIR --by static,stch --seeds 3
    python benchmarks/fairness.py --work DIR --quick                         # a minute

The protocol is that of LibMOON's published code: two hidden layers of 128, Adam with step size
1e-4, batches of 128, 10 epochs, ten preferences between the rays (0.6, 0.01) and (0.3, 0.12), the
gap as a difference of sums (``relaxation="sums"``) among those whose label is yes. Ours differs in
that inputs are standardised by training rows alone, and that categories are not merged by hand.

What is published are training losses, each a mean over the batches of the last epoch; ``batches``
here is the same mean at the last parameters. ``train`` and ``test`` are of all rows at once, where
chance makes no gap. Every point is an ordinary run in DIR: a stopped study goes on.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from trimol.maths.fronts import hypervolume
from trimol.runs import Front, front
from trimol.runs import _storage as files
from trimol.runs._environment import environment, now
from trimol.runs._front_points import FrontPoint
from trimol.runs.config import steps_per_epoch, task_of
from trimol.runs.store import load
from trimol.tasks import Batch, Task
from trimol.training.assessment import mean_losses

# Hypervolume with the reference (1, 1): LibMOON, Adult, means over seeds.
PUBLISHED = {
    "hvgrad": 0.678,
    "stch": 0.675,
    "tchebycheff": 0.674,
    "epo": 0.674,
    "pbi": 0.642,
    "static": 0.636,
}
# What these methods are told is one over the ray of losses that is meant.
BY_RAY = ("stch", "tchebycheff", "epo", "pbi")
REFERENCE = (1.0, 1.0)
BATCH, EPOCHS, LR, POINTS = 128, 10, 1e-4, 10
OPTIONS = {"fairness": "opportunity", "relaxation": "sums"}
SPACES = ("batches", "train", "test")


@dataclass(frozen=True)
class Plan:
    """What is asked: the methods, how often, how long, and where runs are kept."""

    work: Path
    by: Sequence[str] = tuple(PUBLISHED)
    seeds: int = 1
    epochs: int = EPOCHS
    points: int = POINTS
    steps: int | None = None


def rays(count: int) -> list[tuple[float, float]]:
    """Rays of losses at equal angles between the two that are published; each sums to one."""
    first, last = math.atan2(0.01, 0.6), math.atan2(0.12, 0.3)
    angles = [first + (last - first) * n / max(1, count - 1) for n in range(count)]
    return [_normed(math.cos(angle), math.sin(angle)) for angle in angles]


def _normed(a: float, b: float) -> tuple[float, float]:
    return a / (a + b), b / (a + b)


def made(plan: Plan, method: str) -> Front:
    """The front of a method: run what is left to run."""
    steps = plan.steps or plan.epochs * steps_per_epoch("adult", BATCH, OPTIONS)
    wanted = rays(plan.points)
    points = [_normed(1 / a, 1 / b) for a, b in wanted] if method in BY_RAY else wanted
    own = {"hvgrad": {"reference_point": list(REFERENCE)}}
    return front(
        "adult",
        [method],
        folder=plan.work,
        steps=steps,
        points=points,
        seeds=plan.seeds,
        batch_size=BATCH,
        task_options=OPTIONS,
        hyperparameters={method: own[method]} if method in own else None,
        lr=LR,
        reference=REFERENCE,
    )


def batch_losses(point: FrontPoint) -> tuple[float, ...]:
    """The training losses of a point, each a mean over batches of the size of training."""
    run = load(point.folder)
    around = task_of(run.config.task, run.config.task_options)
    model = around.model()
    model.load_state_dict(run.parameters)
    task, own = around.point(model, point.preference, point.member)
    return over_batches(task, own, around.data().train)


def over_batches(task: Task, model: torch.nn.Module, data: Batch) -> tuple[float, ...]:
    """Mean losses over batches of 128 rows in an order of chance."""
    order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(0))
    shuffled = tuple(tensor[order] for tensor in data)
    task.at_once = BATCH
    try:
        return tuple(mean_losses(task, model, shuffled).values())
    finally:
        del task.at_once


def rows(found: Front, method: str) -> list[dict[str, Any]]:
    """The hypervolume of a front in each space, mean and deviation over seeds."""
    told = []
    for space in SPACES:
        values = []
        for seed in range(found.seeds):
            own = found.of(method, seed)
            at = [batch_losses(p) if space == "batches" else p.values[space] for p in own]
            values.append(hypervolume(at, REFERENCE))
        spread = stdev(values) if len(values) > 1 else None
        told.append(
            {
                "method": method,
                "metric": f"hypervolume, {space}",
                "mean": fmean(values),
                "std": spread,
                "n": len(values),
                "paper": PUBLISHED[method] if space == "batches" else None,
            }
        )
    return told


def study(plan: Plan) -> dict[str, Any]:
    """All methods: a table, and where every point of the first seed is."""
    table, points = [], []
    for method in plan.by:
        found = made(plan, method)
        table += rows(found, method)
        points += [
            {
                "method": method,
                "train": list(p.values["train"]),
                "test": list(p.values["test"]),
                **{name: p.metrics[name] for name in ("accuracy", "hard gap")},
            }
            for p in found.of(method, 0)
        ]
        for row in table[-len(SPACES) :]:
            print(f"{row['method']:<12} {row['metric']:<22} {row['mean']:.4f}", flush=True)
    asked = {"epochs": plan.epochs, "steps": plan.steps, "points": plan.points, "seeds": plan.seeds}
    return {
        "study": "fairness",
        "rows": table,
        "points": points,
        "asked": asked,
        "command": "python benchmarks/fairness.py",
        "created": now(),
        "environment": environment(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--by", default=",".join(PUBLISHED))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--quick", action="store_true", help="two methods, 3 points, 100 steps")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    plan = Plan(given.work, given.by.split(","), given.seeds, given.epochs)
    if given.quick:
        plan = Plan(given.work, ("static", "stch"), given.seeds, steps=100, points=3)
    found = study(plan)
    if given.json:
        files.write_json(given.json, found)


if __name__ == "__main__":
    main()
