"""Counted objectives on two processes, of which one often lacks labels: as one process with all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from problems import TwoHeads, batch, network
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trimol
from pair import meet, started
from trimol.tasks import masked_mean

WORLD, STEPS, SIZE = 2, 8, 6
METHODS: dict[str, Any] = {
    "static": trimol.Static,
    "mgda": trimol.MGDA,
    "modo": trimol.MoDo,
    "famo": trimol.FAMO,
}
CASES = [(name, how) for name in METHODS for how in ("none", "ddp", "nan")]


class Labelled(nn.Module):
    """A network whose forward gives the losses of what has a label, and how many there are."""

    def __init__(self, net: TwoHeads, mean: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.mean = net, mean

    def forward(self, x: Tensor, y: Tensor, known: Tensor) -> list[Tensor]:
        shared = self.net.trunk(x)
        errors = [(head(shared)[:, 0] - y[:, m]).square() for m, head in enumerate(self.net.heads)]
        return [self.mean(each, known[:, m]) for m, each in enumerate(errors)]


def labels(step: int, draw: int) -> tuple[Tensor, Tensor, Tensor]:
    """A batch and its labels: step 2 lacks "b" altogether, step 4 has none in its second half."""
    x, y = batch(size=SIZE, seed=10 * step + draw)
    known = torch.rand(SIZE, 3, generator=torch.Generator().manual_seed(99 * step + draw)) < 0.5
    known[:, 0] = True
    known[0] = True
    if step == 2:
        known[:, 1] = False
    if step == 4:
        known[SIZE // 2 :] = False
    return x, y, known


def trained(name: str, how: str, rank: int | None) -> dict[str, Tensor]:
    net = network()
    model: nn.Module = Labelled(net, _divided if how == "nan" else masked_mean)
    if rank is not None and how != "none":
        model = DistributedDataParallel(model)
    own = {"gamma": 0.1} if name == "modo" else {}
    method = METHODS[name](net.trunk.parameters(), ["a", "b", "c"], **own)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(STEPS):
        vectors, counts = [], []
        for draw in range(method.draws):
            parts = labels(step, draw)
            if rank is not None:
                parts = tuple(part.chunk(WORLD)[rank] for part in parts)
            losses, known = model(*parts), parts[2].sum(0)
            if how == "none":
                losses = [f if n else None for f, n in zip(losses, known, strict=True)]
            vectors.append(losses)
            counts.append(known)
        optimizer.zero_grad()
        method(*vectors, counts=torch.stack(counts)).backward()
        if rank is not None and how == "none":
            _average(net)
        optimizer.step()
    params = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    assert method.info.kept > 0
    return {
        "params": params,
        "weights": method.weights,
        "kept": method.kept,
        "losses": method.info.losses,
    }


def _divided(losses: Tensor, known: Tensor) -> Tensor:
    """A mean whose value and gradient are NaN where nothing is known."""
    return (losses * known).sum() / known.sum()


def _average(net: nn.Module) -> None:
    """What `DistributedDataParallel` does, of what this process did not reach, too."""
    for p in net.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
        p.grad /= WORLD


def said(rank: int, case: str) -> str:
    """What a call with losses that do not fit together says; "" where it is a step."""
    x = torch.ones(2, requires_grad=True)
    modo, mgda = trimol.MoDo([x], ["a", "b"]), trimol.MGDA([x], ["a", "b"])
    try:
        if case == "none on one":
            mgda([x[0] ** 2, x[1] ** 2 if rank else None])
        elif case == "zero on one":
            mgda([x[0] ** 2, x[1] ** 2 if rank else torch.tensor(0.0)])
        elif case == "counts on one":
            mgda(x**2, counts=[1, 2] if rank else None)
        elif case == "none on all":
            mgda([x[0] ** 2, None])
            return f"kept {mgda.info.kept}, absent {mgda.info.absent}"
        elif case in ("static_graph", "find_unused_parameters"):
            net = network()
            model = DistributedDataParallel(Labelled(net, masked_mean), **{case: True})
            losses = model(*labels(0, 0)) if rank else [None] * 3
            trimol.MGDA(net.parameters(), 3)(losses, counts=[rank] * 3)
        elif case == "no representation":
            mgdaub = trimol.MGDAUB([x], ["a", "b"])
            z = 2 * x
            losses = [z[0] ** 2, 2 * z[1]] if rank else [None, None]
            mgdaub(losses, counts=[rank, rank], representation=z)
            return f"weights {[round(weight, 6) for weight in mgdaub.weights.tolist()]}"
        elif case == "a list beside a vector":
            mgda(x**2 if rank else [x[0] ** 2, None], counts=[1, rank])
            return f"kept {mgda.info.kept}"
        elif case == "one short draw":
            modo(x**2, x**4 if rank else None)
            return f"kept {modo.info.kept}, updated {modo.info.updated}"
    except ValueError as error:
        return str(error)
    return ""


ON_SOME = (
    "counts must be given on every process (how many samples each loss is the mean of), found "
    "objective 'b' absent on some processes only"
)
PASSES = (
    "losses must pass DistributedDataParallel's forward on every process, found some on which none "
    "does: give zeros that do (trimol.tasks.masked_mean), and counts"
)
TOLD = {
    "static_graph": PASSES,
    "find_unused_parameters": PASSES,
    "no representation": "weights [0.2, 0.8]",
    "a list beside a vector": "kept 0",
    "none on one": ON_SOME,
    "zero on one": ON_SOME,
    "counts on one": "counts must be given on every process or on none, found both",
    "none on all": "kept 1, absent ('b',)",
    "one short draw": "kept 1, updated False",
}


def work(rank: int, folder: str) -> None:
    meet(rank, WORLD, folder)
    found = {f"{name} {how}": trained(name, how, rank) for name, how in CASES}
    told = {case: said(rank, case) for case in TOLD}
    torch.save({"found": found, "told": told}, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    started(work, str(folder), processes=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_two_processes_equal_one_on_the_joined_batch(
    ranks: list[dict[str, Any]], name: str, how: str
) -> None:
    alone = trained(name, how, None)
    one, two = (rank["found"][f"{name} {how}"] for rank in ranks)
    for key, value in alone.items():
        torch.testing.assert_close(one[key], two[key], rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(one[key], value, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("case", TOLD)
def test_processes_decide_alike(ranks: list[dict[str, Any]], case: str) -> None:
    assert [rank["told"][case] for rank in ranks] == [TOLD[case]] * WORLD
