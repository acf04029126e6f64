"""A step of MoDo where the graph is not one of plain operators, beside the plain step.

    python benchmarks/graphs.py                        # the table of docs/understand/cost.md
    python benchmarks/graphs.py --only lstm checkpointed --objectives 4

Recurrent layers, sparse embeddings, a loss of its own kind (CTC) and checkpointed blocks (for
compiled models see ``compiled.py``). Times are CPU times of one thread as multiples of
``sum(losses).backward()`` of the same model on the same samples. All are interleaved in random
order; the median of the rounds is shown. *Loop*: two Jacobians by single backwards, as
one would without trimol.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from networks import PooledEncoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import trimol

Losses = Callable[[Tensor], Tensor]


class Recurrent(nn.Module):
    """Two layers of an LSTM or a GRU, their output averaged over the sequence."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], objectives: int) -> None:
        super().__init__()
        self.layers = kind(64, 128, 2, batch_first=True)
        self.output = nn.Linear(128, objectives)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.output(self.layers(x)[0].mean(1))
        return result.square().mean(0)


class Recommender(nn.Module):
    """Bags of items, with sparse gradients, and a few layers on top."""

    def __init__(self, objectives: int) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(20_000, 32, mode="mean", sparse=True)
        self.top = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, objectives))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.top(self.items(x))
        return result.square().mean(0)


class Speech(nn.Module):
    """Frames to letters, with the CTC loss of as many groups of samples as objectives."""

    def __init__(self, objectives: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 30))
        self.objectives = objectives

    def forward(self, x: Tensor) -> Tensor:
        frames = self.layers(x).log_softmax(-1).transpose(0, 1)
        lengths = torch.full((len(x),), x.shape[1])
        targets = torch.arange(1, 11).repeat(len(x), 1)
        each = F.ctc_loss(frames, targets, lengths, torch.full_like(lengths, 10), reduction="none")
        return each.view(self.objectives, -1).mean(1)


class Blocks(nn.Module):
    """A transformer, its blocks checkpointed."""

    def __init__(self, objectives: int, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.trunk, self.output = PooledEncoder(width, layers), nn.Linear(width, objectives)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.trunk.encoder.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        result: Tensor = self.output(x.mean(1))
        return result.square().mean(0)


def sequences() -> Tensor:
    return torch.randn(32, 32, 64)


MODELS: dict[str, tuple[Callable[[int], nn.Module], Callable[[], Tensor]]] = {
    "lstm": (lambda m: Recurrent(nn.LSTM, m), sequences),
    "gru": (lambda m: Recurrent(nn.GRU, m), sequences),
    "embedding bag, sparse": (Recommender, lambda: torch.randint(20_000, (1024, 20))),
    "ctc": (Speech, sequences),
    "transformer, checkpointed": (Blocks, lambda: torch.randn(32, 32, 128)),
    "small transformer, checkpointed": (
        lambda m: Blocks(m, 64, 4),
        lambda: torch.randn(16, 32, 64),
    ),
}


class Problem:
    """A model, and the steps that are compared."""

    def __init__(self, name: str, objectives: int) -> None:
        torch.manual_seed(0)
        make, draw = MODELS[name]
        self.model, self.draw = make(objectives), draw
        self.params = list(self.model.parameters())
        self.losses: Losses = self.model
        self.method = trimol.MoDo(self.params, objectives=objectives)

    def plain(self, x: Tensor) -> None:
        self.losses(x).sum().backward()

    def halves(self, x: Tensor) -> None:
        one, two = x.chunk(2)
        (self.losses(one).sum() + self.losses(two).sum()).backward()

    def modo(self, x: Tensor) -> None:
        one, two = x.chunk(2)
        self.method(self.losses(one), self.losses(two)).backward()

    def loop(self, x: Tensor) -> None:
        first, second = (self.losses(part) for part in x.chunk(2))
        uniform = torch.full_like(second, 1 / len(second))
        rows = [self._row(loss) for losses in (first, second) for loss in losses.unbind()]
        jacobians = torch.stack(rows).view(2, len(first), -1)
        jacobians[0] @ (jacobians[1].T @ uniform)
        (uniform @ (first + second)).backward()

    def _row(self, loss: Tensor) -> Tensor:
        found = torch.autograd.grad(loss, self.params, retain_graph=True, materialize_grads=True)
        return torch.cat([g.to_dense().reshape(-1) for g in found])


CONTESTANTS: dict[str, Callable[[Problem, Tensor], None]] = {
    "plain": Problem.plain,
    "two halves": Problem.halves,
    "MoDo": Problem.modo,
    "loop": Problem.loop,
}


def measure(name: str, objectives: int, rounds: int) -> tuple[dict[str, float], str]:
    """Median times as multiples of the plain step's, and MoDo's route."""
    problem = Problem(name, objectives)
    order = random.Random(0)
    taken: dict[str, list[float]] = {each: [] for each in CONTESTANTS}
    names = ["MoDo", "two halves", "plain", "loop"]
    for number in range(rounds + 2):
        for each in names:
            x = problem.draw()
            problem.model.zero_grad()
            before = time.process_time()
            CONTESTANTS[each](problem, x)
            if number > 1:
                taken[each].append(time.process_time() - before)
        if number:
            order.shuffle(names)
    medians = {each: statistics.median(values) for each, values in taken.items()}
    ratios = {each: value / medians["plain"] for each, value in medians.items()}
    assert problem.method.info is not None
    return {"ms": 1e3 * medians["plain"], **ratios}, problem.method.info.route


def main() -> None:
    parser = argparse.ArgumentParser(description="MoDo as a multiple of the plain step.")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the models' names")
    parser.add_argument("--objectives", nargs="+", type=int, default=[4, 16])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | M | plain, ms | two halves | MoDo | loop | route |\n" + "|---" * 7 + "|")
    for name in MODELS:
        for objectives in args.objectives if any(part in name for part in args.only) else ():
            found, route = measure(name, objectives, args.rounds)
            cells = [f"{found[each]:.2f}" for each in ("two halves", "MoDo", "loop")]
            numbers = " | ".join([f"{found['ms']:.1f}", *cells])
            print(f"| {name} | {objectives} | {numbers} | `{route}` |", flush=True)


if __name__ == "__main__":
    main()
