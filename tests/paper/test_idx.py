"""The idx reader, against arrays written by hand, and files damaged in every way."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trimol.data._files.datasets import BadData
from trimol.paper._data import idx

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def encoded(array: np.ndarray) -> bytes:
    shape = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


def write(folder: Path, content: bytes) -> Path:
    path = folder / "x-idx.gz"
    path.write_bytes(content)
    return path


@settings(deadline=None, max_examples=50)
@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    path = write(tmp_path_factory.mktemp("idx"), gzip.compress(encoded(array)))
    np.testing.assert_array_equal(idx.read(path), array)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, len(gzip.compress(encoded(IMAGES))) - 1))
def test_every_truncation_is_refused(tmp_path_factory: pytest.TempPathFactory, end: int) -> None:
    path = write(tmp_path_factory.mktemp("idx"), gzip.compress(encoded(IMAGES))[:end])
    with pytest.raises(BadData, match=r"x-idx\.gz"):
        idx.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(encoded(IMAGES)[:-1]), "must hold 2 × 3 × 4 = 24 bytes of data, found 23"),
        (gzip.compress(encoded(IMAGES) + b"!"), "= 24 bytes of data, found 25"),
        (gzip.compress(encoded(IMAGES)[:9]), "is truncated: its header ends early"),
        (gzip.compress(b"<html>"), "which begins with 00 00 08, found 3c 68 74"),
        (gzip.compress(bytes([0, 0, 13, 1])), "of unsigned bytes, .* found 00 00 0d"),
        (gzip.compress(b""), "found nothing"),
        (gzip.compress(encoded(IMAGES))[:-9], "is truncated: its compressed data ends early"),
        (encoded(IMAGES), "is no sound gzip file"),
        (gzip.compress(encoded(IMAGES))[:10] + b"\xff" * 30, "is no sound gzip file"),
    ],
    ids=range(9),  # the content holds the time at which it was compressed
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BadData, match=message) as error:
        idx.read(write(tmp_path, content))
    assert "\n" not in str(error.value)
