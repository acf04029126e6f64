"""Data sets: what they consist of, found where they are, refused if not what they must be."""

import hashlib
import re
import sys
from pathlib import Path

import pytest

from trimol import _extras
from trimol.data._files import datasets
from trimol.data._files.datasets import BadData, File, MissingData, Source, source, sources


def test_located_in_the_named_folder_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "trimol" / "things" / "thing.gz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"")
    assert datasets.locate("things", "thing.gz") == cached
    named = tmp_path / "named" / "things" / "thing.gz"
    named.parent.mkdir(parents=True)
    named.write_bytes(b"")
    assert datasets.locate("things", "thing.gz") == named


def test_missing_file_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRIMOL_DATA", raising=False)
    with pytest.raises(MissingData) as error:
        datasets.locate("mnist", "x.gz")
    assert str(error.value) == (
        f"mnist/x.gz is not in {tmp_path}/trimol/mnist (TRIMOL_DATA is not set): fetch it with "
        "`trimol data get mnist`, or point TRIMOL_DATA to a folder that holds mnist/"
    )
    monkeypatch.setenv("TRIMOL_DATA", "/nowhere")
    with pytest.raises(MissingData) as error:
        datasets.locate("toy", "z.csv")
    assert str(error.value) == (
        f"toy/z.csv is not in /nowhere/toy nor in {tmp_path}/trimol/toy: point TRIMOL_DATA to a "
        "folder that holds toy/"
    )


def test_no_package_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(_extras, "import_module", absent)
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "thing.gz").write_bytes(b"")
    assert datasets.locate("things", "thing.gz").parent == tmp_path / "things"
    with pytest.raises(MissingData, match=r"things/other\.gz is not in .* nor in .*trimol"):
        datasets.locate("things", "other.gz")


@pytest.mark.parametrize(
    ("platform", "set_to", "folder"),
    [
        ("linux", {}, "home/.cache/trimol"),
        ("linux", {"XDG_CACHE_HOME": "{here}/own"}, "own/trimol"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/trimol"),
        ("darwin", {}, "home/Library/Caches/trimol"),
        ("darwin", {"XDG_CACHE_HOME": "{here}/own"}, "own/trimol"),
        ("win32", {}, "home/AppData/Local/trimol/trimol/Cache"),
        ("win32", {"LOCALAPPDATA": "{here}/local"}, "local/trimol/trimol/Cache"),
    ],
)
def test_the_user_s_cache_is_where_the_system_has_it(
    platform: str,
    set_to: dict[str, str],
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TRIMOL_CACHE", "TRIMOL_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_to.items():
        monkeypatch.setenv(name, value.format(here=tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert datasets.cache() == tmp_path / folder
    assert list(datasets.places()) == [tmp_path / folder]


def test_weights_are_fetched_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="`trimol data get mobilenet_v2`"):
        datasets.locate("weights", "mobilenet_v2-b0353104.pth")
    with pytest.raises(MissingData, match="`trimol data get office-31`"):
        datasets.locate("office-31", "splits/amazon_train.txt")
    with pytest.raises(MissingData) as error:
        datasets.locate("weights", "another.pth")
    assert "trimol data get" not in str(error.value)


def test_verified_by_the_checksum_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    datasets.verify(path, File("a", 7, sha256=hashlib.sha256(b"content").hexdigest()))
    datasets.verify(path, File("a", None, md5=hashlib.md5(b"content").hexdigest()))
    with pytest.raises(BadData, match=f"{path} is not the file it should be: its MD5 is "):
        datasets.verify(path, File("a", None, md5=hashlib.md5(b"other").hexdigest()))


# --- contents of a folder: counted, and held against its lists ------------------------------------


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


# --- the catalogue: every entry is whole, and its rules give the layout that readers expect -------


@pytest.mark.parametrize("entry", sources().values(), ids=lambda entry: entry.name)
def test_every_source_is_whole(entry: Source) -> None:
    assert entry.names
    assert entry.licence
    assert entry.home.startswith("http")
    assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in entry.mirrors)
    assert all(count > 0 for count in entry.contents.values())
    files = [*entry.files, *([entry.archive.file] if entry.archive else [])]
    for file in files:
        kind, value = file.checksum
        assert len(bytes.fromhex(value)) == {"sha256": 32, "md5": 16}[kind]
        assert file.size is None or file.size > 0
        assert file.addresses or entry.mirrors or entry.by_hand
    # Folders of many files come from somewhere: an archive, or the user.
    assert not entry.contents or entry.archive or entry.by_hand


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"must be one of mnist, fashion, .* found 'mnits'"):
        source("mnits")


@pytest.mark.parametrize("sums", [{}, {"sha256": "00", "md5": "00"}])
def test_one_checksum(sums: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either sha256 or md5 of a must be given"):
        File("a", 1, **sums)


def placed(name: str, member: str) -> str | None:
    archive = source(name).archive
    assert archive is not None
    for pattern, path in archive.rules:
        if found := re.fullmatch(pattern, member):
            return found.expand(path)
    return None


@pytest.mark.parametrize(
    ("name", "member", "path"),
    [
        ("office-31", "amazon/images/mug/frame_0001.jpg", "amazon/images/mug/frame_0001.jpg"),
        ("office-31", "top/dslr/images/mug/frame_0001.jpg", "dslr/images/mug/frame_0001.jpg"),
        ("office-31", "./webcam/images/pen/frame_0001.jpg", "webcam/images/pen/frame_0001.jpg"),
        ("office-31", "amazon/images/mug/._frame_0001.jpg", None),
        ("office-31", "amazon/interest_points/mug/frame_0001.jpg", None),
        ("office-home", "OfficeHomeDataset_10072016/Art/Mug/00001.jpg", "Art/Mug/00001.jpg"),
        ("office-home", "OfficeHomeDataset_10072016/Real World/TV/1.jpg", "Real_World/TV/1.jpg"),
        ("office-home", "OfficeHomeDataset_10072016/imagelist.txt", None),
        ("office-home", "__MACOSX/OfficeHomeDataset_10072016/Art/Mug/._00001.jpg", None),
    ],
)
def test_members_get_the_layout_of_the_readers(name: str, member: str, path: str | None) -> None:
    assert placed(name, member) == path


def test_torchvision_names_weights_by_their_checksum() -> None:
    (weights,) = source("mobilenet_v2").files
    assert weights.checksum[1].startswith("b0353104")
    assert "b0353104" in weights.name
