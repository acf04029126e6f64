"""What is computed once from a data set's files and kept on disk: pixels, features, stacked labels.

Arrays are read from there without a copy in memory.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from trimol._checks import whole_number
from trimol._extras import require
from trimol._files import make_folder, writing
from trimol.data._files.datasets import BadData, cache, resolve

# Of what is done to images and to features: another number, another cache.
_PIXELS, _FEATURES = 1, 1
_BATCH = 4  # on a CPU: with 32, what is between two layers leaves its caches, at half the speed

Array = NDArray[Any]
Watch = Callable[[int, int], None]  # how many images are done, of how many


def once(
    path: Path, shape: tuple[int, ...], dtype: DTypeLike, fill: Callable[[Array], None]
) -> Tensor:
    """The array in a file (in a folder of its own), computed by the first who asks for it.

    ``fill`` writes into the array it is given, which is on disk under another name, and renamed
    when it is whole: what is there is whole. Others who ask for it meanwhile wait (the file's
    folder is locked), then read it. What a crash leaves is overwritten by the next who asks; an
    error leaves nothing. The tensor is backed by the file: pages are read when they are used, and
    writing to it changes this process's copy only.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "squares" / "squares.npy"
    >>> def fill(array):
    ...     print("computed")
    ...     array[:] = np.arange(4) ** 2
    >>> once(path, (4,), np.int64, fill)
    computed
    tensor([0, 1, 4, 9])
    >>> once(path, (4,), np.int64, fill)
    tensor([0, 1, 4, 9])
    """
    if not path.is_file():
        home = path.parent
        make_folder(home)
        # Beside the folder; it stays there, as removing it would let a second one in.
        with FileLock(home.with_name(f".{home.name}.lock")):
            if not path.is_file():
                _write(path, shape, dtype, fill)
    return _read(path, shape, dtype)


def _write(
    path: Path, shape: tuple[int, ...], dtype: DTypeLike, fill: Callable[[Array], None]
) -> None:
    with writing(path) as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        array = np.memmap(file, np.dtype(dtype), "r+", file.tell(), shape)
        fill(array)
        array.flush()
        del array  # a file that is mapped cannot be renamed everywhere


def _read(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
    try:
        # "c": a tensor wants memory that it may write to, and the file must stay as it is.
        array = np.load(path, mmap_mode="c")
    except (ValueError, OSError, EOFError) as error:
        raise BadData(f"{path} is damaged ({error}): remove it, it is computed again") from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise BadData(
            f"{path} must hold {np.dtype(dtype)} of shape {shape}, found {array.dtype} of shape "
            f"{array.shape}: remove it, it is computed again"
        )
    return torch.from_numpy(array)


# --- images ---------------------------------------------------------------------------------------


class Images:
    """The images of a list of files, all to be seen at one size.

    Each is decoded as RGB and resized to ``size`` × ``size`` by bilinear interpolation with
    antialiasing, without regard to its shape and without a crop (torchvision's
    ``Resize((size, size))`` on PIL images, the paper's preprocessing).

    A listed name stands for the file of that stem, whatever its ending: data sets are kept as
    ``.jpg`` here and as ``.webp`` there.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> root = Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (40, 30), "red").save(root / "one.png")
        >>> images = Images(root, ["one.jpg"], size=8)
        >>> images.names, len(images), len(images.key)
        (['one.png'], 1, 64)
    """

    def __init__(self, root: Path, names: Sequence[str], *, size: int) -> None:
        self.root, self.size = root, whole_number("size", size, least=1)
        self.names = resolve(root, names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def key(self) -> str:
        """What the pixels depend on, as one name: files (by size and time), size, version."""
        digest = hashlib.sha256(f"images {_PIXELS} {self.size}\n".encode())
        for name in self.names:
            status = os.stat(f"{self.root}/{name}")  # a Path for each takes longer than its status
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def pixels(self, watch: Watch | None = None) -> Tensor:
        """All pixels, uint8 of shape (N, 3, size, size), backed by a file in the cache."""

        def fill(array: Array) -> None:
            decode([self.root / name for name in self.names], self.size, array, watch)

        path = cache() / "images" / self.key / "pixels.npy"
        return once(path, (len(self), 3, self.size, self.size), np.uint8, fill)


def decode(paths: Sequence[Path], size: int, array: Array, watch: Watch | None = None) -> None:
    """Decode images into the rows of an array, uint8 of shape (N, 3, size, size).

    On all processors: Pillow decodes and resizes without holding Python's lock, so threads do.
    """
    image = require("PIL.Image", extra="vision", purpose="decoding images")

    def one(row: int) -> None:
        array[row] = _pixels(image, paths[row], size)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for done, _ in enumerate(pool.map(one, range(len(paths))), start=1):
                if watch is not None:
                    watch(done, len(paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # one bad image is enough to know
            raise


def _pixels(image: Any, path: Path, size: int) -> NDArray[np.uint8]:
    """One image: channels, rows, columns."""
    try:
        with image.open(path) as opened:
            resized = opened.convert("RGB").resize((size, size), image.Resampling.BILINEAR)
    # What Pillow raises on bytes that are no image depends on where it stumbles over them.
    except (OSError, ValueError, SyntaxError, EOFError, image.DecompressionBombError) as error:
        raise BadData(f"{path} is no image that can be decoded: {error}") from error
    return np.asarray(resized, dtype=np.uint8).transpose(2, 0, 1)


# --- features -------------------------------------------------------------------------------------


def features(
    images: Images,
    network: Callable[[], nn.Module],
    *,
    weights: str,
    width: int,
    watch: Watch | None = None,
) -> Tensor:
    """The features of images under a network that is not trained: float32 (images, width).

    They are kept under a name that says what they depend on: the weights, the images with their
    preprocessing (`Images.key`), and the version of this code. Neither the images nor the network
    are loaded when they are there already. ``network`` makes what maps uint8 images (N, 3, S, S) to
    features (N, width); ``weights`` tells it from all others, such as its `digest`.
    """

    def fill(array: Array) -> None:
        compute_features(images.pixels(), network(), array, watch)

    return once(features_path(images, weights), (len(images), width), np.float32, fill)


def features_path(images: Images, weights: str) -> Path:
    """Where the features of images are kept, or will be."""
    key = hashlib.sha256(f"features {_FEATURES}\n{weights}\n{images.key}".encode()).hexdigest()
    return cache() / "features" / key / "features.npy"


@torch.no_grad()
def compute_features(
    pixels: Tensor, network: nn.Module, array: Array, watch: Watch | None = None
) -> None:
    """Write the features of all images to the rows of an array, in eval mode, batch by batch."""
    network.eval()
    for start in range(0, len(pixels), _BATCH):
        batch = pixels[start : start + _BATCH]
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
    summary = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        summary.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        summary.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return summary.hexdigest()
