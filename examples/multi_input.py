"""A multi-input task to copy: one data set for each objective, a trunk that all share.

    trimol run examples/multi_input.py --method modo --steps 300 --batch-size 16

Three sets of handwritten digits: as they were scanned, as negatives, and turned by a quarter. Each
has its own images and its own number of them. `Sheets(only="turned")` trains one set alone.
"""

from collections.abc import Iterable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol.tasks import Data, MultiInput, MultiTask, concatenated

# Which of the 1797 digits a set has. A set that is shorter begins again earlier.
IMAGES = {"scan": range(0, 900), "negative": range(900, 1200), "turned": range(1200, 1797)}
CHANGES = {"scan": lambda x: x, "negative": lambda x: 1 - x, "turned": lambda x: x.rot90(1, (1, 2))}


class Sheets(MultiInput):
    """Digits from three sheets: a class for each image, a head for each sheet."""

    name = "sheets"
    objectives = ("scan", "negative", "turned")

    def model(self) -> MultiTask:
        """A trunk, and a head for each of the objectives that are trained."""
        trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        return MultiTask(trunk, {name: nn.Linear(64, 10) for name in self.objectives})

    def data(self) -> Data:
        """Of every five images of a set one for validation, one for the test."""
        sheets = [_sheet(name) for name in self.objectives]

        def part(*rests: int) -> tuple[Tensor, ...]:
            picked = [torch.isin(torch.arange(len(y)) % 5, torch.tensor(rests)) for _, y in sheets]
            return concatenated([(x[p], y[p]) for (x, y), p in zip(sheets, picked, strict=True)])

        return Data(train=part(0, 1, 2), validation=part(3), test=part(4))

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam instead of plain SGD."""
        return Adam(params, lr=lr)


def _sheet(name: str) -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    own = list(IMAGES[name])
    images = torch.tensor(pixels[own] / 16).float().view(-1, 8, 8)
    return CHANGES[name](images).flatten(1), torch.tensor(labels[own])
