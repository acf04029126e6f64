"""Compare γ = "auto" with a sweep of fixed γ, on the built-in tasks.

    python benchmarks/gamma.py --json results/gamma.json      # then: python docs/measured.py
    python benchmarks/gamma.py --tasks digits --seeds 1 --steps 20

Every γ runs with the same seeds, samples and step size of x (the task's own for MoDo), all of them
at once where they can (`trimol.training.Replicas`), else one by one. R_opt and the mean training
loss are those of the last step, E_ca is the mean over four measurements on the way; λ's move is the
largest change of a weight since the start, times M: 0.01 is one per cent of a uniform weight.
"""

import argparse
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimol import tasks
from trimol._failures import Diverged
from trimol._warnings import hearing
from trimol.errors import Errors
from trimol.errors._fulldata import NotFinite
from trimol.runs._environment import environment, now
from trimol.runs.config import configure
from trimol.runs.statistics import finite_mean
from trimol.tasks import Task
from trimol.training import Replicas, start, train
from trimol.training._replicable import NotReplicable
from trimol.training.assessment import assess

TASKS = ("quadratic", "toy", "digits", "mnist", "poisson", "german", "compas", "funnel")
GAMMAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
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
    """R_opt, E_ca, mean loss and λ's move of every run; NaN for those that diverged."""
    try:
        return as_replicas(task, gamma, seeds, steps)
    except NotReplicable:
        each = gamma.tolist() if isinstance(gamma, Tensor) else [gamma] * len(seeds)
        return [alone(task, own, seed, steps) for own, seed in zip(each, seeds, strict=True)]


def setting(task: str) -> tuple[Task, dict[str, Any]]:
    """The task, and the step size and samples per step of its runs."""
    config, own = configure(task, "modo", steps=1), tasks.get(task)()
    samples = min(config.batch_size, len(own.data_for(0).train[0]))
    return own, {"lr": config.lr, "batch_size": samples}


def as_replicas(task: str, gamma: Any, seeds: list[int], steps: int) -> list[dict[str, float]]:
    own, options = setting(task)
    replicas = Replicas(own, "modo", seeds=seeds, hyperparameters={"gamma": gamma}, **options)
    at_start, seen = replicas.method.weights, []
    for _ in range(MEASUREMENTS):
        replicas.train(steps // MEASUREMENTS)
        seen.append(list(replicas.measured(rho=0.0, weights=None, only=None)))
    moved = (replicas.method.weights - at_start).abs().amax(-1) * at_start.shape[-1]
    return [
        found_of([measured[number] for measured in seen], float(moved[number]))
        for number in range(len(replicas))
    ]


def alone(task: str, gamma: Any, seed: int, steps: int) -> dict[str, float]:
    own, options = setting(task)
    run = start(own, "modo", seed=seed, hyperparameters={"gamma": gamma}, **options)
    seen: list[Any] = []
    with hearing(lambda _text: None), suppress(Diverged, NotFinite):
        for _ in range(MEASUREMENTS):
            seen.append(assess(train(run, steps // MEASUREMENTS)).errors)
    whole = len(seen) == MEASUREMENTS and run.method.info is not None
    return found_of(seen if whole else [None], run.method.info.moved if run.method.info else 0.0)


def found_of(measured: Sequence[Any], moved: float) -> dict[str, float]:
    """What one run came to."""
    if not all(isinstance(errors, Errors) for errors in measured):
        return dict.fromkeys(("R_opt", "E_ca", "loss", "moved"), float("nan"))
    conflict = sum(errors.conflict for errors in measured) / len(measured)
    last = measured[-1]
    loss = sum(last.losses) / len(last.losses)
    return {"R_opt": float(last.opt), "E_ca": float(conflict), "loss": loss, "moved": moved}


def means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The means over seeds of those that did not diverge."""
    return {name: finite_mean(each[name] for each in found).estimate for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--gammas", nargs="+", type=float, default=GAMMAS)
    parser.add_argument("--seeds", type=int, default=8)
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
