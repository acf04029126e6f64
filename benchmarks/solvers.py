"""Gramian → weights alone, ours beside TorchJD's: time, and how exact the weights are.

    python benchmarks/solvers.py --json results/solvers.json     # then: python docs/measured.py
    python benchmarks/solvers.py --objectives 2 8 --kind conflicting

For each method that both have and whose weights solve a problem: milliseconds of one solution (the
median, CPU time of one thread, interleaved, on the same Gramians in float64), and the largest
residual of the conditions that define the weights, as in many_objectives.py: a few 1e-16 are exact.
What would take more than half a minute, by the time of the size before, is left out. TorchJD comes
from the ``bench`` extra.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torchjd.aggregation as theirs
from many_objectives import CONDITIONS, Given, gradients
from torch import Tensor

import trimol
from trimol.runs._environment import environment, now

LONGEST, ENOUGH = 30.0, 2.0  # seconds of one size
SEEDS = 51
Row = dict[str, Any]
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


def pair(solvers: list[Solver | None], name: str, objectives: int, kind: str) -> Row:
    """Median milliseconds and largest residual of each who takes part, and ours over theirs.

    The ratio is the median of those on the same Gramian, solved one after the other.
    """
    found: list[list[tuple[float, float]]] = [[] for _ in solvers]
    start = time.process_time()
    for seed in range(SEEDS):
        rows = dict(gradients(objectives, seed))[kind]
        for solver, own in zip(solvers, found, strict=True):
            if solver is not None:
                own.append(solved(solver, name, rows))
        spent = time.process_time() - start
        if (seed >= 2 and spent > ENOUGH) or spent > LONGEST:
            break
    row: Row = {"method": name, "objectives": objectives, "gradients": kind, "n": len(found[0])}
    for who, own in zip(("ours", "torchjd"), found, strict=True):
        if own:
            row[f"{who} ms"] = 1e3 * statistics.median(s for s, _ in own)
            row[f"{who} residual"] = max(r for _, r in own)
    if all(found):
        pairs = zip(*found, strict=True)
        row["ratio"] = statistics.median(one / other for (one, _), (other, _) in pairs)
    return row | {"load": os.getloadavg()[0]}


def measured(name: str, args: argparse.Namespace) -> Iterator[Row]:
    """A method's rows, from few objectives to many."""
    lasts, before = [0.0, 0.0], 0
    for objectives in args.objectives:
        grows = (objectives / before) ** 3 if before else 1.0
        solvers = [ours(name, objectives), peer(name)]
        asked = [s if t * grows < LONGEST else None for s, t in zip(solvers, lasts, strict=True)]
        yield (row := pair(asked, name, objectives, args.kind))
        lasts = [row.get(f"{who} ms", 1e3 * LONGEST) / 1e3 for who in ("ours", "torchjd")]
        before = objectives


def main() -> None:
    parser = argparse.ArgumentParser(description="Gramian → weights, beside TorchJD.")
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 8, 32, 128, 512])
    parser.add_argument("--methods", nargs="+", choices=PEERS, default=list(PEERS))
    kinds = [kind for kind, _ in gradients(8)]
    parser.add_argument("--kind", choices=kinds, default="independent", help="of gradients")
    parser.add_argument("--json", type=Path, help="write the rows here, in place of its own")
    args = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(args.json.read_text())["rows"] if args.json and args.json.exists() else []
    for name in args.methods:
        try:
            for row in measured(name, args):
                print(json.dumps(row), flush=True)
                known = [old for old in known if not _same(old, row)] + [row]
        except ImportError as error:
            print(f"{name} left out: {error}")
        if args.json is not None:
            args.json.write_text(json.dumps(_study(known), indent=1) + "\n")


def _same(one: Row, other: Row) -> bool:
    return all(one[key] == other[key] for key in ("method", "objectives", "gradients"))


def _study(rows: list[Row]) -> Row:
    return {
        "study": "solvers",
        "rows": rows,
        "command": "python benchmarks/solvers.py --json results/solvers.json",
        "created": now(),
        "environment": environment(),
    }


if __name__ == "__main__":
    main()
