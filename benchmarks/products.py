"""What weights by products cost in a training: passes and time, beside all M gradients.

    python benchmarks/products.py                      # the tables of docs/understand/cost.md
    python benchmarks/products.py --networks mlp --objectives 16 --steps 12
    python benchmarks/products.py --json results/products.json      # then: python docs/measured.py

What the file has of other networks and numbers of objectives stays in it: they may be run one by
one, each with as many steps as it needs.

How many products a step takes depends on how much the gradients change from step to step. So this
is a training, with a fresh batch every step, the trunk weighed and the output layer plain. The
networks of step_cost.py learn M noisy random waves of random inputs; ``digits``, 64-128-64 with
batches of 64 images, learns up to ten classes, the rest waves. In every second step all contestants
make the same step, from the same parameters on the same batch, in random order, by the CPU time of
one thread; what moves the parameters is always MGDA with a gap of 0.1. Passes are counted: a
product is two backwards. TorchJD registers hooks, which makes trimol look for them: it is timed at
the end, interleaved with the plain step.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from networks import TRUNKS, Problem, problem
from sklearn.datasets import load_digits
from step_cost import table
from torch import nn

import trimol
from trimol.runs._environment import environment, now

Step = Callable[[], None]
WARM, NOISE, ROUNDS = 4, 0.3, 3
GAPS = (0.3, 0.1, 0.01)
NETWORKS = [*TRUNKS, "digits"]


def digits(objectives: int) -> Problem:
    """All images, and what is to be learned of them."""
    torch.manual_seed(0)
    images, classes = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32)
    waves = (x @ torch.randn(64, objectives) / 8).sin()
    known = nn.functional.one_hot(torch.tensor(classes), 10).to(x)[:, : objectives // 2]
    trunk = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh())
    model = nn.ModuleDict({"trunk": trunk, "output": nn.Linear(64, objectives)})
    return Problem(model, x, torch.cat([known, waves[:, known.shape[1] :]], 1))


class Training:
    """A network that learns M targets, and everyone's way to make a step of it.

    Args:
        network: Its name.
        objectives: M.
        lr: The learning rate of SGD.
    """

    def __init__(self, network: str, objectives: int, lr: float) -> None:
        self.problem = (
            digits(objectives) if network == "digits" else problem(network, objectives, "columns")
        )
        self.all = (self.problem.x, self.problem.y) if network == "digits" else None
        self.trunk = list(self.problem.model["trunk"].parameters())
        self.optimizer = torch.optim.SGD(self.problem.params, lr=lr)
        width = self.problem.x[0].numel()
        self.waves = torch.randn(width, objectives) / width**0.5
        self.exact = trimol.MGDA(self.trunk, objectives)
        self.methods: dict[str, trimol.methods.Method] = {
            f"MGDA, gap {gap:g}": trimol.MGDA(self.trunk, objectives, solver="products", gap=gap)
            for gap in GAPS
        }
        self.methods["CAGrad, gap 0.1"] = trimol.CAGrad(self.trunk, objectives, solver="products")

    def next_batch(self) -> None:
        if self.all is not None:
            chosen = torch.randint(len(self.all[0]), (64,))
            self.problem.x, self.problem.y = (each[chosen] for each in self.all)
            return
        x = torch.randn_like(self.problem.x)
        y = (2 * x.flatten(1) @ self.waves).sin()
        self.problem.x, self.problem.y = x, y + NOISE * torch.randn_like(y)

    def backward(self, method: trimol.methods.Method) -> Step:
        return lambda: method(self.problem.losses()).backward()

    def plain(self) -> None:
        self.problem.losses().sum().backward()

    def bare_loop(self) -> None:
        """M backwards and nothing else: not even the gradients are kept apart."""
        losses = self.problem.losses()
        for loss in losses.unbind():
            torch.autograd.grad(loss, self.trunk, retain_graph=True)

    @property
    def contestants(self) -> dict[str, Step]:
        """By name; each of them makes a whole step but for the optimizer's."""
        steps = {"plain": self.plain, "bare loop": self.bare_loop}
        steps["MGDA"] = self.backward(self.exact)
        return steps | {name: self.backward(each) for name, each in self.methods.items()}

    def torchjd(self) -> None:
        from torchjd.aggregation import MGDA
        from torchjd.autojac import backward, jac_to_grad

        backward(self.problem.losses(), inputs=self.trunk)
        jac_to_grad(self.trunk, MGDA())


