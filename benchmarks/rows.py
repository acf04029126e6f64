"""All gradients of M losses: `trimol.gradients` beside TorchJD and a plain loop of backwards.

    python benchmarks/rows.py

Each contestant is given the same recorded graph and computes the M × M Gramian of the gradients
with respect to all parameters; times are multiples of the plain loop's, interleaved, the median of
many rounds. TorchJD comes from the ``bench`` extra.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchjd.autogram import Engine
from torchjd.autojac import jac

from trimol.gradients import gramian

Contestant = Callable[[nn.Module, Tensor, list[nn.Parameter]], Tensor]


def mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())


def cnn(width: int) -> nn.Module:
    first = [nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    second = [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten())


# Name → trunk, its output width, the shape of a batch.
CASES: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...]]] = {
    "mlp, 2 k parameters": (lambda: mlp(32), 32, (64, 32)),
    "mlp, 33 k parameters": (lambda: mlp(128), 128, (64, 128)),
    "mlp, 526 k parameters": (lambda: mlp(512), 512, (256, 512)),
    "cnn, 1 k parameters": (lambda: cnn(8), 8, (16, 3, 16, 16)),
    "cnn, 10 k parameters": (lambda: cnn(32), 32, (32, 3, 16, 16)),
}


def loop(model: nn.Module, losses: Tensor, params: list[nn.Parameter]) -> Tensor:
    rows = []
    for loss in losses.unbind():
        gradients = torch.autograd.grad(loss, params, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([g.reshape(-1) for g in gradients]))
    jacobian = torch.stack(rows)
    return jacobian @ jacobian.T


def ours(model: nn.Module, losses: Tensor, params: list[nn.Parameter]) -> Tensor:
    return gramian(losses, params)


def autojac(model: nn.Module, losses: Tensor, params: list[nn.Parameter]) -> Tensor:
    rows = torch.cat([j.flatten(1) for j in jac(losses, params, retain_graph=True)], dim=1)
    return rows @ rows.T


class Autogram:
    """TorchJD's engine hooks the model once, before the forward pass."""

    def __init__(self, model: nn.Module) -> None:
        self.engine = Engine(model, batch_dim=None)

    def __call__(self, model: nn.Module, losses: Tensor, params: list[nn.Parameter]) -> Tensor:
        found: Tensor = self.engine.compute_gramian(losses)
        return found


def measure(case: str, objectives: int, seconds: float) -> dict[str, float]:
    """Median time of each contestant as a multiple of the loop's."""
    torch.manual_seed(0)
    make, width, shape = CASES[case]
    x, y = torch.randn(shape), torch.randn(shape[0], objectives)
    taken: dict[str, list[float]] = {}
    networks = {}
    for name in ("loop", "trimol", "TorchJD autojac", "TorchJD autogram"):
        model = nn.Sequential(make(), nn.Linear(width, objectives))
        networks[name] = model
        taken[name] = []
    contestants: dict[str, Contestant] = {
        "loop": loop,
        "trimol": ours,
        "TorchJD autojac": autojac,
        "TorchJD autogram": Autogram(networks["TorchJD autogram"]),
    }
    start, rounds = time.perf_counter(), 0
    while rounds < 6 or time.perf_counter() - start < seconds:
        for name in random.sample(list(contestants), len(contestants)):
            model = networks[name]
            columns = model(x).unbind(1)
            losses = torch.stack([F.mse_loss(c, y[:, m]) for m, c in enumerate(columns)])
            before = time.perf_counter()
            contestants[name](model, losses, list(model.parameters()))
            if rounds:
                taken[name].append(time.perf_counter() - before)
        rounds += 1
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return {name: value / medians["loop"] for name, value in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a Gramian as a multiple of a loop's.")
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for case in CASES:
        found = [measure(case, m, args.seconds) for m in args.objectives]
        print(f"\n| {case} | " + " | ".join(f"M = {m}" for m in args.objectives) + " |")
        print("|---" * (len(found) + 1) + "|")
        for name in found[0]:
            print(f"| {name} | " + " | ".join(f"{row[name]:.2f}" for row in found) + " |")


if __name__ == "__main__":
    main()
