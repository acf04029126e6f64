"""What γ = "auto" comes to beside a sweep of γ, on the built-in tasks.

    python benchmarks/gamma.py --json results/gamma.json      # then: python docs/measured.py
    python benchmarks/gamma.py --tasks digits --seeds 1 --steps 20

Every γ runs with the same seeds, samples and step size of x (the task's own for MoDo), all of them
at once (`trimol.training.Replicas`). R_opt is that of the last step, E_ca the mean over four
measurements on the way; λ's move is the largest change of a weight since the start, times M: 0.01
is one per cent of a uniform weight.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from trimol import tasks
from trimol.errors import Errors
from trimol.runs._environment import environment, now
from trimol.runs.config import configure
from trimol.runs.statistics import finite_mean
from trimol.training import Replicas

TASKS = ("quadratic", "toy", "digits", "mnist")
GAMMAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
MEASUREMENTS = 4
Row = dict[str, Any]


def rows_of(task: str, gammas: Sequence[float], seeds: int, steps: int) -> list[Row]:
    """A row for every γ of a task and for "auto"."""
    fixed = torch.tensor(gammas, dtype=torch.float64).repeat_interleave(seeds)
    swept = trained(task, fixed, list(range(seeds)) * len(gammas), steps)
    auto = trained(task, "auto", list(range(seeds)), steps)
    named = [str(gamma) for gamma in gammas] + ["auto"]
    parts = [*(swept[i * seeds : (i + 1) * seeds] for i in range(len(gammas))), auto]
    return [
        {"task": task, "gamma": name, "steps": steps, "n": seeds, **means(part)}
        for name, part in zip(named, parts, strict=True)
    ]


def trained(task: str, gamma: Any, seeds: list[int], steps: int) -> list[dict[str, float]]:
    """R_opt, E_ca and λ's move of every replica; NaN for those that diverged."""
    config, own = configure(task, "modo", steps=1), tasks.get(task)()
    samples = min(config.batch_size, len(own.data_for(0).train[0]))
    replicas = Replicas(
        own,
        "modo",
        seeds=seeds,
        lr=config.lr,
        batch_size=samples,
        hyperparameters={"gamma": gamma},
    )
    start, seen = replicas.method.weights, []
    for _ in range(MEASUREMENTS):
        replicas.train(steps // MEASUREMENTS)
        seen.append(list(replicas.measured(rho=0.0, weights=None, only=None)))
    moved = (replicas.method.weights - start).abs().amax(-1) * start.shape[-1]
    return [
        found_of([measured[number] for measured in seen], float(moved[number]))
        for number in range(len(replicas))
    ]


def found_of(measured: Sequence[Any], moved: float) -> dict[str, float]:
    """What one replica came to."""
    if not all(isinstance(errors, Errors) for errors in measured):
        return dict.fromkeys(("R_opt", "E_ca", "moved"), float("nan"))
    conflict = sum(errors.conflict for errors in measured) / len(measured)
    return {"R_opt": float(measured[-1].opt), "E_ca": float(conflict), "moved": moved}


def means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The means over seeds of those that did not diverge."""
    return {name: finite_mean(each[name] for each in found).estimate for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--gammas", nargs="+", type=float, default=GAMMAS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows: list[Row] = []
    for task in args.tasks:
        found = rows_of(task, args.gammas, args.seeds, args.steps)
        for row in found:
            print(json.dumps(row), flush=True)
        rows += found
    if args.json:
        study = {
            "study": "gamma",
            "rows": rows,
            "command": "python benchmarks/gamma.py",
            "created": now(),
            "environment": environment(),
        }
        args.json.write_text(json.dumps(study, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
