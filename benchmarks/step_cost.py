"""What a training step costs, as a multiple of ``sum(losses).backward()`` on the same samples.

    python benchmarks/step_cost.py                     # the tables of docs/understand/cost.md
    python benchmarks/step_cost.py --networks mlp --objectives 2 8 --seconds 5

Every contestant makes a whole step (forward, backward, gradients in ``.grad``) with the same number
of samples. Contestants are interleaved in one process in random order, the median of many rounds
is reported, and no absolute time is compared between runs. The clock is the CPU time of one thread,
so that other work on the machine does not count. Peak memory is read in a fresh process each.
TorchJD comes from the ``bench`` extra: ``pip install 'trimol[bench]' -c constraints.txt``.
"""

import argparse
import copy
import json
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from networks import TRUNKS, WIDE, Problem, Shape, problem

import trimol
from trimol.gradients import _factors

Step = Callable[[], None]


def plain(p: Problem) -> Step:
    return lambda: p.losses().sum().backward()


def plain_halves(p: Problem) -> Step:
    """The plain step on two half batches: what splitting alone costs a network."""

    def step() -> None:
        first, second = p.halves()
        ((first + second) / 2).sum().backward()

    return step


def static(p: Problem) -> Step:
    method = trimol.Static(p.params, len(p.losses()))
    return lambda: method(p.losses()).backward()


def _modo(**options: Any) -> Callable[[Problem], Step]:
    def make(p: Problem) -> Step:
        method = trimol.MoDo(p.params, len(p.losses()), gamma=1e-3, **options)

        def step() -> None:
            for _ in range(method.every):
                losses = p.halves() if method.due else (p.losses(),)
                method(*losses).backward()
                p.clear()

        return step

    return make


def mgda(p: Problem) -> Step:
    method = trimol.MGDA(p.params, len(p.losses()))
    return lambda: method(p.losses()).backward()


def loop(p: Problem) -> Step:
    """Each loss's gradient by a backward of its own, kept: what a Gramian method needs by hand."""

    def step() -> None:
        rows = []
        for loss in p.losses().unbind():
            gradients = torch.autograd.grad(
                loss, p.params, retain_graph=True, materialize_grads=True
            )
            rows.append(torch.cat([g.reshape(-1) for g in gradients]))
        jacobian = torch.stack(rows)
        jacobian @ jacobian.T

    return step


def bare_loop(p: Problem) -> Step:
    """One backward per loss and nothing else: not even the gradients are kept apart."""

    def step() -> None:
        for loss in p.losses().unbind():
            loss.backward(retain_graph=True)

    return step


def modo_at_once(p: Problem) -> Step:
    """Both halves of the batch by one forward pass."""
    method = trimol.MoDo(p.params, len(p.losses()), gamma=1e-3)

    def step() -> None:
        method(*p.halves_at_once()).backward()
        p.clear()

    return step


def modo_by_gradients(p: Problem) -> Step:
    """MoDo that makes the gradients of all layers, of wide ones, too: what factors save."""
    modo = _modo()(p)

    def step() -> None:
        kept, _factors.SMALLEST = _factors.SMALLEST, sys.maxsize
        try:
            modo()
        finally:
            _factors.SMALLEST = kept

    return step


def torchjd_modo(p: Problem, chunk: int | None = None) -> Step:
    """The recipe of TorchJD's documentation of MoDoWeighting, two batches per step.

    ``chunk``: how many losses it differentiates at once (1: by ordinary backwards).
    """
    from torchjd.aggregation import MoDoWeighting
    from torchjd.autojac import jac

    weighting = MoDoWeighting(gamma=1e-3, rho=0.0)
    options: Any = {"retain_graph": True, "parallel_chunk_size": chunk}

    def step() -> None:
        first, second = p.halves()
        one, two = (
            torch.cat([j.flatten(1) for j in jac(losses, p.params, **options)], dim=1)
            for losses in (first, second)
        )
        ((first + second) / 2).backward(weighting(one @ two.T))

    return step


