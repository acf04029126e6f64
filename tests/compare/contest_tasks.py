"""A task for trials: two losses that pull a point apart, in no time."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from trimol.data import GrowingBatches, IndependentDraws
from trimol.tasks import Data, Task
from trimol.tasks.task import Goals, Settings


class Tug(Task):
    """A point between 1 and −1, plus noise in the data; ``test`` moves the test data alone."""

    name = "tug"
    objectives = ("right", "left")

    def __init__(self, *, test: float = 0.0, validation: bool = True) -> None:
        self.moved, self.validates = test, validation

    def model(self) -> nn.Module:
        return nn.Linear(1, 2, bias=False)

    def losses(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        (z,) = batch
        out = model(torch.ones_like(z))
        return torch.stack([(out - 1 - z).square().mean(), (out + 1 - z).square().mean()])

    def data(self) -> Data:
        z = torch.randn(60, 1, generator=torch.Generator().manual_seed(0)) / 4
        validation = (z[40:50],) if self.validates else None
        return Data(train=(z[:40],), test=(z[50:] + self.moved,), validation=validation)


class Judged(Tug):
    """The same, with a goal of its own."""

    name = "judged"
    goals: ClassVar[Goals] = {"right": {"near": "higher"}}

    def metrics(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Mapping[str, Tensor]:
        return {"near": -self.losses(model, batch).max()}


class Kink(Judged):
    """One loss times 17, and a metric that knows nothing of it: its least value is a kink."""

    name = "kink"
    goals: ClassVar[Goals] = {"right": {"worst": "lower"}}

    def losses(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return super().losses(model, batch) * torch.tensor([17.0, 1.0])

    def metrics(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Mapping[str, Tensor]:
        return {"worst": Tug.losses(self, model, batch).max()}

    def data(self) -> Data:
        z = torch.zeros(20, 1)
        return Data(train=(z,), test=(z,), validation=(z,))


class Below(Tug):
    """Losses that are all below zero."""

    name = "below"

    def losses(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return super().losses(model, batch) - 100


class Odd(Tug):
    """Settings that no method takes."""

    name = "odd"
    settings: ClassVar[Mapping[str, Settings]] = {
        "static": Settings(lr=0.1, method={"every": -1}),
    }


class Misnamed(Tug):
    """A goal that is no metric."""

    name = "misnamed"
    goals: ClassVar[Goals] = {"right": {"accuracy": "higher"}}


class Sampled(Tug):
    """No validation data, and samples that are not drawn as usual."""

    name = "sampled"

    def __init__(self) -> None:
        super().__init__(validation=False)

    def sampler(self, data: Data, batch_size: int, *, growth: float, seed: int) -> IndependentDraws:
        return GrowingBatches(len(data.train[0]), batch_size, growth=growth, seed=seed + 1)
