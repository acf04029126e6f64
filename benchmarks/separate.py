"""A step on losses that have graphs of their own, beside the plain step: Burgers' equation.

    python benchmarks/separate.py --json results/separate.json
    python benchmarks/separate.py --points 200 --rounds 3      # a try, in seconds

A network whose losses (equation, start, border) are computed from points of their own has nothing
in common between them but parameters: M backwards pass every node once, as a plain one does.
CPU time of one thread, all contestants interleaved in random order, the median of the ratios to the
plain step of the same round. *By tangents*: what MoDo does where losses share a graph.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import trimol
from trimol.gradients import evidence
from trimol.runs._environment import environment, now
from trimol.tasks.pinn.burgers import Burgers

Row = dict[str, Any]
Step = Callable[[], Any]


class Problem:
    """The equation's network, its points, and the steps that are compared."""

    def __init__(self, points: int) -> None:
        torch.manual_seed(0)
        self.task = Burgers(points=points, conditions=max(points // 4, 1))
        self.model, self.batch = self.task.model(), self.task.data().train
        self.params = list(self.model.parameters())

    def losses(self, part: slice = slice(None)) -> Tensor:
        return self.task.losses(self.model, tuple(each[part] for each in self.batch))

    def halves(self) -> list[Tensor]:
        return [self.losses(slice(start, None, 2)) for start in range(2)]

    def plain(self) -> None:
        self.losses().sum().backward()

    def plain_halves(self) -> None:
        one, two = self.halves()
        (one.sum() + two.sum()).backward()

    def bare_loop(self) -> None:
        """M backwards of the losses one by one, added up."""
        for loss in self._apart():
            loss.backward(retain_graph=True)

    def _apart(self) -> list[Tensor]:
        *points, _, own = self.batch
        chosen = [at[mask] for at, mask in zip(points, own.bool().T, strict=True)]
        return [part.square().mean() for part in self.task.left_over(self.model, chosen)]

    def method(self, name: str, draws: int = 1, **options: Any) -> Step:
        own: dict[str, Any] = {"draws": draws} if name == "modo" else {}
        method = trimol.methods.get(name)(self.params, len(self.losses()), **own, **options)

        def step() -> str:
            method(*(self.halves() if draws == 2 else [self.losses()])).backward()
            return str(method.info and method.info.route)

        return step


@contextmanager
def tangents_only() -> Iterator[None]:
    """Within, gradients are not held one by one."""
    held, evidence.SEPARATE_ENTRIES = evidence.SEPARATE_ENTRIES, 0
    try:
        yield
    finally:
        evidence.SEPARATE_ENTRIES = held


def by_tangents(step: Step) -> Step:
    def other() -> Any:
        with tangents_only():
            return step()

    return other


def contestants(p: Problem) -> dict[str, Step]:
    return {
        "plain": p.plain,
        "plain, two halves": p.plain_halves,
        "M backwards": p.bare_loop,
        "MoDo, draws=1": p.method("modo", 1),
        "MoDo, draws=1, by tangents": by_tangents(p.method("modo", 1)),
        "MoDo": p.method("modo", 2),
        "MoDo, by tangents": by_tangents(p.method("modo", 2)),
        "MoDo simultaneous": p.method("modo", 2, simultaneous=True),
        "MGDA": p.method("mgda"),
    }


def measure(points: int, rounds: int) -> list[Row]:
    """A row for each contestant: the median of its ratios to the plain step of the same round."""
    p, order = Problem(points), random.Random(0)
    steps = contestants(p)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    routes: dict[str, Any] = {}
    for number in range(rounds + 1):
        names = list(steps)
        order.shuffle(names)
        for name in names:
            p.model.zero_grad()
            before = time.process_time()
            routes[name] = steps[name]()
            if number:  # the first round warms up
                taken[name].append(time.process_time() - before)
    plain = taken["plain"]
    shared = {"task": "burgers", "points": points, "rounds": rounds, "load": os.getloadavg()[0]}
    return [
        {
            **shared,
            "contestant": name,
            "ratio": statistics.median(a / b for a, b in zip(own, plain, strict=True)),
            "plain_ms": 1e3 * statistics.median(plain),
            "route": routes[name],
        }
        for name, own in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", nargs="+", type=int, default=[200, 2000])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="write the rows here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for points in args.points for row in measure(points, args.rounds)]
    for row in rows:
        print(f"{row['points']:5} {row['contestant']:28} {row['ratio']:.2f} {row['route'] or ''}")
    if args.json is not None:
        study = {
            "study": "separate",
            "rows": rows,
            "command": "python benchmarks/separate.py --json results/separate.json",
            "created": now(),
            "environment": environment(),
        }
        args.json.write_text(json.dumps(study, indent=1) + "\n")


if __name__ == "__main__":
    main()
