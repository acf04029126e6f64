"""What processes send each other in a step under ``DistributedDataParallel``: bytes and time.

    python benchmarks/traffic.py --json results/traffic.json     # then: python docs/measured.py
    python benchmarks/traffic.py --processes 2 --width 64 --steps 3 --json

An MLP, M losses, gloo. Bytes are those that one process hands to collectives in a step, counted by
a communication hook on DDP's buckets and by a counter around ``torch.distributed``'s functions; the
first two steps, in which processes compare what they were given, are not counted. Time is the CPU
time of the first process, communication included, interleaved with the plain step: processes that
wait for each other spend none of it. *In collectives*: the part of it that is spent while the
process waits for one of ours, the most that overlapping them with computation could hide.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

import trimol
from trimol.runs._environment import environment, now

WARM = 2
_ALL_REDUCE = dist.all_reduce
Step = Callable[[], None]


class Sent:
    """Bytes and calls so far, of DDP's own and of others, and the others' seconds."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.own = self.other = self.large = self.small = 0
        self.seconds = 0.0

    def hook(
        self,
        state: None,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        """As DDP itself, and counts."""
        mean = bucket.buffer().div_(dist.get_world_size())
        self.own += mean.nbytes
        sent: torch.futures.Future[Tensor] = _ALL_REDUCE(mean, async_op=True).get_future()
        return sent.then(lambda done: done.value()[0])

    def take(self, tensor: Tensor, least: int) -> None:
        """Count what a function is handed: large if it is a gradient's size, at least."""
        self.other += tensor.nbytes
        self.large += tensor.nbytes >= least
        self.small += tensor.nbytes < least


@contextmanager
def counting(sent: Sent, least: int) -> Iterator[None]:
    """Within, what is handed to collectives is counted."""
    places = {"all_reduce": 0, "all_gather": 1, "reduce_scatter_tensor": 1, "broadcast": 0}
    places |= {"reduce_scatter_single": 1, "all_gather_into_tensor": 1}
    known = {name: getattr(dist, name) for name in places if hasattr(dist, name)}

    def counted(name: str) -> Callable[..., Any]:
        def function(*args: Any, **options: Any) -> Any:
            sent.take(args[places[name]], least)
            before = time.process_time()
            result = known[name](*args, **options)
            sent.seconds += time.process_time() - before
            return result

        return function

    for name in known:
        setattr(dist, name, counted(name))
    try:
        yield
    finally:
        for name, function in known.items():
            setattr(dist, name, function)


def contestants(model: nn.Module, x: Tensor, objectives: int) -> dict[str, Step]:
    """By name; each of them makes a whole step but for the optimizer's."""
    middle, params = len(x) // 2, list(model.parameters())

    def losses(part: slice) -> Tensor:
        out = model(x[part])
        return torch.stack([(out[:, m] - m).square().mean() for m in range(objectives)])

    def with_method(method: trimol.methods.Method) -> Step:
        halves = [slice(middle), slice(middle, None)]
        parts = halves if method.draws == 2 else [slice(None)]
        return lambda: method(*map(losses, parts)).backward()

    return {
        "plain DDP": lambda: losses(slice(None)).sum().backward(),
        "MoDo": with_method(trimol.MoDo(params, objectives, gamma=1e-3)),
        "MoDo simultaneous": with_method(
            trimol.MoDo(params, objectives, gamma=1e-3, simultaneous=True)
        ),
        "MGDA": with_method(trimol.MGDA(params, objectives)),
        "UPGrad": with_method(trimol.UPGrad(params, objectives)),
        "MGDA, by products": with_method(trimol.MGDA(params, objectives, solver="products")),
    }


def work(rank: int, folder: str, world: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    where = f"file://{folder}/meeting{world}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    torch.manual_seed(0)
    layers = [nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, args.width), nn.ReLU()]
    bare = nn.Sequential(*layers, nn.Linear(args.width, args.objectives))
    sent, size = Sent(), sum(p.numel() for p in bare.parameters())
    model = DistributedDataParallel(bare)
    model.register_comm_hook(None, sent.hook)
    torch.manual_seed(rank)
    steps = contestants(model, torch.randn(args.samples, 64), args.objectives)
    rows = []
    for name, step in steps.items():
        taken: dict[str, list[float]] = {"plain DDP": [], name: []}
        for number in range(WARM + args.steps):
            if number == WARM:
                sent.forget()
            with counting(sent, 4 * size):
                taken[name].append(timed(bare, step))
            before = vars(sent).copy()
            taken["plain DDP"].append(timed(bare, steps["plain DDP"]))
            vars(sent).update(before)
        counts = {key: value / args.steps for key, value in vars(sent).items()}
        ours, plain = (statistics.median(taken[key][WARM:]) for key in (name, "plain DDP"))
        row = {"processes": world, "objectives": args.objectives, "parameters": size}
        counts["in collectives"] = counts.pop("seconds") / plain
        row |= {"contestant": name, **counts, "ratio": ours / plain, "load": os.getloadavg()[0]}
        rows.append(row)
    if rank == 0:
        Path(folder, f"rows{world}.json").write_text(json.dumps(rows))
    dist.destroy_process_group()


def timed(model: nn.Module, step: Step) -> float:
    model.zero_grad()
    dist.barrier()
    before = time.process_time()
    step()
    return time.process_time() - before


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--objectives", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=128, help="of each process")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument(
        "--json", nargs="?", const="-", help="one object a line, for machines; or a file to write"
    )
    return parser.parse_args()


def main() -> None:
    args = arguments()
    rows: list[dict[str, Any]] = []
    for world in args.processes:
        with tempfile.TemporaryDirectory() as folder:
            start_processes(work, (folder, world, args), nprocs=world, start_method="fork")
            rows += json.loads(Path(folder, f"rows{world}.json").read_text())
    if args.json == "-":
        print("\n".join(map(json.dumps, rows)))
        return
    if args.json:
        Path(args.json).write_text(json.dumps(_study(rows), indent=1) + "\n")
    print("| processes | | DDP's bytes | ours | gradients, calls | small, calls | time |")
    print("|---" * 7 + "|")
    for row in rows:
        cells = [row["processes"], row["contestant"], f"{row['own']:,.0f}", f"{row['other']:,.0f}"]
        cells += [f"{row[key]:.1f}" for key in ("large", "small")]
        print("| " + " | ".join(map(str, cells)) + f" | {row['ratio']:.2f} |")


def _study(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "study": "traffic",
        "rows": rows,
        "command": "python benchmarks/traffic.py --json results/traffic.json",
        "created": now(),
        "environment": environment(),
    }


if __name__ == "__main__":
    main()
