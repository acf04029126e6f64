"""Office-31 and scenes with narrower networks: a step in milliseconds, for studies of many runs.

    trimol run benchmarks/narrow.py:NarrowScenes --method upgrad

Data, losses and metrics are those of the tasks themselves.
"""

from typing import Any, ClassVar

from torch import nn

from trimol.paper._dense.models import Dense
from trimol.paper.tasks.office import Office31
from trimol.paper.tasks.scenes import Scenes
from trimol.tasks.multitask import MultiTask

NECK = 32
CHANNELS = 12
ROOMS = {
    "image_size": (16, 24),
    "train": 96,
    "validation": 32,
    "test": 64,
    "missing": 0.0,
    "holes": 0.0,
}


class NarrowOffice(Office31):
    """Office-31 on frozen features: a neck of 32 units, without normalisation and dropout."""

    def model(self) -> MultiTask:
        """A linear layer and ReLU for all domains; a linear head for each of them."""
        neck = nn.Sequential(nn.Linear(self.width, NECK), nn.ReLU())
        return MultiTask(neck, {name: nn.Linear(NECK, self.classes) for name in self.objectives})


class NarrowScenes(Scenes):
    """96 rooms of 16 × 24 pixels with all labels; three convolutions in place of five."""

    name: ClassVar[str] = "narrow-scenes"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**ROOMS, **options})

    def model(self) -> Dense:
        """12 channels at a quarter of the image's size; each head is a 1 × 1 convolution."""
        trunk = nn.Sequential(
            *(nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(CHANNELS, CHANNELS, 3, dilation=2, padding=2), nn.ReLU()),
        )
        outputs = {"segmentation": self.classes, "depth": 1, "normals": 3}
        heads = {name: nn.Conv2d(CHANNELS, outputs[name], 1) for name in self.objectives}
        return Dense(trunk, heads)
