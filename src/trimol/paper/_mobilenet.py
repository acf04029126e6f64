"""MobileNetV2, with the official weights in torchvision's layout.

The network is transformers', configured such that it computes what torchvision's does: symmetric
padding in place of TensorFlow's, ε = 1e-5 and momentum 0.1 in batch normalisation.

Reference:
    Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018.
"""

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trimol._extras import require
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData

FILE = "mobilenet_v2-b0353104.pth"
WIDTH = 1280
# ImageNet's classifier: the two tensors of the file that are no part of the backbone.
CLASSIFIER = ("classifier.1.weight", "classifier.1.bias")

_BLOCKS = range(2, 18)  # torchvision's numbers of the blocks with an expansion
_NORMALIZATION = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def build(*, pretrained: bool) -> nn.Module:
    """The network, with the official weights (``trimol data get mobilenet_v2``) or random ones."""
    network = _network()
    if pretrained:
        network.load_state_dict(translated(read(datasets.locate("weights", FILE))), strict=True)
    return network


def _network() -> nn.Module:
    library: Any = require("transformers", extra="vision", purpose="the backbone mobilenet_v2")
    # Its other defaults are torchvision's: width 1, expansion 6, stride 32, ReLU6, 1280 features.
    config = library.MobileNetV2Config(tf_padding=False, layer_norm_eps=1e-5)
    network: nn.Module = library.MobileNetV2Model(config)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            # transformers sets TensorFlow's decay, 0.997, which torch takes for its complement.
            module.momentum = 0.1
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    return network


def identity() -> str:
    """What tells these weights from all others: the SHA-256 of the file."""
    with datasets.locate("weights", FILE).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read(path: Path) -> dict[str, Tensor]:
    """All tensors of the official file, by torchvision's names."""
    try:
        tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
        raise BadData(
            f"{path} is no file of weights that can be read: remove it, and fetch it again with "
            "`trimol data get mobilenet_v2`"
        ) from error
    return tensors


def translated(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of the official file by transformers' names; none may be missing or unknown."""
    known = translation()
    expected = {*known.values(), *CLASSIFIER}
    if missing := expected - set(state):
        raise BadData(f"the weights of mobilenet_v2 lack {min(missing)!r}")
    if unknown := set(state) - expected:
        raise BadData(f"the weights of mobilenet_v2 must not hold {min(unknown)!r}")
    return {ours: state[theirs] for ours, theirs in known.items()}


def translation() -> dict[str, str]:
    """For each of transformers' names the one of torchvision.

    >>> translation()["layer.0.reduce_1x1.convolution.weight"]
    'features.2.conv.2.weight'
    """
    # torchvision puts convolution, normalisation and activation into one Sequential; where there
    # is no activation, convolution and normalisation stand alone: two numbers in place of one.
    layers = {
        "conv_stem.first_conv": ("features.0.0", "features.0.1"),
        "conv_stem.conv_3x3": ("features.1.conv.0.0", "features.1.conv.0.1"),
        "conv_stem.reduce_1x1": ("features.1.conv.1", "features.1.conv.2"),
        "conv_1x1": ("features.18.0", "features.18.1"),
    }
    for block in _BLOCKS:
        ours, theirs = f"layer.{block - 2}", f"features.{block}.conv"
        layers[f"{ours}.expand_1x1"] = (f"{theirs}.0.0", f"{theirs}.0.1")
        layers[f"{ours}.conv_3x3"] = (f"{theirs}.1.0", f"{theirs}.1.1")
        layers[f"{ours}.reduce_1x1"] = (f"{theirs}.2", f"{theirs}.3")
    names = {}
    for ours, (convolution, normalization) in layers.items():
        names[f"{ours}.convolution.weight"] = f"{convolution}.weight"
        for tensor in _NORMALIZATION:
            names[f"{ours}.normalization.{tensor}"] = f"{normalization}.{tensor}"
    return names
