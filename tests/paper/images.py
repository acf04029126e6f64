"""Small images in MNIST's files, that a network can learn to tell apart."""

import gzip
from pathlib import Path

import numpy as np

TRAIN, TEST = 400, 120


def write(folder: Path, name: str = "mnist") -> None:
    """The four files: each class is a bright block of its own, under noise."""
    rng = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 120, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[9 * row : 9 * row + 8, 7 * column : 7 * column + 7] += 100
        _file(folder / name / f"{part}-images-idx3-ubyte.gz", images)
        _file(folder / name / f"{part}-labels-idx1-ubyte.gz", labels)


def _file(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), compresslevel=1))
