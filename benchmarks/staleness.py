"""What it costs in quality to keep weights for several steps: the errors against `every`.

    python benchmarks/staleness.py --json results/staleness.json     # then: python docs/measured.py
    python benchmarks/staleness.py --tasks quadratic --seeds 2 --steps 30

Every `every` runs with the same seeds, samples and step size (the task's own for the method). R_opt
and the mean of the test losses are those of the last step; E_ca, of the weights that the next step
moves with, is the mean over five steps at which they have different ages. MNIST has 32 hidden
units and 5000 images to train on, scenes 48 rooms of 16 × 24 pixels and a fifth of the steps. A row
in the file is not made again.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from trimol import tasks
from trimol.runs._environment import environment, now
from trimol.runs.config import configure
from trimol.runs.statistics import holm, p_value
from trimol.tasks import Task
from trimol.training import Replicas, assess, start, train

EVERY = (1, 3, 10, 30)
METHODS = ("modo", "mgda", "upgrad")
# Parts of the run after which it is measured.
LOOKS = (0.18, 0.37, 0.56, 0.77, 1.0)
Row = dict[str, Any]
SCENES = {"image_size": (16, 24), "train": 48, "validation": 0, "test": 16}
TASKS: dict[str, Callable[[], Task]] = {
    "quadratic": lambda: tasks.get("quadratic")(),
    "digits": lambda: tasks.get("digits")(),
    "mnist": lambda: tasks.load("mnist", {"hidden": 32, "validation": 55_000}),
    "scenes": lambda: tasks.load("scenes", SCENES),
}
ALONE = {"scenes": 5}  # not trained as replicas: so many times fewer steps


def looks(steps: int) -> Iterator[int]:
    """How many steps to take before each measurement."""
    ends = [round(part * steps) for part in LOOKS]
    yield from (end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True))


def found(task: str, method: str, every: int, seeds: int, steps: int) -> list[list[Any]]:
    """For each seed what was measured on the way: `trimol.errors.Errors`."""
    config = configure(task, method, steps=1)
    own_settings = {k: v for k, v in config.hyperparameters.items() if k == "gamma"}
    given: dict[str, Any] = {"lr": config.lr, "hyperparameters": {**own_settings, "every": every}}
    if task in ALONE:
        return [_alone(task, method, seed, steps // ALONE[task], given) for seed in range(seeds)]
    own = TASKS[task]()
    samples = min(config.batch_size, len(own.data_for(0).train[0]))
    runs = Replicas(own, method, seeds=list(range(seeds)), batch_size=samples, **given)
    seen = []
    for count in looks(steps):
        runs.train(count)
        seen.append(runs.measure())
    return [[each[seed] for each in seen] for seed in range(seeds)]


def _alone(task: str, method: str, seed: int, steps: int, given: dict[str, Any]) -> list[Any]:
    run = start(TASKS[task](), method, seed=seed, batch_size=16, **given)
    return [assess(train(run, count)).errors for count in looks(steps)]


def row_of(task: str, method: str, every: int, seeds: int, steps: int) -> Row:
    """What all seeds came to, one number each."""
    runs = found(task, method, every, seeds, steps)
    return {
        "task": task,
        "method": method,
        "every": every,
        "steps": steps // ALONE.get(task, 1),
        "n": seeds,
        "R_opt": [run[-1].opt for run in runs],
        "E_ca": [sum(errors.conflict for errors in run) / len(run) for run in runs],
        "test": [sum(run[-1].test_losses) / len(run[-1].test_losses) for run in runs],
    }


def judged(rows: list[Row]) -> list[Row]:
    """With Holm's p of the paired difference from ``every=1``, for each measure over all rows."""
    first = {(row["task"], row["method"]): row for row in rows if row["every"] == 1}
    later = [row for row in rows if row["every"] > 1 and (row["task"], row["method"]) in first]
    found = [dict(row) for row in later]
    for measure in ("R_opt", "E_ca", "test"):
        values = []
        for row in later:
            base = first[row["task"], row["method"]][measure]
            values.append(p_value([b - a for a, b in zip(base, row[measure], strict=True)]))
        for row, p in zip(found, holm(values), strict=True):
            row[f"p {measure}"] = p
    places = {(row["task"], row["method"], row["every"]): row for row in found}
    return [places.get((row["task"], row["method"], row["every"]), row) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=317, help="no multiple of any `every`")
    parser.add_argument("--json", type=Path, help="add to this file what it has not")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(args.json.read_text())["rows"] if args.json and args.json.exists() else []
    made = {(row["task"], row["method"], row["every"]) for row in rows}
    for setting in ((t, m, k) for t in args.tasks for m in args.methods for k in EVERY):
        if setting in made:
            continue
        rows.append(row := row_of(*setting, args.seeds, args.steps))
        print(json.dumps(row), flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(_study(rows), indent=1) + "\n")


def _study(rows: list[Row]) -> Row:
    return {
        "study": "staleness",
        "rows": judged(rows),
        "command": "python benchmarks/staleness.py --json results/staleness.json",
        "created": now(),
        "environment": environment(),
    }


if __name__ == "__main__":
    main()
