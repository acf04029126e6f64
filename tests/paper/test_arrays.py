"""Arrays kept on disk: computed once, by one of those who ask, and whole or not there."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from trimol.data._files.datasets import BadData
from trimol.paper._data.arrays import once


def ask(path: Path, log: Path) -> None:
    def fill(array: np.ndarray) -> None:
        with log.open("a") as file:
            file.write("computed\n")
        time.sleep(0.05)  # long enough for the others to come
        array[:] = np.arange(1000)

    assert once(path, (1000,), np.int64, fill).sum() == 499_500


def test_several_at_once_compute_it_once(tmp_path: Path) -> None:
    path, log = tmp_path / "one" / "array.npy", tmp_path / "log"
    together = threading.Barrier(4)

    def work(_: int) -> None:
        together.wait()
        ask(path, log)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert log.read_text() == "computed\n"
    assert [file.name for file in path.parent.iterdir()] == ["array.npy"]


def test_an_error_leaves_nothing_and_the_next_computes(tmp_path: Path) -> None:
    path, log = tmp_path / "one" / "array.npy", tmp_path / "log"

    def fail(array: np.ndarray) -> None:
        array[:] = 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(path, (1000,), np.int64, fail)
    assert not list(path.parent.iterdir())
    ask(path, log)


def test_what_a_crash_left_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "one" / "array.npy"
    path.parent.mkdir()
    (path.parent / ".array.npy.part").write_bytes(b"half")
    ask(path, tmp_path / "log")
    assert [file.name for file in path.parent.iterdir()] == ["array.npy"]


def test_writing_to_the_tensor_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "one" / "array.npy"

    def fill(array: np.ndarray) -> None:
        array[:] = 7

    once(path, (5,), np.float32, fill).zero_()
    assert torch.equal(once(path, (5,), np.float32, fill), torch.full((5,), 7.0))


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00\x00"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "array.npy"
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"array\.npy is damaged .*: remove it") as error:
        once(path, (5,), np.float32, lambda array: None)
    assert "\n" not in str(error.value)


def test_an_array_of_another_shape_or_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.zeros((2, 3), np.float32))
    with pytest.raises(BadData, match=r"must hold float32 of shape \(5,\), found float32 .*2, 3"):
        once(path, (5,), np.float32, lambda array: None)
    with pytest.raises(BadData, match=r"must hold uint8 of shape .*, found float32"):
        once(path, (2, 3), np.uint8, lambda array: None)
