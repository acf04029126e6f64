"""Which methods reach the front of the classic two-objective toy, from how many of five starts?

    python benchmarks/classic_toy.py                                  # prints a table, an hour
    python benchmarks/classic_toy.py --json results/classic_toy.json --figure classic-toy.svg

The protocol of CAGrad, Nash-MTL, FAMO and ConFIG: the first loss × 0.1, Adam with a step size of
1e-3, the five starts, 35 000 steps or (FAMO, ConFIG) 50 000: the longer runs pass the shorter ones.
(M-ConFIG, which has Adam's second moment in itself, moves by plain SGD of the same step size, as
its authors do.) The starts of a method are replicas of one batched program, and some methods step
together: the gradients of all are computed at once. Methods have the hyper-parameters of their
constructors, but where a method's authors say others for this toy (`OF_AUTHORS`). The losses are
below zero: what looks at their values is given how far they are above the least of each (FAMO:
above its authors' numbers); no gradient changes.
A run has reached the front if it ends within 0.1 of it.

``--coarse 10`` takes ten steps as one: ten times the step size and Adam's β to the tenth power, so
that its memory is as long in the plane. It is for methods without a memory or a rate of their own.
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

STEPS, EARLIER, LR, REACHED, KEPT, AT_ONCE = 50_000, 35_000, 1e-3, 0.1, 100, 8
# Of these there are published pictures: they are run first.
PICTURED = ("static", "mgda", "pcgrad", "cagrad", "imtlg", "famo", "config", "mconfig", "nashmtl")
# They need a representation (and are MGDA without), or K models.
LEFT_OUT = ("mgdaub", "hvgrad")
# Moments of their own: Adam would divide by them a second time.
BY_SGD = ("mconfig",)
# FAMO's toy: no decay of its weights, a short gradient, losses above these (the least: −2, −20).
OF_AUTHORS: dict[str, dict[str, Any]] = {"famo": {"gamma": 0.0, "max_norm": 1.0}}
OFFSETS = {"famo": (-2.1, -21.0)}
Row = dict[str, Any]


def methods() -> list[str]:
    """The names of all methods that can be run, those with published pictures first."""
    others = [name for name in trimol.methods.names() if name not in (*PICTURED, *LEFT_OUT)]
    return [*PICTURED, *others]


def run(
    names: Sequence[str], steps: int = STEPS, task: ClassicToy | None = None, coarse: int = 1
) -> Tensor:
    """Ways from all five starts: some of the steps, the last too, × methods × 5 × 2."""
    task = task or ClassicToy()
    nothing = torch.zeros(1, dtype=torch.float64)
    least = _least(names, task.true_front((nothing,), 2).amin(0))
    made = [
        replicated(name, replicas=len(STARTS), objectives=2, **OF_AUTHORS.get(name, {}))
        for name in names
    ]
    starts = torch.tensor(STARTS, dtype=torch.float64)
    x = torch.stack([starts] * len(names))
    movers = _movers(names, x, coarse)
    way = [x.clone()]
    for step in range(1, steps + 1):
        with torch.inference_mode():
            losses = cache(partial(_above, task, x, least))
            directions = [
                _direction(made[number], rows, partial(_one_of, losses, number))
                for number, rows in enumerate(task.jacobian(x, nothing))
            ]
        for own, moved, optimizer in movers:
            moved.grad = torch.stack([directions[number] for number in own])
            optimizer.step()
            x[own] = moved.detach()
        if step % max(steps // KEPT, 1) == 0 or step == steps:
            way.append(x.clone())
    return torch.stack(way)


Mover = tuple[list[int], nn.Parameter, torch.optim.Optimizer]


def _movers(names: Sequence[str], x: Tensor, coarse: int) -> list[Mover]:
    """Which methods one optimizer moves, and where they are: Adam, and SGD for `BY_SGD`."""
    adam = partial(Adam, betas=(0.9**coarse, 0.999**coarse))
    kinds: tuple[tuple[Any, bool], ...] = ((adam, False), (SGD, True))
    movers = []
    for kind, by_sgd in kinds:
        own = [n for n, name in enumerate(names) if (name in BY_SGD) is by_sgd]
        moved = nn.Parameter(x[own])
        if own:
            movers.append((own, moved, kind([moved], lr=LR * coarse)))
    return movers


def _least(names: Sequence[str], least: Tensor) -> Tensor:
    """What the losses are given above, methods × 1 × 2."""
    each = [torch.tensor(OFFSETS[n]).to(least) if n in OFFSETS else least for n in names]
    return torch.stack(each)[:, None]


def _above(task: ClassicToy, x: Tensor, least: Tensor) -> Tensor:
    """How far the losses are above the least of each; next to it, rounding is below."""
    return (task.values(x, x) - least).clamp_min(1e-12)


def _one_of(losses: Callable[[], Tensor], number: int) -> Tensor:
    return losses()[number]


def _direction(method: Replicated, rows: Tensor, losses: Callable[[], Tensor]) -> Tensor:
    draws = method.draws if method.due else 1
    found: Tensor = method.direction(Jacobians([rows] * draws, losses))
    return found


def row(name: str, steps: int, coarse: int, way: Tensor) -> Row:
    """One line of the table."""
    task = ClassicToy()
    distances = task.distance(way[-1]).tolist()
    ends = way[-1].tolist()
    passed = round(EARLIER / (steps * coarse) * (len(way) - 1))
    earlier = task.distance(way[passed]).tolist() if passed < len(way) else distances
    return {
        "method": name,
        "steps": steps,
        "coarse": coarse,
        "reached": sum(d <= REACHED for d in distances),
        "reached_earlier": sum(d <= REACHED for d in earlier),
        "distances": [round(d, 4) for d in distances],
        "ends": [[round(v, 3) for v in end] for end in ends],
        "way": [[[round(v, 3) for v in point] for point in at] for at in way.tolist()],
    }


def drawn(rows: list[Row], path: Path) -> None:
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
    parser.add_argument("--coarse", type=int, default=1, help="so many steps taken as one")
    parser.add_argument("--methods", nargs="+", choices=methods(), default=methods())
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="methods that step together")
    parser.add_argument("--json", type=Path, help="write the result to this file; goes on from it")
    parser.add_argument("--figure", type=Path, help="draw it to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, protocol = _read(options.json), {"coarse": options.coarse}
    protocol["steps"] = options.steps // options.coarse
    known = {one["method"] for one in rows if protocol.items() <= one.items()}
    missing = [name for name in options.methods if name not in known]
    together = [missing[i : i + options.at_once] for i in range(0, len(missing), options.at_once)]
    for names in together:
        ways = run(names, **protocol)
        rows += [row(name, way=ways[:, own], **protocol) for own, name in enumerate(names)]
        if options.json:
            _kept(options.json, rows)
    print("| method | reached | distance from the front, by start |\n|---|---|---|")
    asked = [one for one in rows if protocol.items() <= one.items()]
    for one in (one for one in asked if one["method"] in options.methods):
        distances = ", ".join(f"{d:.2g}" for d in one["distances"])
        print(f"| {one['method']} | {one['reached']} | {distances} |")
    if options.figure:
        drawn(asked, options.figure)


def _read(path: Path | None) -> list[Row]:
    """The runs that are kept in a file, of whatever protocol."""
    if path is None or not path.is_file():
        return []
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def _kept(path: Path, rows: list[Row]) -> None:
    order = methods()
    rows.sort(key=lambda one: (one["coarse"], order.index(one["method"])))
    made = {"command": "python benchmarks/classic_toy.py", "created": now()}
    result: Row = {"study": "classic_toy", "rows": rows, **made, "environment": environment()}
    path.write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
