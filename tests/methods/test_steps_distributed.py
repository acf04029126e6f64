"""The metric and the guard under DDP and FSDP2: two processes do what one does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import trimol
from pair import meet, started

STEPS, M, WORLD = 4, 3, 2
SETTINGS = ["ddp"]
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
    SETTINGS += ["fsdp", "fsdp, all given"]  # over gloo, which older releases do not
CASES = [
    ("static", {"guard": True}),
    ("static", {"guard": True, "heads": "weighted"}),
    ("mgda", {}),
    ("mgda", {"chunk": 1}),
    ("upgrad", {"guard": True, "metric": "gradient"}),
    ("modo", {"gamma": 0.5}),
    ("modo", {"gamma": 0.5, "guard": True}),
]


class Net(nn.Module):
    """A trunk of odd sizes, and a head for all objectives."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6))
        self.head = nn.Linear(6, M)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))


def trained(setting: str, case: int, optimizer: str, rank: int | None) -> list[Tensor]:
    """Parameters after some steps; ``rank`` None is one process on the joined batch."""
    torch.manual_seed(0)
    net = Net().double()
    model: Any = net
    if rank is not None and setting == "ddp":
        model = DistributedDataParallel(net)
    elif rank is not None:
        fully_shard(net.trunk)
        model = fully_shard(net)
    kinds = {
        "adam": lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    }
    own = kinds[optimizer](net.parameters())
    name, options = CASES[case]
    given = net.parameters() if "all given" in setting else net.trunk.parameters()
    method = trimol.methods.get(name)(given, M, optimizer=own, **options)
    for number in range(STEPS):
        vectors = []
        for draw in range(method.draws):
            data = torch.Generator().manual_seed(10 * number + draw)
            x = torch.randn(8, 5, generator=data, dtype=torch.float64)
            y = 2 * torch.randn(8, M, generator=data, dtype=torch.float64)
            if rank is not None:
                x, y = x.chunk(WORLD)[rank], y.chunk(WORLD)[rank]
            vectors.append((model(x) - y).square().mean(0))
        own.zero_grad()
        method(*vectors).backward()
        own.step()
        assert method.info.guarded in ("", "free", "changed")
    return [whole(p) for p in net.parameters()]


def whole(p: Tensor) -> Tensor:
    found = p.detach()
    return found.full_tensor() if isinstance(found, DTensor) else found.clone()


def work(rank: int, folder: str) -> None:
    meet(rank, WORLD, folder)
    found = {
        (setting, case, optimizer): trained(setting, case, optimizer, rank)
        for setting in SETTINGS
        for case in range(len(CASES))
        for optimizer in ("adam", "momentum")
    }
    torch.save(found, Path(folder) / f"{rank}.pt")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, int, str], Any]]:
    folder = tmp_path_factory.mktemp("two")
    started(work, str(folder), processes=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("setting", SETTINGS)
def test_two_processes_do_what_one_does(two, setting, case, optimizer):
    first, second = (found[setting, case, optimizer] for found in two)
    for a, b, c in zip(first, second, trained(setting, case, optimizer, None), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-9, atol=1e-11)
