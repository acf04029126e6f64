"""Backbones by name: ImageNet networks (from transformers) that turn images into features."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trimol._extras import require
from trimol._failures import BadValue
from trimol._generators import seeding
from trimol.data._files.datasets import BadData, MissingData
from trimol.paper import _mobilenet as mobilenet
from trimol.paper._data.arrays import digest

# Of ImageNet's training images, with pixels between 0 and 1: what the official weights expect.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """A network of transformers, with the preprocessing of its pixels in front.

    The network's ``pooler_output`` is the average over all places of its last feature maps: as many
    features of an image as its ``width``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, width: int) -> None:
        super().__init__()
        self.network, self.width = network, width
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """The features, (N, width), of images, (N, 3, S, S), with pixels between 0 and 255."""
        pixels = (images.to(self.mean.dtype) / 255 - self.mean) / self.std
        output: Any = self.network(pixels)
        features: Tensor = output.pooler_output
        return features.flatten(1)


@dataclass(frozen=True)
class ResNet:
    """One of the family, with the official weights by their name on the Hugging Face hub.

    Reference:
        He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
    """

    hub: str  # its name there
    depths: tuple[int, int, int, int]  # blocks of each stage
    widths: tuple[int, int, int, int]  # channels of each stage; the last: features of an image
    block: str  # "basic" (two 3×3 convolutions) or "bottleneck" (1×1, 3×3, 1×1)

    def build(self, *, pretrained: bool) -> nn.Module:
        """The network, with official weights (from the hub or its local cache) or random ones."""
        library: Any = require("transformers", extra="vision", purpose="the ResNet backbones")
        if pretrained:
            return self._official(library.ResNetModel)
        config = library.ResNetConfig(
            depths=self.depths, hidden_sizes=self.widths, layer_type=self.block
        )
        network: nn.Module = library.ResNetModel(config)
        return network

    def _official(self, model: Any) -> nn.Module:
        network: nn.Module
        try:
            network, report = model.from_pretrained(self.hub, output_loading_info=True)
        except OSError as error:
            raise MissingData(
                f"the official weights {self.hub} are neither in the local cache nor to be had "
                f"from the hub ({str(error).partition(chr(10))[0]}): connect to the network, or "
                "take pretrained=False (--option pretrained=false) for random weights"
            ) from error
        if report["missing_keys"]:
            raise BadData(f"the weights {self.hub} lack {min(report['missing_keys'])!r}")
        return network


RESNET18 = ResNet("microsoft/resnet-18", (2, 2, 2, 2), (64, 128, 256, 512), "basic")
RESNET50 = ResNet("microsoft/resnet-50", (3, 4, 6, 3), (256, 512, 1024, 2048), "bottleneck")


class _Build(Protocol):
    """Makes the network."""

    def __call__(self, *, pretrained: bool) -> nn.Module:
        """With the official weights, or with random ones."""


@dataclass(frozen=True)
class _Kind:
    """A backbone, and how its official weights are told from others without building it."""

    build: _Build
    width: int
    identity: Callable[[], str] | None = None


_KINDS = {
    "mobilenet_v2": _Kind(mobilenet.build, mobilenet.WIDTH, mobilenet.identity),
    "resnet18": _Kind(RESNET18.build, RESNET18.widths[-1]),
    "resnet50": _Kind(RESNET50.build, RESNET50.widths[-1]),
}


def width(name: str) -> int:
    """Features of an image.

    >>> width("resnet18")
    512
    """
    return _kind(name).width


def load(name: str, *, pretrained: bool = True) -> Backbone:
    """A backbone, in training mode; random weights are drawn from torch's random state."""
    kind = _kind(name)
    return Backbone(kind.build(pretrained=pretrained).train(), kind.width)


def frozen(name: str, *, pretrained: bool = True) -> Backbone:
    """A backbone in eval mode, always the same: random weights are drawn with seed 0."""
    with seeding(0):
        return load(name, pretrained=pretrained).eval()


def identity(name: str, *, pretrained: bool = True) -> str:
    """What tells the network `frozen` and its weights from all others: a name for its features.

    It is the SHA-256 of the official file where there is one, which takes milliseconds, and that
    of the network's tensors otherwise.
    """
    kind = _kind(name)
    if pretrained and kind.identity is not None:
        return f"{name} {kind.identity()}"
    return f"{name} {digest(frozen(name, pretrained=pretrained))}"


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise BadValue(f"backbone must be one of {', '.join(_KINDS)}, found {name!r}")
    return _KINDS[name]
