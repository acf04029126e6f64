"""The networks that the benchmarks train: a trunk, and M regression losses on top of it.

``columns``: one output layer with M columns and one loss per column, so that the network itself
hardly grows with M. ``heads``: M separate output layers, the multi-task shape, in which already the
plain step makes M times the operator calls. ``vector``: as ``columns``, with all losses computed as
one tensor.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = Literal["columns", "heads", "vector"]


class PooledEncoder(nn.Module):
    """A transformer encoder, its output averaged over the sequence."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.encoder(x)
        return output.mean(1)


def _mlp() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(256, 512), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers)


def _wide_mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers)


def _cnn() -> nn.Module:
    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(3, 32, 1), *block(32, 64, 2), *block(64, 64, 1), *block(64, 128, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Recurrent(nn.Module):
    """A layer of an LSTM or a GRU, its output averaged over the sequence."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], inputs: int, width: int) -> None:
        super().__init__()
        self.layer = kind(inputs, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)[0]
        return output.mean(1)


def _small_mlp() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(64, 256), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*layers)


def _small_cnn() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]

    layers = [*block(1, 8), *block(8, 16), nn.Flatten(), nn.Linear(16 * 49, 64), nn.ReLU()]
    return nn.Sequential(*layers)


# Name → trunk, its output width, the shape of one input, samples per step.
Trunks = dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...], int]]
TRUNKS: Trunks = {
    "mlp": (_mlp, 512, (256,), 512),
    "cnn": (_cnn, 128, (3, 32, 32), 64),
    "transformer": (lambda: PooledEncoder(128, 3), 128, (32, 128), 64),
}
# Layers with more inputs than a step has samples.
WIDE: Trunks = {
    f"wide mlp, {samples} samples": (_wide_mlp, 1024, (1024,), samples) for samples in (16, 64, 256)
}
# The same of networks so small that much of a step goes into calling operators.
SMALL: Trunks = {
    "small mlp": (_small_mlp, 256, (64,), 128),
    "small cnn": (_small_cnn, 64, (1, 28, 28), 32),
    "small transformer": (lambda: PooledEncoder(64, 2), 64, (16, 64), 32),
    "small lstm": (lambda: Recurrent(nn.LSTM, 32, 64), 64, (16, 32), 32),
    "small gru": (lambda: Recurrent(nn.GRU, 32, 64), 64, (16, 32), 32),
}


@dataclass
class InHalves(ABC):
    """A network, its data, and its M losses on any part of the data."""

    model: nn.Module
    x: Tensor

    @property
    def params(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    @abstractmethod
    def losses(self, part: slice = slice(None)) -> Tensor: ...

    def halves(self) -> tuple[Tensor, Tensor]:
        middle = len(self.x) // 2
        return self.losses(slice(middle)), self.losses(slice(middle, None))

    def clear(self) -> None:
        for p in self.params:
            p.grad = None


@dataclass
class Problem(InHalves):
    """A trunk with an output or heads, its data, and its M losses."""

    model: nn.ModuleDict
    y: Tensor
    shape: Shape = "columns"

    def losses(self, part: slice = slice(None)) -> Tensor:
        features = self.model["trunk"](self.x[part])
        targets = self.y[part]
        if self.shape == "vector":
            found: Tensor = (self.model["output"](features) - targets).square().mean(0)
            return found
        if "output" in self.model:
            columns = self.model["output"](features).unbind(1)
        else:
            columns = [head(features).squeeze(1) for head in self.model["heads"]]  # type: ignore[attr-defined]
        return torch.stack([F.mse_loss(c, targets[:, m]) for m, c in enumerate(columns)])

    def halves_at_once(self) -> tuple[Tensor, Tensor]:
        """As `halves`, of one forward pass; for a trunk with an output."""
        each = (self.model["output"](self.model["trunk"](self.x)) - self.y).square()
        middle = len(each) // 2
        return each[:middle].mean(0), each[middle:].mean(0)


def problem(name: str, objectives: int, shape: Shape) -> Problem:
    torch.manual_seed(0)
    make, width, inputs, samples = (TRUNKS | WIDE | SMALL)[name]
    model = nn.ModuleDict({"trunk": make()})
    if shape == "heads":
        model["heads"] = nn.ModuleList(nn.Linear(width, 1) for _ in range(objectives))
    else:
        model["output"] = nn.Linear(width, objectives)
    return Problem(model, torch.randn(samples, *inputs), torch.randn(samples, objectives), shape)
