"""Contents of a data set's folder: counted, and held against its lists."""

from pathlib import Path

import pytest

from trimol.paper._data import datasets
from trimol.paper._data.datasets import BadData, MissingData


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("a/x/1.jpg", "a/y/2.jpg", "a/y/.DS_Store", "b/1.jpg", "splits/a_test.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "splits/a_test.txt").write_text("a/x/1.jpg 0\na/y/2.jpg 12\n")
    (tmp_path / "splits/b_train.txt").write_text("b/1.jpg 3\n")
    return tmp_path


def test_whole(home: Path) -> None:
    datasets.check_contents(home, {"a": 2, "b": 1})
    assert datasets.listed(home) == ["a/x/1.jpg", "a/y/2.jpg", "b/1.jpg"]


@pytest.mark.parametrize(("wanted", "found"), [(1, 2), (3, 2)])
def test_another_number(home: Path, wanted: int, found: int) -> None:
    said = f"{home}/a is not whole: it holds {found} files instead of {wanted}"
    with pytest.raises(BadData, match=said):
        datasets.check_contents(home, {"a": wanted})


def test_no_such_folder(home: Path) -> None:
    with pytest.raises(MissingData, match=f"{home}/c is not there: it should hold 4 files"):
        datasets.check_contents(home, {"c": 4})


def test_listed_but_missing(home: Path) -> None:
    (home / "b" / "1.jpg").rename(home / "b" / "2.jpg")
    with pytest.raises(MissingData, match=f"{home}/b/1.jpg is not there"):
        datasets.check_contents(home, {"a": 2, "b": 1})
