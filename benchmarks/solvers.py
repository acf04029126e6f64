"""Gramian → weights alone, ours beside TorchJD's: time, and how exact the weights are.

    python benchmarks/solvers.py                  # the table of docs/understand/cost.md
    python benchmarks/solvers.py --objectives 2 8 --kind conflicting

For each method that both have and whose weights solve a problem: milliseconds of one solution (the
median, CPU time of one thread, interleaved, on the same Gramians in float64), and the largest
residual of the conditions that define the weights, as in many_objectives.py: a few 1e-16 are exact.
What would take more than half a minute, by the time of the size before, is left out. TorchJD comes
from the ``bench`` extra.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torchjd.aggregation as theirs
from many_objectives import CONDITIONS, Given, gradients
from torch import Tensor

import trimol

LONGEST = 30.0
PEERS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "mgda": lambda: theirs.MGDAWeighting(),
    "upgrad": lambda: theirs.UPGradWeighting(),
    "cagrad": lambda: theirs.CAGradWeighting(c=0.4),
    "imtlg": lambda: theirs.IMTLGWeighting(),
    "alignedmtl": lambda: theirs.AlignedMTLWeighting(),
    "fairgrad": lambda: theirs.FairGradWeighting(alpha=2.0),
}
Solver = Callable[[Tensor], Tensor]


def ours(name: str, objectives: int) -> Solver:
    """From gradients to weights, the Gramian being at hand."""
    method: Any = trimol.methods.get(name)([torch.zeros(1, requires_grad=True)], objectives)
    return lambda rows: method.weigh(Given(rows))


def peer(name: str) -> Solver:
    weigh = PEERS[name]()
    return lambda rows: weigh(Given(rows).gramian())


def solved(solver: Solver, name: str, rows: Tensor) -> tuple[float, float]:
    """Seconds, and the residual of what was found."""
    before = time.process_time()
    weights = solver(rows)
    spent = time.process_time() - before
    return spent, CONDITIONS[name](rows, weights.double())


def cell(solvers: list[Solver | None], name: str, objectives: int, kind: str) -> list[Any]:
    """Median seconds and largest residual of each; None for who is left out."""
    found: list[list[tuple[float, float]]] = [[] for _ in solvers]
    start = time.process_time()
    for seed in range(15):
        rows = dict(gradients(objectives, seed))[kind]
        for solver, own in zip(solvers, found, strict=True):
            if solver is not None:
                own.append(solved(solver, name, rows))
        spent = time.process_time() - start
        if spent > (10 if seed >= 2 else LONGEST):
            break
    return [
        (statistics.median(s for s, _ in own), max(r for _, r in own)) if own else None
        for own in found
    ]


def line(name: str, args: argparse.Namespace) -> list[str]:
    """A method's cells: ours, then theirs."""
    cells, lasts, before = [], [0.0, 0.0], 0
    for objectives in args.objectives:
        grows = (objectives / before) ** 3 if before else 1.0
        solvers = [ours(name, objectives), peer(name)]
        asked = [s if t * grows < LONGEST else None for s, t in zip(solvers, lasts, strict=True)]
        found = cell(asked, name, objectives, args.kind)
        cells.append(
            " / ".join("—" if f is None else f"{1e3 * f[0]:.3g} · {f[1]:.0e}" for f in found)
        )
        lasts = [LONGEST if f is None else f[0] for f in found]
        before = objectives
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description="Gramian → weights, beside TorchJD.")
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 8, 32, 128, 512])
    parser.add_argument("--methods", nargs="+", choices=PEERS, default=list(PEERS))
    kinds = [kind for kind, _ in gradients(8)]
    parser.add_argument("--kind", choices=kinds, default="independent", help="of gradients")
    args = parser.parse_args()
    torch.set_num_threads(1)
    head = "| ms · residual, ours / TorchJD |"
    print(head, " | ".join(f"M = {m}" for m in args.objectives) + " |")
    print("|---" * (len(args.objectives) + 1) + "|")
    for name in args.methods:
        try:
            print(f"| {name} | " + " | ".join(line(name, args)) + " |", flush=True)
        except ImportError as error:
            print(f"{name} left out: {error}")


if __name__ == "__main__":
    main()
