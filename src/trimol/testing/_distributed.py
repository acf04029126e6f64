"""Two processes, each with half of every batch, do what one process does with the whole."""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from trimol.testing._problems import Step, batch, network
from trimol.testing._row import Row

WORLD = 2
STEPS = 3
Trained = dict[str, Tensor]


def run(row: Row, *, trunk_only: bool, rank: int | None) -> Trained:
    """Train a little; ``rank`` None is one process on the joined batch."""
    net = network()
    method = row.new(net.trunk.parameters() if trunk_only else net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    model = net if rank is None else DistributedDataParallel(net)

    def losses(step: int) -> Step:
        parts = [batch(size=8, seed=10 * step + i) for i in range(method.draws)]
        if rank is not None:
            parts = [(x.chunk(WORLD)[rank], y.chunk(WORLD)[rank]) for x, y in parts]
        return Step.of(model(*part) for part in parts)

    for step in range(STEPS):
        optimizer.zero_grad()
        row.call(method, losses(step)).backward()
        optimizer.step()
        if row.after is not None:
            row.after(method, losses(step))
    assert method.info is not None
    values = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    return {"weights": method.weights, "params": values, "losses": method.info.losses}


def _worker(rank: int, rows: Mapping[str, Row], folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)
    trained = {
        f"{name}-{trunk_only}": run(row, trunk_only=trunk_only, rank=rank)
        for name, row in rows.items()
        for trunk_only in (False, True)
    }
    torch.save(trained, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def run_in_processes(rows: Mapping[str, Row], folder: Path) -> list[dict[str, Trained]]:
    """Train every row in two processes; what each rank got, by ``name-trunk_only``."""
    spawn(_worker, args=(dict(rows), str(folder)), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


def assert_two_processes_equal_the_joined_batch(
    ranks: list[dict[str, Trained]], name: str, row: Row
) -> None:
    """Both ranks hold the same bits, and those of one process on the joined batch to rounding."""
    for trunk_only in (False, True):
        one, two = (rank[f"{name}-{trunk_only}"] for rank in ranks)
        joined = run(row, trunk_only=trunk_only, rank=None)
        for key in joined:
            assert torch.equal(one[key], two[key]), f"{key} differs between the ranks"
            torch.testing.assert_close(one[key], joined[key], rtol=1e-6, atol=1e-9)
