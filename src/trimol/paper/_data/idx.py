"""The idx format, in which MNIST and its kin are published: unsigned bytes, compressed by gzip.

A file is two zero bytes, the type of its entries (8: unsigned byte), the number of dimensions, each
dimension as a big-endian 32-bit number, then the entries, the last dimension running fastest.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimol.data._files.datasets import BadData

_UNSIGNED_BYTE = 8


def read(path: Path) -> NDArray[np.uint8]:
    """The array of an idx file (``.gz``); a damaged or foreign file is named and refused.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "labels-idx1-ubyte.gz")
    >>> _ = file.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4])))
    >>> read(file)
    array([5, 0, 4], dtype=uint8)
    """
    content = _unpacked(path)
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise BadData(
            f"{path} must be an idx file of unsigned bytes, which begins with 00 00 08, found "
            f"{content[:3].hex(' ') or 'nothing'}"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise BadData(f"{path} is truncated: its header ends early")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], dtype=">u4"))
    rest, wanted = len(content) - start, math.prod(shape)
    if rest != wanted:
        raise BadData(
            f"{path} must hold {' × '.join(map(str, shape))} = {wanted} bytes of data, found {rest}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except EOFError as error:
        raise BadData(f"{path} is truncated: its compressed data ends early") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadData(f"{path} is no sound gzip file: {error}") from error
