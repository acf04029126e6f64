"""Digits: 1797 real 8×8 images, and three losses that want different things of one classifier."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import torch
from torch import nn

from trimol._checks import whole_number
from trimol._extras import require
from trimol._failures import BadValue
from trimol.tasks._classifier import CLASSES, Classifier, parts
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings

IMAGES = 1797
PIXELS = 64
BRIGHTEST = 16


class Digits(Classifier):
    """Handwritten digits (scikit-learn's, no download) with the paper's three MNIST losses.

    The step sizes in `settings` were chosen for each method on 287 validation images held out of
    the training images (``validation=287``), with one seed: 500 steps of 64 samples (as many
    samples for SMG), step sizes 0.3, 1, 3, …, 100, and on by factors of about 3 where the best was
    the first or the last. The best has the least mean of the logarithms of the three validation
    losses. The methods' own hyper-parameters are their defaults, but for γ = 1 of MoDo, the paper's
    on MNIST: a smaller γ (0.01 at step size 3) has lower validation losses.

    Args:
        hidden: Width of the one hidden layer.
        test: How many images to hold out.
        validation: How many more to hold out, to choose settings on.
        seed: Names the split into training, validation and test images, the same for every run:
            what differs between seeds of a run is then not the split. None: each run splits by its
            own seed.

    Example:
        >>> task = Digits()
        >>> [len(labels) for _, labels in (task.data().train, task.data().test)]
        [1437, 360]
        >>> task.losses(task.model(), task.data().test).shape
        torch.Size([3])
    """

    name: ClassVar[str] = "digits"
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "digits")

    def __init__(
        self, *, hidden: int = 64, test: int = 360, validation: int = 0, seed: int | None = 0
    ) -> None:
        self.hidden = whole_number("hidden", hidden, least=1)
        self.test = whole_number("test", test, least=1)
        self.validation = whole_number("validation", validation, least=0)
        self.seed = seed
        if test + validation >= IMAGES:
            raise BadValue(
                f"test + validation must be below {IMAGES}, the number of images, found "
                f"{test + validation}"
            )

    def model(self) -> nn.Module:
        """A network with one hidden layer."""
        return nn.Sequential(
            nn.Linear(PIXELS, self.hidden), nn.ReLU(), nn.Linear(self.hidden, CLASSES)
        )

    @cached_property
    def _samples(self) -> Batch:
        """The images, with pixels in [0, 1], and their labels."""
        sklearn = require("sklearn.datasets", extra="studies", purpose="the task digits")
        images, labels = map(torch.from_numpy, sklearn.load_digits(return_X_y=True))
        return images.float() / BRIGHTEST, labels.long()

    def split(self, seed: int) -> Data:
        """The images, split at random."""
        sizes = [self.test, self.validation, IMAGES - self.test - self.validation]
        test, validation, train = parts(self._samples, sizes, seed=seed)
        return Data(train=train, test=test, validation=validation if self.validation else None)
