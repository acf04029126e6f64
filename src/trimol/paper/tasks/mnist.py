"""MNIST and Fashion-MNIST: the paper's image classification, with its three losses."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol._checks import one_of, whole_number
from trimol._failures import BadValue
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData
from trimol.paper._data import idx
from trimol.tasks._classifier import CLASSES, Classifier, parts
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings

PIXELS = 28 * 28
Activation = Literal["none", "relu"]


class TwoLinear(nn.Module):
    r"""Two linear layers with nothing between, multiplied in the cheaper order.

    .. math:: W_2 (W_1 x + b_1) + b_2 = (W_2 W_1)\, x + (W_2 b_1 + b_2)

    The right side is the same function of the parameters, with the same gradients up to rounding.
    With 10 outputs it takes a sixth of the multiplications for a batch of 64, and a fiftieth for
    the whole data set.

    Example:
        >>> layers = TwoLinear(nn.Linear(5, 4), nn.Linear(4, 3))
        >>> x = torch.randn(7, 5)
        >>> torch.allclose(layers(x), layers.second(layers.first(x)), atol=1e-6)
        True
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        weight = self.second.weight @ self.first.weight
        return F.linear(x, weight, self.second.weight @ self.first.bias + self.second.bias)


class MNIST(Classifier):
    """28×28 handwritten digits on cross-entropy, MSE and Huber: the paper's task and network.

    Linear(784, 512) → Linear(512, 10) with *no activation* between, so that the logits are linear
    in the pixels but not in the parameters. 50 000 images to train on, 10 000 to choose settings
    on, 10 000 to test; pixels are scaled to [0, 1] and then divided by 0.5. All images are in
    memory as one tensor, so that a mini-batch is one lookup. Each run splits the 60 000 training
    images by its own seed, as in the paper: what differs between runs is also what they train on.

    Needs the four files of ``trimol data get mnist``.

    Args:
        hidden: Width of the one hidden layer.
        activation: Between the layers: ``"none"`` as in the paper, or ``"relu"``.
        validation: How many of the 60 000 training images to hold out.
        seed: Names the split into training and validation images. None: each run splits them by
            its own seed.
    """

    name: ClassVar[str] = "mnist"
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "mnist")

    def __init__(
        self,
        *,
        hidden: int = 512,
        activation: Activation = "none",
        validation: int = 10_000,
        seed: int | None = None,
    ) -> None:
        self.hidden = whole_number("hidden", hidden, least=1)
        self.validation = whole_number("validation", validation, least=0)
        self.seed = None if seed is None else whole_number("seed", seed, least=0)
        one_of("activation", activation, get_args(Activation))
        self.activation: Activation = activation

    def model(self) -> nn.Module:
        """The network, as PyTorch initialises it: 407 050 parameters."""
        first, second = nn.Linear(PIXELS, self.hidden), nn.Linear(self.hidden, CLASSES)
        if self.activation == "relu":
            return nn.Sequential(first, nn.ReLU(), second)
        return TwoLinear(first, second)

    def split(self, seed: int) -> Data:
        """The images as rows of 784 numbers in [0, 2], and their labels."""
        samples = self._train
        if self.validation >= len(samples[0]):
            raise BadValue(
                f"validation must be below {len(samples[0])}, the number of training images, found "
                f"{self.validation}"
            )
        sizes = [self.validation, len(samples[0]) - self.validation]
        held_out, train = parts(samples, sizes, seed=seed)
        validation = held_out if self.validation else None
        return Data(train=train, test=self._test, validation=validation)

    @cached_property
    def _train(self) -> Batch:
        return self._read("train")

    @cached_property
    def _test(self) -> Batch:
        return self._read("t10k")

    def _read(self, part: str) -> Batch:
        """The images and labels of one of the two parts in which the data is published."""
        path = datasets.locate(self.name, f"{part}-images-idx3-ubyte.gz")
        pixels = idx.read(path)
        if pixels.ndim != 3 or pixels.shape[1] * pixels.shape[2] != PIXELS or not len(pixels):
            raise BadData(f"{path} must hold N images of 28 × 28 pixels, found {pixels.shape}")
        images = torch.from_numpy(pixels.copy()).flatten(1).float()
        return images.div_(255).div_(0.5), self._labels(part, len(pixels))

    def _labels(self, part: str, images: int) -> Tensor:
        path = datasets.locate(self.name, f"{part}-labels-idx1-ubyte.gz")
        labels = idx.read(path)
        if labels.shape != (images,):
            raise BadData(
                f"{path} must hold one label for each of {images} images, found {labels.shape}"
            )
        if labels.max() >= CLASSES:
            raise BadData(f"{path} must hold labels below {CLASSES}, found {labels.max()}")
        return torch.from_numpy(labels.astype("int64"))


class Fashion(MNIST):
    """28×28 articles of clothing in place of digits: the same code on Fashion-MNIST's files."""

    name: ClassVar[str] = "fashion"
    # Nothing is known of good step sizes here: MNIST's are inherited as a start.
