"""What a step costs on models so small that much of it goes into calling operators.

    python benchmarks/small_models.py  # docs/understand/cost.md
    python benchmarks/small_models.py --networks "small mlp" --objectives 2 --seconds 1
    python benchmarks/small_models.py --json results/small_models.json    # then docs/measured.py

As step_cost.py: CPU time of one thread, interleaved in random order, the median of the rounds, as a
multiple of the plain step of the same model on the same samples. *Vector*: one output layer, all
losses computed as one tensor. *Heads*: M output layers, and M losses computed one by one.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from networks import SMALL, Shape, problem
from step_cost import times

from trimol.runs._environment import environment, now

# Who is interleaved with whom: TorchJD's hooks would make trimol look for hooks in its own graphs.
GROUPS: list[tuple[Shape, list[str]]] = [
    ("vector", ["plain, two halves", "MoDo"]),
    ("heads", ["plain, two halves", "MoDo"]),
    ("vector", ["MGDA", "upgrad", "bare loop"]),
    ("vector", ["TorchJD MoDo"]),
    ("vector", ["TorchJD MGDA"]),
]


def rows(network: str, objectives: int, seconds: float) -> Iterator[dict[str, Any]]:
    for shape, names in GROUPS:
        found = times(problem(network, objectives, shape), ["plain", *names], seconds)
        for name in names:
            yield {
                "network": network,
                "objectives": objectives,
                "shape": shape,
                "contestant": name,
                "ratio": round(found[name] / found["plain"], 3),
                "plain_ms": round(1000 * found["plain"], 3),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=SMALL, default=list(SMALL))
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 8, 32])
    parser.add_argument("--seconds", type=float, default=4.0, help="per group of contestants")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    made = []
    for network in args.networks:
        for objectives in args.objectives:
            for row in rows(network, objectives, args.seconds):
                print(*row.values(), sep="\t", flush=True)
                made.append(row)
    if args.json is not None:
        content = {
            "study": "small_models",
            "rows": made,
            "command": "python benchmarks/small_models.py --json results/small_models.json",
            "created": now(),
            "environment": environment(),
        }
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