def spent(training: Training, step: Step) -> float:
    """CPU seconds of one step."""
    training.problem.clear()
    before = time.process_time()
    step()
    return time.process_time() - before


def measured(training: Training, steps: int, *, timed: bool) -> Iterator[tuple[str, float, Any]]:
    """For each contestant and step its seconds, and what a method says of it."""
    methods = training.methods
    for step in range(steps):
        training.next_batch()
        everyone = training.contestants
        names = [*everyone] if timed and step % 2 and step >= WARM else [*methods]
        for name in random.sample(names, len(names)):
            seconds = spent(training, everyone[name])
            if step >= WARM:
                yield name, seconds if len(names) > len(methods) else 0.0, methods.get(name)
        _move(training)


def _move(training: Training) -> None:
    """The optimizer's step along the direction of gap 0.1, whose weights are known."""
    training.problem.clear()
    weights = training.methods["MGDA, gap 0.1"].weights
    trimol.Static(training.trunk, len(weights), weights=weights)(
        training.problem.losses()
    ).backward()
    training.optimizer.step()


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for network in args.networks:
        for objectives in args.objectives:
            torch.manual_seed(0)
            random.seed(0)
            yield from _of_one(Training(network, objectives, args.lr), network, objectives, args)


def _of_one(
    training: Training, network: str, objectives: int, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    seconds: dict[str, list[float]] = {}
    passes: dict[str, list[int]] = {}
    for name, taken, method in measured(training, args.steps, timed=not args.no_time):
        if taken:
            seconds.setdefault(name, []).append(taken)
        if method is not None:
            passes.setdefault(name, []).append(_passes(method))
    if not args.no_time:
        for _ in range(ROUNDS):
            seconds["plain"].append(spent(training, training.plain))
            seconds.setdefault("TorchJD MGDA", []).append(spent(training, training.torchjd))
    setting = {"network": network, "objectives": objectives}
    for name, counts in passes.items():
        passed = statistics.mean(counts) / objectives
        yield {**setting, "contestant": name, "passes": passed, "steps": args.steps}
    plain = statistics.median(seconds.get("plain", [1.0]))
    for name in seconds:
        mean = statistics.mean(seconds[name])
        yield {**setting, "contestant": name, "ratio": mean / plain}


def _passes(method: Any) -> int:
    """Those of a method's last step, in backwards: of products, then of all gradients or of d."""
    info = method.info
    rest = method.objectives if info.route == "rows" else method.backwards_left
    return int(2 * info.products + rest)


def _joined(path: Path, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a file has of other settings, and what was found of these."""
    made = {_measured(row) for row in found}
    known = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = [row for row in known if _measured(row) not in made] + found
    return sorted(rows, key=lambda row: (NETWORKS.index(row["network"]), row["objectives"]))


def _measured(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["network"], row["objectives"], "passes" in row


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--objectives", nargs="+", type=int, default=[16, 32, 64])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--no-time", action="store_true", help="count passes only")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    found = []
    for row in rows(args):
        found.append(row)
        if sys.stderr.isatty():
            print(*row.values(), file=sys.stderr)
    if args.json is not None:
        content = {
            "study": "products",
            "rows": _joined(args.json, found),
            "lr": args.lr,
            "command": "python benchmarks/products.py --json results/products.json",
            "created": now(),
            "environment": environment(),
        }
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for value, unit in (("passes", "backwards per M"), ("ratio", "time as a multiple of plain")):
        own = [row for row in found if value in row]
        if own:
            print(table(own, value, unit))


if __name__ == "__main__":
    main()
