"""Arrays that are computed once, kept on disk, and read from there without a copy in memory."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from trimol.paper._data.places import BadData


def once(
    path: Path,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    fill: Callable[[NDArray[Any]], None],
) -> Tensor:
    """The array in a file, computed and written by the first who asks for it.

    It is written under another name and renamed when it is whole: what is there is whole. Others
    who ask for it meanwhile wait (the file's folder is locked), then read it. What a crash leaves
    is overwritten by the next who asks; an error leaves nothing.

    Args:
        path: The file (``.npy``), in a folder of its own.
        shape: The array's shape.
        dtype: Its type.
        fill: Writes the numbers into the array it is given, which is on disk.

    Returns:
        A tensor backed by the file: pages are read when they are used. Writing to it changes this
        process's copy only.

    Example:
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
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent):
            if not path.is_file():
                _write(path, shape, dtype, fill)
    return _read(path, shape, dtype)


def _write(
    path: Path, shape: tuple[int, ...], dtype: DTypeLike, fill: Callable[[NDArray[Any]], None]
) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        array = np.lib.format.open_memmap(part, mode="w+", dtype=np.dtype(dtype), shape=shape)
        fill(array)
        array.flush()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time: the others wait. The system lifts the lock of one that dies."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
