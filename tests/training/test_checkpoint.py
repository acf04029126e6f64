"""Checkpoints: what is loaded goes on as what was saved, bit for bit."""

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol.tasks import Batch, Data, Task
from trimol.training import Run, RunError, start, train
from trimol.training._checkpoint import restore, state


class Noisy(Task):
    """Dropout, batch normalisation, Adam: everything that has a state."""

    name = "noisy"
    objectives = ("square", "absolute")

    def __init__(self, *, samples: int = 300) -> None:
        self.samples = samples

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

    def optimizer(self, params: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(params, lr=lr)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x, y = batch
        out = model(x)
        return torch.stack([F.mse_loss(out, y), F.l1_loss(out, y)])

    def data(self) -> Data:
        x = torch.linspace(-1, 1, 2 * self.samples).view(self.samples, 2)
        y = x.sum(1, keepdim=True)
        return Data(train=(x[::2], y[::2]), test=(x[1::2], y[1::2]))


def through_a_file(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def everything(run: Run) -> Tensor:
    numbers = [*run.model.state_dict().values(), run.method.weights]
    return torch.cat([tensor.double().flatten() for tensor in numbers])


@pytest.mark.parametrize("name", ["modo", "moco", "smg", "pcgrad", "rgw", "famo", "gradnorm"])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_goes_on_bit_for_bit(name: str, steps: int) -> None:
    run = train(start(Noisy(), name, batch_size=16), steps=steps)
    saved = through_a_file(state(run))
    train(run, steps=3)
    again = train(start(Noisy(), name, batch_size=16, seed=7), steps=2)  # elsewhere
    torch.rand(5)
    restore(again, saved)
    assert again.step == steps
    train(again, steps=3)
    assert torch.equal(everything(again), everything(run))
    assert again.samples == run.samples


def test_scaling_in_float16_is_saved() -> None:
    run = train(start(Noisy(), "static", precision="fp16"), steps=2)
    run.scaler.update(new_scale=1024.0)
    again = start(Noisy(), "static", precision="fp16")
    restore(again, through_a_file(state(run)))
    assert again.scaler.get_scale() == 1024.0


def test_a_checkpoint_of_other_data_is_refused() -> None:
    saved = state(start(Noisy(), "static"))
    with pytest.raises(
        ValueError, match="state was saved with size=150, this sampler has size=200"
    ):
        restore(start(Noisy(samples=400), "static"), saved)


def test_a_checkpoint_of_other_processes_is_refused() -> None:
    saved = state(start(Noisy(), "static"))
    saved["random"] *= 2
    with pytest.raises(RunError, match="saved by 2 processes, found 1: resume with as many"):
        restore(start(Noisy(), "static"), saved)
