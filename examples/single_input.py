"""A single-input task to copy: one image, several labels, some of which are missing.

    trimol run examples/single_input.py --method modo --steps 300

Handwritten digits: which digit it is, and where the ink's middle is. Of the first label every
second is missing, of the other none. `Digit(only="place")` trains one objective alone.
"""

from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol.tasks import Data, MultiTask, SingleInput
from trimol.tasks.task import Better


class Digit(SingleInput):
    """What a digit is, and where on its 8×8 pixels it sits."""

    name = "digit"
    objectives = ("kind", "place")
    goals: Mapping[str, Mapping[str, Better]] = {
        "kind": {"accuracy": "higher"},
        "place": {"distance": "lower"},
    }

    def model(self) -> MultiTask:
        """A trunk, and a head for each of the objectives that are trained."""
        heads = {"kind": nn.Linear(64, 10), "place": nn.Linear(64, 2)}
        trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        return MultiTask(trunk, {name: heads[name] for name in self.objectives})

    def loss(self, objective: str, output: Tensor, y: Tensor) -> Tensor:
        """One number for each image: the task leaves out those without a label."""
        if objective == "kind":
            return F.cross_entropy(output, y, reduction="none")
        return (output - y).square().sum(1)

    def scores(self, objective: str, output: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The metrics that the goals name, one number for each image."""
        if objective == "kind":
            return {"accuracy": output.argmax(1) == y}
        return {"distance": (output - y).norm(dim=1)}

    def data(self) -> Data:
        """A missing class is −1, a missing number would be NaN."""
        pixels, labels = load_digits(return_X_y=True)
        x = torch.tensor(pixels / 16).float()
        known = {"kind": torch.tensor(labels), "place": _middle(x.view(-1, 8, 8))}
        known["kind"][:1000:2] = -1  # of the training images alone
        every = (x, *(known[name] for name in self.objectives))
        train, validation, test = zip(*(t.split([1000, 397, 400]) for t in every), strict=True)
        return Data(train=train, validation=validation, test=test)

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam instead of plain SGD."""
        return Adam(params, lr=lr)


def _middle(images: Tensor) -> Tensor:
    """Where the ink's middle is, in pixels from the image's."""
    along = torch.arange(8) - 3.5
    ink = images.sum((1, 2))
    return torch.stack([(images.sum(1) @ along) / ink, (images.sum(2) @ along) / ink], 1)