def _family(name: str, *, trunk: bool = False, **options: Any) -> Callable[[Problem], Step]:
    """Any method of the registry, by default with its defaults, on a batch split into its draws."""

    def make(p: Problem) -> Step:
        weighed = list(p.model["trunk"].parameters()) if trunk else p.params
        method = trimol.methods.get(name)(weighed, len(p.losses()), **options)
        bounds = [len(p.x) * i // method.draws for i in range(method.draws + 1)]
        parts = [slice(low, high) for low, high in pairwise(bounds)]
        return lambda: method(*[p.losses(part) for part in parts]).backward()

    return make


def _adam(p: Problem, *, conflict: bool) -> torch.optim.Adam:
    """Adam with momentum along the mean gradient, or against it: then its step conflicts."""
    optimizer = torch.optim.Adam(p.params, lr=1e-12)  # a step to have a state, and not to move
    (p.losses().mean() * (-10 if conflict else 1)).backward()
    optimizer.step()
    p.clear()
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    return optimizer


def _for_adam(name: str, *, conflict: bool = False, **options: Any) -> Callable[[Problem], Step]:
    """A method whose weights are chosen for Adam's step (which is not taken)."""

    def make(p: Problem) -> Step:
        own = _adam(p, conflict=conflict)
        return _family(name, optimizer=own, **options)(p)

    return make


def torchjd_backward(
    name: str, *, chunk: int | None = None, **options: Any
) -> Callable[[Problem], Step]:
    def make(p: Problem) -> Step:
        import torchjd.aggregation
        from torchjd.autojac import backward, jac_to_grad

        aggregator = getattr(torchjd.aggregation, name)(**options)

        def step() -> None:
            backward(p.losses(), inputs=p.params, parallel_chunk_size=chunk)
            jac_to_grad(p.params, aggregator)

        return step

    return make


def torchjd_autogram(p: Problem) -> Step:
    """UPGrad by TorchJD's engine, which hooks the modules: on a copy that no one else calls."""
    from torchjd.aggregation import UPGradWeighting
    from torchjd.autogram import Engine

    own = copy.deepcopy(p)
    engine, weighting = Engine(own.model, batch_dim=None), UPGradWeighting()

    def step() -> None:
        losses = own.losses()
        losses.backward(weighting(engine.compute_gramian(losses)))
        own.clear()

    return step


CONTESTANTS: dict[str, Callable[[Problem], Step]] = {
    "plain": plain,
    "plain, two halves": plain_halves,
    "Static": static,
    "MoDo": _modo(),
    "MoDo simultaneous": _modo(simultaneous=True),
    "MoDo every=10": _modo(every=10),
    "MGDA": mgda,
    "loop of backwards": loop,
    "bare loop": bare_loop,
    "TorchJD MoDo": torchjd_modo,
    "TorchJD MGDA": torchjd_backward("MGDA"),
    "TorchJD UPGrad": torchjd_backward("UPGrad"),
    "TorchJD autogram": torchjd_autogram,
}
FAMILY = {
    **{name: _family(name) for name in trimol.methods.names()},
    "TorchJD PCGrad": torchjd_backward("PCGrad"),
    "TorchJD IMTLG": torchjd_backward("IMTLG"),
    "TorchJD AlignedMTL": torchjd_backward("AlignedMTL"),
    "TorchJD FairGrad": torchjd_backward("FairGrad", alpha=2.0),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "own length": {},
    "one length": {"length": "mean gradient"},
    "clipped": {"max_norm": 1e-3},
    "plain heads": {"trunk": True},
    "weighted heads": {"trunk": True, "heads": "weighted"},
}
DELIVERY = {
    f"{name}, {text}": _family(name, **options)
    for name in ("famo", "modo", "mgda")
    for text, options in OPTIONS.items()
}
STEPPING = {
    "static": _family("static"),
    "static, guarded, free": _for_adam("static", guard=True),
    "static, guarded, changed": _for_adam("static", guard=True, conflict=True),
    "modo": _family("modo"),
    "modo, in Adam's metric": _for_adam("modo"),
    "modo, guarded, free": _for_adam("modo", guard=True),
    "mgda": _family("mgda"),
    "mgda, in Adam's metric": _for_adam("mgda"),
    "mgda, guarded, free": _for_adam("mgda", guard=True),
    "mgda, guarded, changed": _for_adam("mgda", guard=True, metric="gradient", conflict=True),
}
CORE = list(CONTESTANTS)
CONTESTANTS |= FAMILY | DELIVERY | STEPPING
CONTESTANTS |= {"MoDo by gradients": modo_by_gradients, "MoDo, one forward": modo_at_once}
STEPS_PER_CALL = {"MoDo every=10": 10}
# These register hooks at every step. trimol's engine sees that hooks were registered in the process
# and checks that none changes its own graph, at the price of a backward: not in the same rounds.
APART = {name for name in CONTESTANTS if name.startswith("TorchJD")} - {"TorchJD MoDo"}
IN_MEMORY_TABLE = (
    "plain",
    "MoDo",
    "MoDo simultaneous",
    "MGDA",
    "loop of backwards",
    "TorchJD MoDo",
)


def times(p: Problem, names: list[str], seconds: float) -> dict[str, float]:
    """Median CPU seconds of a step for each contestant, interleaved round by round."""
    steps = {name: CONTESTANTS[name](p) for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    rounds = 0
    while rounds < 5 or time.perf_counter() - start < seconds:
        for name in random.sample(names, len(names)):  # no one always runs after the same other
            before = time.process_time()
            steps[name]()
            spent = (time.process_time() - before) / STEPS_PER_CALL.get(name, 1)
            p.clear()
            if rounds:  # the first round warms up
                taken[name].append(spent)
        rounds += 1
    return {name: statistics.median(values) for name, values in taken.items()}


def peak_memory(network: str, objectives: int, shape: Shape, name: str) -> float:
    """Megabytes beyond what model and data take, in a process of its own."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_measure_memory, args=(network, objectives, shape, name, there)
    )
    process.start()
    megabytes: float = here.recv()
    process.join()
    return megabytes


def _measure_memory(
    network: str, objectives: int, shape: Shape, name: str, answer: Connection
) -> None:
    p = problem(network, objectives, shape)
    step = CONTESTANTS[name](p)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _resident("VmRSS")
    for _ in range(2):
        step()
        p.clear()
    answer.send((_resident("VmHWM") - before) / 1024)


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def time_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for network in args.networks:
        for objectives in args.objectives:
            p = problem(network, objectives, args.shape)
            for names in _groups(args.contestants):
                found = times(p, ["plain", *names], args.seconds)
                plain_seconds = found["plain"]
                for name in names:
                    yield {
                        "network": network,
                        "objectives": objectives,
                        "contestant": name,
                        "ratio": found[name] / plain_seconds,
                        "plain_ms": 1000 * plain_seconds,
                    }


def _groups(names: list[str]) -> list[list[str]]:
    """Who is interleaved with whom; each group has its own plain steps to compare with."""
    rest = [name for name in names if name != "plain"]
    groups = [[n for n in rest if n not in APART], [n for n in rest if n in APART]]
    return [group for group in groups if group]


def memory_rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for network in args.networks:
        for objectives in args.objectives:
            for name in [n for n in IN_MEMORY_TABLE if n in args.contestants]:
                megabytes = peak_memory(network, objectives, args.shape, name)
                yield {
                    "network": network,
                    "objectives": objectives,
                    "contestant": name,
                    "megabytes": megabytes,
                }


def table(rows: list[dict[str, Any]], value: str, unit: str) -> str:
    """A Markdown table: contestants down, objectives across, for each network."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == network]
        columns = list(dict.fromkeys(row["objectives"] for row in own))
        lines += [f"\n| {network}, {unit} | " + " | ".join(f"M = {m}" for m in columns) + " |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        for name in dict.fromkeys(row["contestant"] for row in own):
            cells = {r["objectives"]: r[value] for r in own if r["contestant"] == name}
            lines += [f"| {name} | " + " | ".join(f"{cells[m]:.2f}" for m in columns) + " |"]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=TRUNKS | WIDE, default=list(TRUNKS))
    parser.add_argument("--objectives", nargs="+", type=int, default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--shape", choices=("columns", "heads"), default="columns")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=CORE)
    parser.add_argument("--family", action="store_true", help="every method of the registry")
    parser.add_argument("--delivery", action="store_true", help="`length`, `max_norm`, `heads`")
    parser.add_argument("--stepping", action="store_true", help="`optimizer` and `guard`")
    parser.add_argument("--seconds", type=float, default=20.0, help="per network and M")
    parser.add_argument("--no-time", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", action="store_true", help="one object a line, for machines")
    args = parser.parse_args()
    chosen = [*FAMILY, "bare loop"] if args.family else args.contestants
    chosen = list(DELIVERY) if args.delivery else chosen
    chosen = list(STEPPING) if args.stepping else chosen
    args.contestants = list(dict.fromkeys(["plain", *chosen]))
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    parts = [
        (memory_rows, "megabytes", "MB beyond model and data", args.no_memory),
        (time_rows, "ratio", "time as a multiple of plain", args.no_time),
    ]
    for make, value, unit, left_out in parts:  # memory first: forking wants no threads yet
        if left_out:
            continue
        rows = []
        for row in make(args):
            rows.append(row)
            if args.json:
                print(json.dumps(row), flush=True)
            elif sys.stderr.isatty():
                print(*row.values(), file=sys.stderr)
        if not args.json:
            print(table(rows, value, unit), flush=True)


if __name__ == "__main__":
    main()
