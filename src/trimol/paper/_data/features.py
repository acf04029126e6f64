"""Features of images: what a frozen network makes of them, computed once and kept on disk."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trimol.paper._data import places as files
from trimol.paper._data.arrays import once
from trimol.paper._data.images import Images, Watch

VERSION = 1  # of what is done here: another number, another cache
BATCH = 4  # on a CPU: with 32, what is between two layers leaves its caches, at half the speed


def cached(
    images: Images,
    network: Callable[[], nn.Module],
    *,
    weights: str,
    width: int,
    watch: Watch | None = None,
) -> Tensor:
    """The features of images under a network that is not trained.

    They are kept under a name that says what they depend on: the weights, the images with their
    preprocessing (`Images.key`), and the version of this code. Neither the images nor the network
    are loaded when they are there already.

    Args:
        images: The images.
        network: Makes the network, which maps uint8 images (N, 3, S, S) to features (N, width).
        weights: What tells these weights and this network from all others, such as `digest`.
        width: Features of an image.
        watch: Called with the number of images that are done, and of all.

    Returns:
        float32 of shape (number of images, width), backed by a file in the cache.
    """

    def fill(array: NDArray[Any]) -> None:
        compute(images.pixels(), network(), array, watch)

    return once(path(images, weights), (len(images), width), np.float32, fill)


def path(images: Images, weights: str) -> Path:
    """Where the features of images are kept, or will be.

    Args:
        images: The images.
        weights: What tells the network and its weights from all others.
    """
    key = hashlib.sha256(f"features {VERSION}\n{weights}\n{images.key}".encode()).hexdigest()
    return files.cache() / "features" / key / "features.npy"


@torch.no_grad()
def compute(
    pixels: Tensor, network: nn.Module, array: NDArray[Any], watch: Watch | None = None
) -> None:
    """Write the features of all images to the rows of an array, in eval mode, batch by batch.

    Args:
        pixels: uint8 of shape (N, 3, S, S).
        network: Maps such to features (N, width).
        array: Where to: float32 of shape (N, width).
        watch: Called with the number of images that are done, and of all.
    """
    network.eval()
    for start in range(0, len(pixels), BATCH):
        batch = pixels[start : start + BATCH]
        array[start : start + len(batch)] = network(batch).float().numpy()
        if watch is not None:
            watch(start + len(batch), len(pixels))


def digest(network: nn.Module) -> str:
    """SHA-256 of a network's parameters and buffers, with their names.

    >>> layer = nn.Linear(2, 2)
    >>> before = digest(layer)
    >>> _ = layer.weight.data[0, 0].add_(1)
    >>> len(before), before == digest(layer)
    (64, False)
    """
    found = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
