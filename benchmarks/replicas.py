"""Many runs at once: `trimol.training.Replicas` beside a loop of ordinary runs.

    python benchmarks/replicas.py

Each case trains R seeds of one task, a step of all at a time, with each of three methods. Times are
CPU seconds of one thread, the median over rounds in which both ways take turns, so that other work
on the machine matters little. No data is needed: images are noise of the size of the real ones.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol.tasks import Batch, Data, Task
from trimol.training import start, train
from trimol.training.replicas import Replicas

METHODS = ("static", "mgda", "modo")
# Name → pixels, hidden width, replicas.
CASES = {
    "2 k parameters, 10 seeds": (64, 32, 10),
    "5 k parameters, 100 seeds": (64, 64, 100),
    "407 k parameters, 10 seeds": (784, 512, 10),
}


class Images(Task):
    """A classifier with the paper's three MNIST losses, on noise."""

    name = "images"
    objectives = ("cross-entropy", "MSE", "Huber")

    def __init__(self, pixels: int, hidden: int) -> None:
        self.pixels, self.hidden = pixels, hidden
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(2000, pixels, generator=generator)
        labels = torch.randint(10, (2000,), generator=generator)
        self.samples = Data(train=(images, labels), test=(images[:10], labels[:10]))

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self.pixels, self.hidden), nn.Linear(self.hidden, 10))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        logits = model(images)
        chances = logits.softmax(1)
        truth = F.one_hot(labels, 10).to(chances)
        square, huber = F.mse_loss(chances, truth), F.huber_loss(chances, truth, delta=0.1)
        return torch.stack([F.cross_entropy(logits, labels), square, huber])

    def data(self) -> Data:
        return self.samples


def cpu_seconds(step: Callable[[], object]) -> float:
    begun = time.process_time()
    step()
    return time.process_time() - begun


def compare(case: str, method: str, rounds: int) -> dict[str, object]:
    pixels, hidden, count = CASES[case]
    task, seeds = Images(pixels, hidden), list(range(count))
    replicas = Replicas(task, method, seeds=seeds, lr=0.01)
    runs = [start(task, method, seed=seed, lr=0.01) for seed in seeds]
    ways = {
        "together": lambda: replicas.train(1),
        "one by one": lambda: [train(run, 1) for run in runs],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, step in ways.items():
            seconds = cpu_seconds(step)
            if number >= 2:  # the first rounds warm up
                times[name].append(seconds)
    milliseconds = {name: 1e3 * statistics.median(found) for name, found in times.items()}
    return {
        "case": case,
        "method": method,
        **{f"{name}, ms a step": round(value, 2) for name, value in milliseconds.items()},
        "ratio": round(milliseconds["one by one"] / milliseconds["together"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for case in chosen.cases:
        for method in chosen.methods:
            row = compare(case, method, chosen.rounds)
            if chosen.json:
                print(json.dumps(row), flush=True)
            else:
                print(" · ".join(f"{key} {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
