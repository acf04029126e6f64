"""Two processes, each with half of every batch, do what one process does with the whole."""

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from problems import batch, network
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import trimol

WORLD = 2
STEPS = 3


class Losses(nn.Module):
    """The losses as a module's output: what DistributedDataParallel wants to wrap."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x, y):
        return self.net.losses((x, y))


def run(name: str, trunk_only: bool, rank: int | None) -> dict[str, torch.Tensor]:
    """Train a little; ``rank`` None is one process on the joined batch."""
    losses = Losses()
    params = losses.net.trunk.parameters() if trunk_only else losses.parameters()
    settings = {"gamma": 0.1} if name == "modo" else {}
    method = trimol.methods.get(name)(params, 3, **settings)
    optimizer = torch.optim.SGD(losses.parameters(), lr=0.05)
    model = losses if rank is None else DistributedDataParallel(losses)
    for step in range(STEPS):
        parts = [batch(size=8, seed=10 * step + i) for i in range(method.draws)]
        if rank is not None:
            parts = [(x.chunk(WORLD)[rank], y.chunk(WORLD)[rank]) for x, y in parts]
        optimizer.zero_grad()
        method(*[model(*part) for part in parts]).backward()
        optimizer.step()
    values = torch.cat([p.detach().reshape(-1) for p in losses.parameters()])
    return {"weights": method.weights, "params": values, "losses": method.info.losses}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD
    )
    cases = {
        f"{name}-{trunk}": run(name, trunk, rank)
        for name in trimol.methods.names()
        for trunk in (False, True)
    }
    torch.save(cases, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    spawn(partial(worker), args=(str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.mark.parametrize("trunk_only", [False, True])
@pytest.mark.parametrize("name", trimol.methods.names())
def test_two_processes_equal_the_joined_batch(ranks, name, trunk_only):
    one, two = (cases[f"{name}-{trunk_only}"] for cases in ranks)
    joined = run(name, trunk_only, None)
    for key in joined:
        assert torch.equal(one[key], two[key]), f"{key} differs between the ranks"
        torch.testing.assert_close(one[key], joined[key], rtol=1e-6, atol=1e-9)
