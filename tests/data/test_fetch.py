"""Whole data sets: fetched from a server on this machine, unpacked, checked, refused if wrong."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from trimol.data._files import datasets, fetch
from trimol.data._files.datasets import Archive, BadData, File, MissingData, Source, sources
from trimol.data._files.fetch import ByHand, DownloadFailed

LIST = b"left/1.jpg 0\nthe_right/1.jpg 0\n"
ASKED: list[str] = []


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        ASKED.append(self.path)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "served"
    folder.mkdir()
    ASKED.clear()
    server = HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def source(served: tuple[Path, str]) -> Source:
    """Two folders in a zip file, and a list of what is in them."""
    folder, address = served
    (folder / "train.txt").write_bytes(LIST)
    with zipfile.ZipFile(folder / "set.zip", "w") as archive:
        for name in ("left/1.jpg", "left/2.jpg", "the right/1.jpg"):
            archive.writestr(f"Set/{name}", name)
    archive_sum = hashlib.md5((folder / "set.zip").read_bytes()).hexdigest()
    file = File("set.zip", None, md5=archive_sum, addresses=(f"{address}set.zip",))
    return Source(
        name="set",
        title="A set",
        mirrors=(address,),
        files=(File("splits/train.txt", len(LIST), hashlib.sha256(LIST).hexdigest()),),
        archive=Archive(
            file, ((r"Set/(left/.+)", r"\1"), (r"Set/the right/(.+)", r"the_right/\1"))
        ),
        contents={"left": 2, "the_right": 1},
    )


def names(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


WHOLE = ["left/1.jpg", "left/2.jpg", "splits/train.txt", "the_right/1.jpg"]


def test_fetched_unpacked_and_found(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert fetch.find(source) is None
    home = tmp_path / "data" / "set"
    expected = [home / "splits/train.txt", home / "left", home / "the_right"]
    assert fetch.get(source) == expected
    assert names(home) == WHOLE  # the archive is gone
    assert fetch.find(source) == home
    assert fetch.check(source) == (expected, [])
    assert ASKED == ["/train.txt", "/set.zip"]
    fetch.get(source)
    assert len(ASKED) == 2


def test_other_mirrors_replace_the_known_ones(source: Source, tmp_path: Path) -> None:
    gone = ["http://127.0.0.1:9/"]
    with pytest.raises(DownloadFailed, match=r"train\.txt \(http://127\.0\.0\.1:9/train\.txt: "):
        fetch.get(source, tmp_path, mirrors=gone)
    (tmp_path / "set/splits/train.txt").write_bytes(LIST)
    with pytest.raises(DownloadFailed, match=r"set\.zip \(http://127\.0\.0\.1:9/set\.zip: "):
        fetch.get(source, tmp_path, mirrors=gone)
    assert ASKED == []


def test_goes_on_with_the_folder_that_is_missing(source: Source, tmp_path: Path) -> None:
    fetch.get(source, tmp_path)
    right = tmp_path / "set" / "the_right"
    (right / "1.jpg").unlink()
    right.rmdir()
    fetch.get(source, tmp_path)
    assert names(tmp_path / "set") == WHOLE


def test_an_archive_that_is_there_is_not_fetched_again(
    source: Source, served: tuple[Path, str], tmp_path: Path
) -> None:
    home = tmp_path / "set"
    home.mkdir()
    (home / "set.zip").write_bytes((served[0] / "set.zip").read_bytes())
    fetch.get(source, tmp_path)
    assert ASKED == ["/train.txt"]
    assert names(home) == WHOLE


def test_half_a_folder_is_named_and_left(source: Source, tmp_path: Path) -> None:
    left = tmp_path / "set" / "left"
    left.mkdir(parents=True)
    (left / "1.jpg").write_bytes(b"mine")
    (left / ".hidden").write_bytes(b"")
    with pytest.raises(BadData) as error:
        fetch.get(source, tmp_path)
    assert str(error.value) == (
        f"{left} is not whole: it holds 1 files instead of 2; remove it and fetch it again"
    )
    assert ASKED == []
    assert (left / "1.jpg").read_bytes() == b"mine"


def test_wrong_archive_is_refused(source: Source, served: tuple[Path, str], tmp_path: Path) -> None:
    (served[0] / "set.zip").write_bytes(b"another")
    with pytest.raises(
        DownloadFailed, match="what it serves is not the file it should be: its MD5"
    ):
        fetch.get(source, tmp_path)
    assert names(tmp_path / "set") == ["splits/train.txt"]


def test_every_problem_in_a_line(source: Source, tmp_path: Path) -> None:
    fetch.get(source, tmp_path)
    home = tmp_path / "set"
    (home / "splits" / "train.txt").write_bytes(LIST.replace(b"left/1", b"left/7"))
    _, problems = fetch.check(source, tmp_path)
    assert len(problems) == 2
    assert problems[0].startswith(f"{home}/splits/train.txt is not the file it should be")
    assert problems[1].startswith(f"{home}/left/7.jpg is not there")
    (home / "splits" / "train.txt").unlink()
    (home / "left" / "2.jpg").unlink()
    assert fetch.check(source, tmp_path)[1] == [
        f"{home}/splits/train.txt is not there",
        f"{home}/left is not whole: it holds 1 files instead of 2",
    ]


def test_listed_but_not_there(source: Source, tmp_path: Path) -> None:
    fetch.get(source, tmp_path)
    (tmp_path / "set/left/1.jpg").rename(tmp_path / "set/left/3.jpg")
    with pytest.raises(MissingData, match=r"left/1\.jpg is not there"):
        fetch.get(source, tmp_path)


def test_another_ending_is_as_good(source: Source, tmp_path: Path) -> None:
    fetch.get(source, tmp_path)
    (tmp_path / "set/left/1.jpg").rename(tmp_path / "set/left/1.webp")
    assert fetch.check(source, tmp_path)[1] == []


def test_by_hand(tmp_path: Path) -> None:
    source = Source(
        "rooms",
        "Rooms",
        (),
        (),
        licence="none stated",
        home="https://example.org",
        contents={"train/image": 1},
        by_hand="Ask its owner.",
    )
    with pytest.raises(ByHand) as error:
        fetch.get(source, tmp_path / "data")
    assert str(error.value) == (
        "rooms cannot be fetched from here. Ask its owner. Home page: https://example.org. "
        f"Licence: none stated. Put into {tmp_path}/data/rooms: train/image/ (1 files). Then: "
        "trimol data check rooms"
    )
    assert list(tmp_path.iterdir()) == []
    image = tmp_path / "data/rooms/train/image/0.npy"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"")
    assert fetch.get(source, tmp_path / "data") == [image.parent]


def test_the_real_data_sets_where_they_are() -> None:
    """Counts of the catalogue, and lists, against copies of the real data sets."""
    there = [s for s in sources().values() if s.archive is not None and fetch.find(s) is not None]
    if not there:
        pytest.skip("neither Office-31 nor Office-Home is here")
    for source in there:
        home = fetch.find(source)
        assert home is not None
        datasets.check_contents(home, source.contents)
