"""Every mode of DistributedDataParallel gives what one process gives on the joined batch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trimol
from pair import meet, started

WORLD, STEPS, M = 2, 3, 4
Model = nn.Module
Results = dict[str, Any]

MODES: dict[str, dict[str, Any]] = {
    "static": {"static_graph": True},
    "static, bucket views": {"static_graph": True, "gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
    "unused, bucket views": {"find_unused_parameters": True, "gradient_as_bucket_view": True},
}
METHODS: dict[str, Any] = {
    "static": lambda params: trimol.Static(params, M, weights=[0.1, 0.2, 0.3, 0.4]),
    "famo": lambda params: trimol.FAMO(params, M),
    "modo": lambda params: trimol.MoDo(params, M, gamma=0.5),
    "modo, simultaneous": lambda params: trimol.MoDo(params, M, gamma=0.5, simultaneous=True),
    "mgda": lambda params: trimol.MGDA(params, M),
    "mgda, every second": lambda params: trimol.MGDA(params, M, every=2, heads="weighted"),
    "moco": lambda params: trimol.MoCo(params, M),
    "upgrad": lambda params: trimol.UPGrad(params, M, max_norm=0.1),
}


class Net(nn.Module):
    """A trunk, heads, a layer that nobody uses, and outputs that are not all tensors."""

    def __init__(self, *, spare: bool) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.heads = nn.Linear(8, 8)
        self.branch = nn.Linear(8, 8) if spare else None
        self.spare = nn.Linear(8, 8) if spare else None

    def forward(self, x: Tensor, branch: bool) -> dict[str, Any]:
        shared = self.trunk(x)
        if branch and self.branch is not None:
            shared = shared + self.branch(shared)
        return {"number": 3, "x": x, "out": self.heads(shared), "word": "y", "shared": shared}


def losses(model: Model, x: Tensor, branch: bool = False) -> Tensor:
    found = model(x, branch)
    assert (found["number"], found["word"]) == (3, "y")
    parts = (found["out"] + found["shared"]).chunk(M, 1)
    return torch.stack([(m + 1) * (y.sin() - 0.3 * m).square().mean() for m, y in enumerate(parts)])


def shares(x: Tensor, rank: int | None) -> Iterator[tuple[int, Tensor]]:
    """The parts of a batch, of one process or of all, with their ranks."""
    for each, part in enumerate(x.chunk(WORLD)):
        if rank in (None, each):
            yield each, part


def train(method_name: str, mode: str, case: str, rank: int | None) -> Results:
    """A few steps; ``rank`` None is one process on the joined batch."""
    torch.manual_seed(0)
    net = Net(spare=case == "spare").double()
    model: Model = net
    if rank is not None:
        model = DistributedDataParallel(net, **MODES[mode])
    given = net.trunk.parameters() if case == "heads" else net.parameters()
    method = METHODS[method_name](given)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(1)
    results: Results = {"routes": [], "weights": [], "grads": []}

    def sample() -> Tensor:
        return torch.randn(8, 4, generator=data, dtype=torch.float64)

    def own_losses(x: Tensor) -> Tensor:
        # One process more than the other uses a branch: only with parameters that may be unused.
        each = [losses(model, part, who == 1) for who, part in shares(x, rank)]
        return torch.stack(each).mean(0)

    for step in range(STEPS):
        optimizer.zero_grad()
        pieces = 2 if case == "accumulate" and step else 1
        for piece in range(pieces):
            waits: AbstractContextManager[Any] = nullcontext()
            if isinstance(model, DistributedDataParallel) and piece < pieces - 1:
                waits = model.no_sync()
            with waits:
                if case == "micro-batches":
                    drawn = [[sample() for _ in range(method.draws)] for _ in range(2)]
                    scalar = method.accumulate(own_losses, drawn)
                else:
                    scalar = method(*[own_losses(sample()) for _ in range(method.draws)])
                scalar.backward()
        assert method.info is not None
        results["routes"].append(method.info.route)
        results["weights"].append(method.weights)
        results["grads"].append([p.grad.clone() for p in net.parameters() if p.grad is not None])
        optimizer.step()
    results["params"] = [p.detach() for p in net.parameters()]
    return results


SOME = ("static", "modo", "mgda")
CASES = [
    *[(name, mode, "heads") for name in METHODS for mode in ("static", "unused")],
    *[(name, mode, "all") for name in ("modo", "mgda", "moco") for mode in ("static", "unused")],
    *[(name, mode, "heads") for name in SOME for mode in MODES if "views" in mode],
    *[(name, mode, "accumulate") for name in SOME for mode in ("static", "unused")],
    *[(name, mode, "micro-batches") for name in SOME for mode in ("static", "unused")],
    *[(name, "unused", "spare") for name in ("modo, simultaneous", *SOME)],
]


def work(rank: int, folder: str) -> None:
    meet(rank, WORLD, folder)
    found = {}
    for case in CASES:
        try:
            found[case] = train(*case, rank)
        except RuntimeError as error:
            found[case] = {"error": str(error)}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Results]]:
    folder = tmp_path_factory.mktemp("ddp")
    started(work, str(folder), processes=WORLD)
    return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.parametrize("case", CASES, ids=" · ".join)
def test_two_processes_equal_one(found: list[dict[Any, Results]], case: tuple[str, ...]) -> None:
    name, mode, kind = case
    alone = train(name, mode, kind, None)
    for rank in range(WORLD):
        got = found[rank][case]
        assert "error" not in got, got["error"]
        assert got["routes"] == alone["routes"]
        assert "double-vjp" not in got["routes"]
        for key in ("weights", "grads", "params"):
            torch.testing.assert_close(got[key], alone[key], rtol=1e-11, atol=1e-13)
