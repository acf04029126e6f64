"""Images of a list of files, decoded once, in parallel, into one array on disk."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trimol._checks import whole_number
from trimol._extras import require
from trimol.paper._data import places as files
from trimol.paper._data.arrays import once
from trimol.paper._data.places import BadData, MissingData

VERSION = 1  # of what is done to an image: another number, another cache

Watch = Callable[[int, int], None]


class Images:
    """The images of a list of files, all to be seen at one size.

    Each is decoded as RGB and resized to ``size`` × ``size`` by bilinear interpolation with
    antialiasing, without regard to its shape and without a crop (torchvision's
    ``Resize((size, size))`` on PIL images, the paper's preprocessing).

    A listed name stands for the file of that stem, whatever its ending: data sets are kept as
    ``.jpg`` here and as ``.webp`` there.

    Args:
        root: The folder that the names are relative to.
        names: The files, in the order of the result.
        size: Height and width in pixels.

    Raises:
        MissingData: A listed image is not there.

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
        digest = hashlib.sha256(f"images {VERSION} {self.size}\n".encode())
        for name in self.names:
            found = os.stat(f"{self.root}/{name}")  # a Path for each takes longer than its status
            digest.update(f"{name} {found.st_size} {found.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def pixels(self, watch: Watch | None = None) -> Tensor:
        """All pixels, uint8 of shape (N, 3, size, size), backed by a file in the cache.

        Args:
            watch: Called with the number of images that are decoded, and of all.

        Raises:
            BadData: An image cannot be decoded.
        """

        def fill(array: NDArray[Any]) -> None:
            decode([self.root / name for name in self.names], self.size, array, watch)

        path = files.cache() / "images" / self.key / "pixels.npy"
        return once(path, (len(self), 3, self.size, self.size), np.uint8, fill)


def resolve(root: Path, names: Iterable[str]) -> list[str]:
    """The names of these files, or else of the one of the same stem in the same folder."""
    folders: dict[str, dict[str, list[str]]] = {}
    return [_resolve(root, name, folders) for name in names]


def _resolve(root: Path, name: str, folders: dict[str, dict[str, list[str]]]) -> str:
    folder, file = os.path.split(name)
    # Folders are listed once: asking for every file takes as long as reading its image.
    if folder not in folders:
        folders[folder] = _by_stem(root / folder)
    found = folders[folder].get(os.path.splitext(file)[0], [])
    if file in found:
        return name
    if not found:
        raise MissingData(f"{root / name} is not there, nor under another ending, but is listed")
    if len(found) > 1:
        raise BadData(
            f"{root / name} is not there, and more than one other could be meant: "
            f"{', '.join(sorted(found))}"
        )
    return os.path.join(folder, found[0])


def _by_stem(folder: Path) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    if folder.is_dir():
        for file in os.listdir(folder):
            stems.setdefault(os.path.splitext(file)[0], []).append(file)
    return stems


def decode(
    paths: Sequence[Path], size: int, array: NDArray[Any], watch: Watch | None = None
) -> None:
    """Decode images into the rows of an array, on all processors.

    Pillow decodes and resizes without holding Python's lock: threads do.

    Args:
        paths: The files.
        size: Height and width in pixels.
        array: Where to: uint8 of shape (N, 3, size, size).
        watch: Called with the number of images that are decoded, and of all.
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
