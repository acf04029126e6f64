"""Two processes that share every batch do what one does with the whole of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pair import assert_as_one, join
from trimol.tasks import Batch, Data, Task
from trimol.training import assess, start, train

METHODS = ("static", "modo", "mgda", "moco")
BATCH = 10  # shared out as 5 + 5; the two draws of modo as 3 + 2, twice


class Curve(Task):
    """A trunk and two heads, in float64."""

    name = "curve"
    objectives = ("square", "cube")

    def model(self) -> nn.Module:
        return nn.ModuleDict(
            {"trunk": nn.Linear(1, 6), "one": nn.Linear(6, 1), "two": nn.Linear(6, 1)}
        ).double()

    def shared(self, model: nn.Module) -> Any:
        assert isinstance(model, nn.ModuleDict)
        return model["trunk"].parameters()

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        assert isinstance(model, nn.ModuleDict)
        (x,) = batch
        inside = model["trunk"](x).tanh()
        return [
            (model["one"](inside) - x**2).square().mean(),
            (model["two"](inside) - x**3).square().mean(),
        ]

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"mean": batch[0].mean()}

    def data(self) -> Data:
        x = torch.linspace(-1, 1, 301, dtype=torch.float64)[:, None]
        return Data(train=(x[::2],), test=(x[1::2] ** 2,))


def outcome(name: str) -> dict[str, Any]:
    run = train(start(Curve(), name, batch_size=BATCH), steps=5)
    values = torch.cat([p.detach().flatten() for p in run.model.parameters()])
    return {"params": values, "record": assess(run).record}


def work(rank: int, port: int, folder: str) -> None:
    join(rank, port)
    torch.save({name: outcome(name) for name in METHODS}, Path(folder) / f"{rank}.pt")
    assert dist.get_world_size() == 2
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    assert_as_one(work, outcome, METHODS, tmp_path)
