"""Samples a second of each method against plain training, on a recommender with sparse tables.

    python benchmarks/recommenders.py --json results/recommenders.json      # some minutes of a core
    python benchmarks/recommenders.py --rows 1000000 --shards DIR          # a million rows in files
    python benchmarks/recommenders.py --quick

Plain is a bare loop: the sum of the losses, one backward, SparseAdam and Adam. Blocks of steps of
all contenders take turns in one process; times are of the CPU, and the ratio is of medians.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from trimol.runs import _storage as files
from trimol.runs._environment import environment, now
from trimol.tasks.recommenders.funnel import Funnel
from trimol.training import start, train

PLAIN = "plain"
METHODS = ("static", "uw", "famo", "modo", "mgda", "cagrad", "pcgrad", "fairgrad", "nashmtl")
LR = 0.003

Block = Callable[[int], None]


def bare(task: Funnel, batch_size: int) -> Block:
    """Plain training: what a method's cost is measured by."""
    torch.manual_seed(0)
    model, data = task.model(), task.data().train
    optimizer = task.optimizer(model.parameters(), LR)
    random = torch.Generator().manual_seed(0)

    def block(steps: int) -> None:
        for _ in range(steps):
            rows = torch.randint(len(data[0]), (batch_size,), generator=random)
            optimizer.zero_grad()
            torch.stack(task.losses(model, tuple(t[rows] for t in data))).sum().backward()
            optimizer.step()

    return block


def by(task: Funnel, method: str, batch_size: int) -> Block:
    """Training by a method, as `trimol run` does it."""
    run = start(task, method, lr=LR, batch_size=batch_size)
    return lambda steps: void(train(run, steps))


def void(_: object) -> None:
    """Nothing."""


def measured(task: Funnel, *, batch_size: int, steps: int, rounds: int) -> dict[str, float]:
    """Samples a second of the CPU, by contender."""
    blocks = {PLAIN: bare(task, batch_size)}
    blocks |= {method: by(task, method, batch_size) for method in METHODS}
    for block in blocks.values():
        block(3)
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(rounds):
        for name, block in blocks.items():
            began = process_time()
            block(steps)
            times[name].append(process_time() - began)
    return {name: batch_size * steps / median(own) for name, own in times.items()}


def study(given: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    table = []
    for network in ("shared", "mmoe"):
        task = Funnel(
            rows=given.rows,
            users=given.users,
            items=given.items,
            shards=given.shards,
            network=network,
        )
        speeds = measured(task, batch_size=given.batch_size, steps=given.steps, rounds=given.rounds)
        for name, speed in speeds.items():
            row = {"network": network, "method": name, "samples/s": speed}
            table.append(row | {"against plain": speeds[PLAIN] / speed})
            ratio = speeds[PLAIN] / speed
            print(f"{network:<7} {name:<9} {speed:>9.0f} samples/s  {ratio:.2f} × plain")
    asked = {
        key: value for key, value in vars(given).items() if key not in ("json", "quick", "shards")
    }
    return {
        "study": "recommenders",
        "rows": table,
        "asked": asked,
        "command": "python benchmarks/recommenders.py",
        "created": now(),
        "environment": environment(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10, help="of a block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", help="a folder for the rows; by default they are in memory")
    parser.add_argument("--quick", action="store_true", help="one round on few rows")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.quick:
        given.rows, given.users, given.items, given.steps, given.rounds = 2000, 100, 50, 2, 1
    found = study(given)
    if given.json:
        files.write_json(given.json, found)


if __name__ == "__main__":
    main()
