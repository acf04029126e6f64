"""Files of data sets: found where they are, and refused if they are not what they must be."""

import hashlib
import sys
from pathlib import Path

import pytest

from trimol import _extras
from trimol.paper._data import datasets
from trimol.paper._data.datasets import BadData, File, MissingData


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
