"""What a step costs where the model is compiled or checkpointed, beside the plain step of the same.

    python benchmarks/compiled.py --json results/compiled.json     # then: python docs/measured.py
    python benchmarks/compiled.py --ways compiled --networks mlp --objectives 4

The networks and contestants of ``step_cost.py``, interleaved in random order, CPU time of one
thread, medians. *compiled*: ``torch.compile`` of all from the samples to the M losses; *trunk*: of
the trunk alone, with eager losses on top; *checkpointed*: the trunk, or each of its layers, by
``torch.utils.checkpoint``. Compiling is not counted. Every size of a batch is compiled for itself,
and backwards are compiled to run more than once (no "donated buffers"), the plain step's too. Rows
of the file stay, unless they are made again.
"""

import argparse
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as settings
from networks import TRUNKS, Problem, problem
from step_cost import APART, CONTESTANTS, times, torchjd_backward, torchjd_modo
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trimol.runs._environment import environment, now

Row = dict[str, Any]
COMPARED = (
    "plain, two halves",
    "MoDo",
    "MoDo simultaneous",
    "MGDA",
    "bare loop",
    "TorchJD MoDo",
    "TorchJD MGDA",
)

# Its batched backwards cannot pass a compiled one, nor a checkpoint.
CONTESTANTS["TorchJD MoDo"] = functools.partial(torchjd_modo, chunk=1)
CONTESTANTS["TorchJD MGDA"] = torchjd_backward("MGDA", chunk=1)


@dataclass
class Whole(Problem):
    """A problem whose losses are computed by one compiled function."""

    function: Callable[[Tensor, Tensor], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        def losses(x: Tensor, y: Tensor) -> Tensor:
            return Problem(self.model, x, y).losses()

        self.function = torch.compile(losses, dynamic=False, fullgraph=True)

    def losses(self, part: slice = slice(None)) -> Tensor:
        return self.function(self.x[part], self.y[part])


class Checkpointed(nn.Module):
    """A module that is computed again in the backward pass."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = checkpoint(self.module, *args, use_reentrant=False, **kwargs)
        return result


def compiled(p: Problem) -> Problem:
    return Whole(p.model, p.x, p.y)


def trunk(p: Problem) -> Problem:
    p.model["trunk"].compile(dynamic=False)
    return p


def checkpointed(p: Problem) -> Problem:
    encoder: Any = getattr(p.model["trunk"], "encoder", None)
    if encoder is None:
        p.model["trunk"] = Checkpointed(p.model["trunk"])
    else:
        encoder.layers = nn.ModuleList(Checkpointed(layer) for layer in encoder.layers)
    return p


WAYS: dict[str, Callable[[Problem], Problem]] = {
    "compiled": compiled,
    "trunk": trunk,
    "checkpointed": checkpointed,
}


def ratios(p: Problem, names: list[str], seconds: float) -> dict[str, float | str]:
    """As multiples of the plain step; for who cannot take this model, its error's name."""
    able: list[str] = []
    found: dict[str, float | str] = {}
    for name in names:
        try:
            for _ in range(2):  # compiled here
                CONTESTANTS[name](p)()
                p.clear()
            able.append(name)
        except RuntimeError as error:
            found[name] = type(error).__name__
    for group in ([n for n in able if n not in APART], [n for n in able if n in APART]):
        if group:
            taken = times(p, ["plain", *group], seconds)
            found |= {name: taken[name] / taken["plain"] for name in group}
            found.setdefault("plain, ms", 1e3 * taken["plain"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of compiled and checkpointed models.")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--networks", nargs="+", choices=TRUNKS, default=list(TRUNKS))
    parser.add_argument("--objectives", nargs="+", type=int, default=[4, 16, 32])
    parser.add_argument("--contestants", nargs="+", default=list(COMPARED))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", type=Path, help="add the rows to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings.donated_buffer = False
    columns = ["plain, ms", *args.contestants]
    print("| model | M | " + " | ".join(columns) + " |\n" + "|---" * (2 + len(columns)) + "|")
    for way in args.ways:
        for network in args.networks:
            for objectives in args.objectives:
                torch._dynamo.reset()
                p = WAYS[way](problem(network, objectives, "columns"))
                found = ratios(p, args.contestants, args.seconds)
                cells = [_cell(found[column]) for column in columns]
                print(
                    f"| {network}, {way} | {objectives} | " + " | ".join(cells) + " |", flush=True
                )
                if args.json is not None:
                    place = {"way": way, "network": network, "objectives": objectives}
                    _keep(args.json, place, found)


def _keep(file: Path, place: Row, found: dict[str, float | str]) -> None:
    """Put a row into the file, in place of its own."""
    known = json.loads(file.read_text())["rows"] if file.exists() else []
    rows = [row for row in known if any(row[key] != place[key] for key in place)]
    ratios = {name: value for name, value in found.items() if isinstance(value, float)}
    load = os.getloadavg()[0]
    rows.append({**place, "plain_ms": ratios.pop("plain, ms"), "ratios": ratios, "load": load})
    study = {
        "study": "compiled",
        "rows": rows,
        "command": "python benchmarks/compiled.py --json results/compiled.json",
        "created": now(),
        "environment": environment(),
    }
    file.write_text(json.dumps(study, indent=1) + "\n")


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


if __name__ == "__main__":
    main()
