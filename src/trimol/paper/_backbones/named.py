"""Backbones by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from trimol._failures import BadValue
from trimol.paper._backbones import mobilenet
from trimol.paper._backbones.backbone import Backbone
from trimol.paper._backbones.resnet import RESNET18, RESNET50
from trimol.paper._data.arrays import digest


class Build(Protocol):
    """Makes the network."""

    def __call__(self, *, pretrained: bool) -> nn.Module:
        """With the official weights, or with random ones."""


@dataclass(frozen=True)
class _Kind:
    """A backbone, and how its official weights are told from others without building it."""

    build: Build
    width: int
    identity: Callable[[], str] | None = None


_KINDS = {
    "mobilenet_v2": _Kind(mobilenet.build, mobilenet.WIDTH, mobilenet.identity),
    "resnet18": _Kind(RESNET18.build, RESNET18.widths[-1]),
    "resnet50": _Kind(RESNET50.build, RESNET50.widths[-1]),
}


def names() -> list[str]:
    """The names of all backbones.

    >>> names()
    ['mobilenet_v2', 'resnet18', 'resnet50']
    """
    return list(_KINDS)


def width(name: str) -> int:
    """Features of an image.

    >>> width("resnet18")
    512
    """
    return _kind(name).width


def load(name: str, *, pretrained: bool = True) -> Backbone:
    """A backbone, in training mode.

    Args:
        name: One of `names()`.
        pretrained: With the official ImageNet weights; without, they are drawn from torch's random
            state.
    """
    kind = _kind(name)
    return Backbone(kind.build(pretrained=pretrained).train(), kind.width)


def frozen(name: str, *, pretrained: bool = True) -> Backbone:
    """A backbone in eval mode, always the same: random weights are drawn with seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
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
