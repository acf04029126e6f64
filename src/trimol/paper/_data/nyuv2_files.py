"""NYU-v2 in its usual preprocessed layout: one ``.npy`` file for each image and each of its labels.

``nyuv2/{train,val}/{image,label,depth,normal}/N.npy``: images H × W × 3, classes H × W with −1
where there is none, depths H × W (× 1) with 0 where there is none, normals H × W × 3 with zeros
where there is none. All images have one size, whichever it is (288 × 384 as published).

Thousands of small files are slow to open in every run: they are stacked once into four arrays in
the cache, and read from there without a copy in memory.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import DTypeLike
from torch import Tensor

from trimol._files import make_folder, writing
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData, MissingData
from trimol.paper._data.arrays import Array, once

CLASSES = 13
_VERSION = 1  # of what is done here: another number, another cache
Size = tuple[int, int]


@dataclass(frozen=True)
class _Kind:
    """What one of the four folders holds."""

    channels: int  # numbers of a pixel; 0 where a pixel is one number
    dtype: DTypeLike  # of the stacked array
    mode: str  # how it is resized
    clean: Callable[[Path, Array], Array]  # checks and corrects what was read


def _image(path: Path, array: Array) -> Array:
    if not np.isfinite(array).all():
        raise BadData(f"{path} must hold finite numbers, found NaN or infinity")
    return array


def _label(path: Path, array: Array) -> Array:
    wrong = array[~np.isin(array, np.arange(-1, CLASSES))]
    if wrong.size:
        raise BadData(f"{path} must hold classes from −1 to {CLASSES - 1}, found {wrong.flat[0]}")
    return array


def _measured(path: Path, array: Array) -> Array:
    """What is not finite was not measured: 0, as the layout says it."""
    return np.where(np.isfinite(array), array, 0)


KINDS = {
    "image": _Kind(3, np.float32, "area", _image),
    "label": _Kind(0, np.int8, "nearest-exact", _label),
    "depth": _Kind(0, np.float32, "nearest-exact", _measured),
    "normal": _Kind(3, np.float32, "nearest-exact", _measured),
}


def folder(part: str) -> Path:
    """Where a part of the data set, ``"train"`` or ``"val"``, is."""
    return datasets.locate("nyuv2", f"{part}/image/0.npy").parent.parent


def numbers(part: Path) -> list[int]:
    """The numbers of the images in a part's folder; each of their labels must be there, too."""
    stems = (path.stem for path in (part / "image").glob("*.npy"))
    listed = sorted(int(stem) for stem in stems if stem.isdecimal())
    for kind in KINDS:
        for number in listed:
            path = _path(part, kind, number)
            if not path.is_file():
                raise MissingData(f"{path} is missing: image {number} of {part} needs it")
    return listed


def stacked(part: Path, order: Sequence[int], size: Size | None = None) -> tuple[Tensor, ...]:
    """Images, labels, depths and normals of a part, backed by files in the cache.

    They are in the ``order`` of the numbers given, and of another ``size`` (height and width) where
    one is: images are averaged over areas, labels are those of the nearest pixel. The cache is
    named by what it depends on: the files (their names, sizes and times of change), the order and
    the size. The arrays: float32 N × 3 × H × W, int8 N × H × W, float32 N × H × W,
    float32 N × 3 × H × W.
    """
    stored = _load(_path(part, "image", order[0])).shape[:2]
    wanted = stored if size is None else size
    home = datasets.cache() / "nyuv2" / _key(part, order, wanted)
    return tuple(_once(home, name, part, order, stored, wanted) for name in KINDS)


def _once(
    home: Path, name: str, part: Path, order: Sequence[int], stored: Size, wanted: Size
) -> Tensor:
    """One of the four arrays, from the cache or from the files."""
    kind = KINDS[name]

    def fill(array: Array) -> None:
        for row, number in zip(array, order, strict=True):
            row[:] = _read(_path(part, name, number), kind, stored, wanted)

    channels = (kind.channels,) if kind.channels else ()
    return once(home / f"{name}.npy", (len(order), *channels, *wanted), kind.dtype, fill)


def write(part: Path, images: Array, labels: Array, depths: Array, normals: Array) -> None:
    """Write arrays (channels last) into a part's folder, one file for each image, from 0.

    >>> import tempfile
    >>> part = Path(tempfile.mkdtemp()) / "train"
    >>> flat, deep = np.zeros((2, 6, 8)), np.zeros((2, 6, 8, 3))
    >>> write(part, deep, flat, flat, deep)
    >>> numbers(part), np.load(part / "depth" / "1.npy").shape
    ([0, 1], (6, 8, 1))
    """
    for kind, arrays in zip(KINDS, (images, labels, depths[..., None], normals), strict=True):
        make_folder(part / kind)
        for number, array in enumerate(arrays):
            with writing(_path(part, kind, number)) as file:
                np.save(file, array)


def _read(path: Path, kind: _Kind, stored: Size, wanted: Size) -> Array:
    """What one file holds, channels first, in the size that is wanted."""
    array = _load(path)
    channels = kind.channels or 1
    if array.shape != (*stored, channels) and (kind.channels or array.shape != stored):
        shape = (*stored, channels) if kind.channels else stored
        raise BadData(f"{path} must hold an array of shape {shape}, found {array.shape}")
    clean = kind.clean(path, array).reshape(*stored, channels)
    pixels = torch.from_numpy(np.ascontiguousarray(np.moveaxis(clean, -1, 0), dtype=np.float32))
    if wanted != stored:
        pixels = F.interpolate(pixels[None], wanted, mode=kind.mode)[0]
    return (pixels if kind.channels else pixels[0]).numpy()


def _load(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BadData(f"{path} cannot be read: {error}") from error
    if array.ndim < 2 or array.dtype.kind not in "fiu":
        raise BadData(f"{path} must hold pixels, found {array.dtype} of shape {array.shape}")
    return array


def _key(part: Path, order: Sequence[int], size: Size) -> str:
    """What names the cache: twenty hex digits."""
    told = hashlib.sha256(f"nyuv2 {_VERSION} {part.resolve()} {size}".encode())
    for number in order:
        for kind in KINDS:
            state = _path(part, kind, number).stat()
            told.update(f"{number} {kind} {state.st_size} {state.st_mtime_ns}\n".encode())
    return told.hexdigest()[:20]


def _path(part: Path, kind: str, number: int) -> Path:
    return part / kind / f"{number}.npy"
