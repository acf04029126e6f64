"""Which methods reach the front of the classic two-objective toy, from how many of five starts?

    python benchmarks/classic_toy.py                                  # prints a table, minutes
    python benchmarks/classic_toy.py --json results/classic_toy.json --figure classic-toy.svg

The protocol of CAGrad, Nash-MTL, FAMO and ConFIG: the first loss × 0.1, Adam with a step size of
1e-3, 35 000 steps, the five starts. (M-ConFIG, which has Adam's second moment in itself, moves by
plain SGD of the same step size, as its authors do.) The starts of a method are replicas of one
batched program, and some methods step together: the gradients of all are computed at once. Methods
have the hyper-parameters of their constructors. The losses are below zero: what looks at their
values is given how far they are above the least of each: no gradient changes.
A run has reached the front if it ends within 0.1 of it.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

import trimol
from trimol._extras import require
from trimol.methods._replicated import Jacobians, Replicated, replicated
from trimol.runs._environment import environment, now
from trimol.tasks.classic_toy import STARTS, ClassicToy

STEPS, LR, REACHED, KEPT, AT_ONCE = 35_000, 1e-3, 0.1, 100, 6
# They need a representation (and are MGDA without), or K models.
LEFT_OUT = ("mgdaub", "hvgrad")
# Moments of their own: Adam would divide by them a second time.
BY_SGD = ("mconfig",)


def methods() -> list[str]:
    """The names of all methods that can be run."""
    return [name for name in trimol.methods.names() if name not in LEFT_OUT]


def run(names: Sequence[str], steps: int = STEPS, task: ClassicToy | None = None) -> Tensor:
    """Ways from all five starts: some of the steps, the last too, × methods × 5 × 2."""
    task = task or ClassicToy()
    nothing = torch.zeros(1, dtype=torch.float64)
    least = task.true_front((nothing,), 2).amin(0)
    made = [replicated(name, replicas=len(STARTS), objectives=2) for name in names]
    starts = torch.tensor(STARTS, dtype=torch.float64)
    moved = [nn.Parameter(starts.clone()) for _ in names]
    optimizers = [
        kind(
            [moved[n] for n, name in enumerate(names) if (name in BY_SGD) is by_sgd],
            lr=LR,
            foreach=True,
        )
        for kind, by_sgd in ((Adam, False), (SGD, True))
        if any((name in BY_SGD) is by_sgd for name in names)
    ]
    way = [torch.stack([starts] * len(names))]
    for step in range(1, steps + 1):
        with torch.no_grad():
            x = torch.stack(list(moved))
            losses = cache(partial(_above, task, x, least))
            for number, rows in enumerate(task.jacobian(x, nothing)):
                own = partial(_one_of, losses, number)
                moved[number].grad = _direction(made[number], rows, own)
        for optimizer in optimizers:
            optimizer.step()
        if step % max(steps // KEPT, 1) == 0 or step == steps:
            way.append(torch.stack([one.detach() for one in moved]))
    return torch.stack(way)


def _above(task: ClassicToy, x: Tensor, least: Tensor) -> Tensor:
    """How far the losses are above the least of each."""
    return task.values(x, x) - least


def _one_of(losses: Callable[[], Tensor], number: int) -> Tensor:
    return losses()[number]


def _direction(method: Replicated, rows: Tensor, losses: Callable[[], Tensor]) -> Tensor:
    draws = method.draws if method.due else 1
    found: Tensor = method.direction(Jacobians([rows] * draws, losses))
    return found


def row(name: str, way: Tensor) -> dict[str, Any]:
    """One line of the table."""
    task = ClassicToy()
    distances = task.distance(way[-1]).tolist()
    ends = way[-1].tolist()
    return {
        "method": name,
        "reached": sum(d <= REACHED for d in distances),
        "distances": [round(d, 4) for d in distances],
        "ends": [[round(v, 3) for v in end] for end in ends],
        "way": [[[round(v, 3) for v in point] for point in at] for at in way.tolist()],
    }


def drawn(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel for each method: the ways from the five starts, and the front."""
    pyplot = require("matplotlib.pyplot", extra="report", purpose="the figure")
    task, nothing = ClassicToy(), torch.zeros(1, dtype=torch.float64)
    front = task.on_front(torch.linspace(0, 1, 101, dtype=torch.float64))
    grid = torch.linspace(-11, 11, 121, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1)
    height = task.values(plane, nothing).sum(-1)
    columns = 7
    lines = -(-len(rows) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(1.7 * columns, 1.9 * lines))
    for axis in axes.flat:
        axis.axis("off")
    for axis, one in zip(axes.flat, rows, strict=False):
        axis.contour(grid, grid, height, levels=12, colors="0.8", linewidths=0.4)
        axis.plot(*front.T, color="0.3", linewidth=3, solid_capstyle="round")
        way = torch.tensor(one["way"])
        for number, d in enumerate(one["distances"]):
            colour = "tab:blue" if d <= REACHED else "tab:red"
            axis.plot(*way[:, number].T, color=colour, linewidth=0.9)
            axis.plot(*way[0, number], "o", color="black", markersize=2)
            axis.plot(*way[-1, number], "*", color=colour, markersize=5)
        axis.set(xlim=(-11, 11), ylim=(-11, 11), aspect="equal")
        axis.set_title(f"{one['method']} {one['reached']}/5", fontsize=8)
    figure.tight_layout(pad=0.4)
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    """Run, print, keep, draw."""
    parser = argparse.ArgumentParser(description="The classic toy, all methods from five starts.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--methods", nargs="+", choices=methods(), default=methods())
    parser.add_argument("--json", type=Path, help="write the result to this file; goes on from it")
    parser.add_argument("--figure", type=Path, help="draw it to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known: dict[str, Any] = {}
    if options.json and options.json.is_file():
        found = json.loads(options.json.read_text(encoding="utf-8"))
        known = {r["method"]: r for r in found["rows"]} if found["steps"] == options.steps else {}
    print("| method | reached | distance from the front, by start |\n|---|---|---|")
    missing = [name for name in options.methods if name not in known]
    for names in (missing[i : i + AT_ONCE] for i in range(0, len(missing), AT_ONCE)):
        ways = run(names, options.steps)
        known |= {name: row(name, ways[:, own]) for own, name in enumerate(names)}
        if options.json:
            _kept(options.json, options.steps, known)
    for name in options.methods:
        one = known[name]
        print(f"| {name} | {one['reached']} | {', '.join(f'{d:.2g}' for d in one['distances'])} |")
    if options.figure:
        drawn([known[name] for name in options.methods], options.figure)


def _kept(path: Path, steps: int, known: dict[str, Any]) -> None:
    rows = [known[name] for name in methods() if name in known]
    result = {"study": "classic_toy", "steps": steps, "rows": rows}
    result |= {
        "command": "python benchmarks/classic_toy.py",
        "created": now(),
        "environment": environment(),
    }
    path.write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
