"""Gramian → weights alone: time and agreement, ours beside TorchJD's.

    python benchmarks/solvers.py

For each method that both have, on random Gramians of M gradients in 2M dimensions: the median time
of one solution (float32, one thread, CPU time, interleaved), and how far TorchJD's direction lies
from ours, relative to ours, on plain gradients, on rows scaled by 10^U(-3, 3), and on gradients a
thousand times shorter. For MGDA the exact answer is known to be ours by its certificate: the last
columns are then TorchJD's excess. TorchJD comes from the ``bench`` extra; its CAGrad and Nash-MTL
need cvxpy and are left out where that is missing.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torchjd.aggregation as theirs
from torch import Tensor

import trimol


class Given:
    """Evidence that is a Gramian and nothing else."""

    momentum = None

    def __init__(self, gramian: Tensor) -> None:
        self.found = gramian
        self.rounding = torch.finfo(gramian.dtype).eps

    def gramian(self, **options: object) -> Tensor:
        return self.found


PEERS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "mgda": lambda: theirs.MGDAWeighting(),
    "upgrad": lambda: theirs.UPGradWeighting(),
    "pcgrad": lambda: theirs.PCGradWeighting(),
    "cagrad": lambda: theirs.CAGradWeighting(c=0.4),
    "imtlg": lambda: theirs.IMTLGWeighting(),
    "alignedmtl": lambda: theirs.AlignedMTLWeighting(),
    "fairgrad": lambda: theirs.FairGradWeighting(alpha=2.0),
}


def jacobian(objectives: int, seed: int, kind: str = "plain") -> Tensor:
    """Random gradients: plain, with rows of very different lengths, or all short."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(objectives, 2 * objectives, generator=generator, dtype=torch.float64)
    if kind == "rows 1e±3":
        rows *= 10 ** (6 * torch.rand(objectives, 1, generator=generator, dtype=torch.float64) - 3)
    elif kind == "short":
        rows *= 1e-3
    return rows


def ours(name: str, objectives: int) -> Callable[[Tensor], Tensor]:
    method = trimol.methods.get(name)([torch.zeros(1, requires_grad=True)], objectives)
    return lambda gramian: method.weigh(Given(gramian))  # type: ignore[arg-type,return-value]


def times(name: str, objectives: int, rounds: int = 25) -> tuple[float, float]:
    """Median milliseconds of ours and of theirs, on the same Gramians."""
    contestants = (ours(name, objectives), PEERS[name]())
    taken: tuple[list[float], list[float]] = ([], [])
    for seed in range(rounds):
        rows = jacobian(objectives, seed).float()
        gramian = rows @ rows.T
        for contestant, spent in zip(contestants, taken, strict=True):
            before = time.process_time()
            contestant(gramian)
            spent.append(1000 * (time.process_time() - before))
    return statistics.median(taken[0]), statistics.median(taken[1])


def gaps(name: str, objectives: int, kind: str, trials: int = 60) -> tuple[float, float]:
    """Median and largest distance of their direction from ours, relative to ours (float64)."""
    mine, peer = ours(name, objectives), PEERS[name]()
    found = []
    for seed in range(trials):
        rows = jacobian(objectives, seed, kind)
        gramian = rows @ rows.T
        one, two = mine(gramian) @ rows, peer(gramian) @ rows
        found.append(float((one - two).norm() / one.norm()))
    return statistics.median(found), max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Gramian → weights, beside TorchJD.")
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 3, 8, 32, 128])
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = []
    for name, make in PEERS.items():
        try:
            make()
            names.append(name)
        except ImportError as error:
            print(f"{name} left out: {error}")
    print("| ms, ours · TorchJD | " + " | ".join(f"M = {m}" for m in args.objectives) + " |")
    print("|---" * (len(args.objectives) + 1) + "|")
    for name in names:
        cells = ["{:.2f} · {:.2f}".format(*times(name, m)) for m in args.objectives]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    kinds = ("plain", "rows 1e±3", "short")
    print("\n| their direction from ours, M = 4, median · largest | " + " | ".join(kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    for name in [n for n in names if n != "pcgrad"]:  # a random order is not comparable
        cells = ["{:.1e} · {:.1e}".format(*gaps(name, 4, kind)) for kind in kinds]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
