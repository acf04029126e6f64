"""What measuring on full data costs, in plain epochs per objective.

    python benchmarks/measuring.py                     # the table of docs/howto/measure.md
    python benchmarks/measuring.py --samples 12000 --rounds 3

The network of the paper's MNIST experiment (0.4 M parameters, three losses) on images of its shape.
A plain epoch is a forward, ``sum(losses).backward()`` and a step of SGD on every batch; measuring
needs a forward and M backwards. The clock is the CPU time of one thread, contestants are
interleaved, and the median of the rounds is shown. Peak memory, beyond the data, is read in a fresh
process each.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol.errors import estimate, measure

Batch = tuple[Tensor, Tensor]
OBJECTIVES = 3


class Problem:
    """The network and its batches."""

    def __init__(self, samples: int, batch_size: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(784, 512), nn.Linear(512, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        x, y = torch.rand(samples, 784).mul_(2), torch.randint(10, (samples,))
        self.batches = list(zip(x.split(batch_size), y.split(batch_size), strict=True))

    def losses(self, batch: Batch) -> Tensor:
        x, y = batch
        logits = self.model(x)
        shares, target = logits.softmax(1), F.one_hot(y, 10).to(logits.dtype)
        fit = F.mse_loss(shares, target)
        return torch.stack(
            [F.cross_entropy(logits, y), fit, F.huber_loss(shares, target, delta=0.1)]
        )


def plain(p: Problem) -> None:
    for batch in p.batches:
        p.losses(batch).sum().backward()
        p.optimizer.step()
        p.optimizer.zero_grad()


def full(p: Problem) -> None:
    measure(p.losses, p.model.parameters(), train=p.batches, weights=[1 / 3] * 3)


def sampled(p: Problem) -> None:
    estimate(p.losses, p.model.parameters(), train=p.batches, weights=[1 / 3] * 3, batches=32)


CONTESTANTS: dict[str, Callable[[Problem], None]] = {
    "plain epoch": plain,
    "measure": full,
    "estimate, 32 batches": sampled,
}


def times(samples: int, batch_size: int, rounds: int) -> dict[str, float]:
    """Median CPU seconds of each contestant, after one round that does not count."""
    p = Problem(samples, batch_size)
    taken: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for number in range(rounds + 1):
        for name, run in CONTESTANTS.items():
            before = time.process_time()
            run(p)
            if number:
                taken[name].append(time.process_time() - before)
    return {name: statistics.median(values) for name, values in taken.items()}


def _peak(name: str, samples: int, batch_size: int, results: Connection) -> None:
    torch.set_num_threads(1)
    p = Problem(samples, batch_size)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _resident("VmRSS")
    CONTESTANTS[name](p)
    results.send((_resident("VmHWM") - before) / 1024)


def _resident(field: str) -> int:
    """Kilobytes, as Linux tells them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def peak(name: str, samples: int, batch_size: int) -> float:
    """Megabytes that a contestant takes at most, beyond the network and its data."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(name, samples, batch_size, sender))
    process.start()
    found = float(receiver.recv())
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of measuring in plain epochs.")
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| batch | contestant | CPU s | plain epochs per objective | peak MB |")
    print("|---|---|---|---|---|")
    for size in args.batch_sizes:
        found = times(args.samples, size, args.rounds)
        for name, seconds in found.items():
            epochs = seconds / found["plain epoch"] / OBJECTIVES
            memory = peak(name, args.samples, size)
            print(f"| {size} | {name} | {seconds:.2f} | {epochs:.2f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
