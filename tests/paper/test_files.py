"""Files of data sets: found where they are, and refused if they are not what they must be."""

import hashlib
from pathlib import Path

import pytest

from trimol import _extras
from trimol.paper._data import places as files
from trimol.paper._data.places import BadData, MissingData
from trimol.paper._data.sources import File


def test_located_in_the_named_folder_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "trimol" / "things" / "thing.gz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"")
    assert files.locate("things", "thing.gz") == cached
    named = tmp_path / "named" / "things" / "thing.gz"
    named.parent.mkdir(parents=True)
    named.write_bytes(b"")
    assert files.locate("things", "thing.gz") == named


def test_missing_file_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRIMOL_DATA", raising=False)
    with pytest.raises(MissingData) as error:
        files.locate("mnist", "x.gz")
    assert str(error.value) == (
        f"mnist/x.gz is not in {tmp_path}/trimol/mnist (TRIMOL_DATA is not set): fetch it with "
        "`trimol data get mnist`, or point TRIMOL_DATA to a folder that holds mnist/"
    )
    monkeypatch.setenv("TRIMOL_DATA", "/nowhere")
    with pytest.raises(MissingData) as error:
        files.locate("toy", "z.csv")
    assert str(error.value) == (
        f"toy/z.csv is not in /nowhere/toy nor in {tmp_path}/trimol/toy: point TRIMOL_DATA to a "
        "folder that holds toy/"
    )


def test_named_folder_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(_extras, "import_module", absent)
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "thing.gz").write_bytes(b"")
    assert files.locate("things", "thing.gz").parent == tmp_path / "things"
    with pytest.raises(ImportError, match="cache of data sets needs pooch"):
        files.locate("things", "other.gz")


def test_weights_are_fetched_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    with pytest.raises(MissingData, match="`trimol data get mobilenet_v2`"):
        files.locate("weights", "mobilenet_v2-b0353104.pth")
    with pytest.raises(MissingData, match="`trimol data get office-31`"):
        files.locate("office-31", "splits/amazon_train.txt")
    with pytest.raises(MissingData) as error:
        files.locate("weights", "another.pth")
    assert "trimol data get" not in str(error.value)


def test_verified_by_the_checksum_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    files.verify(path, File("a", 7, sha256=hashlib.sha256(b"content").hexdigest()))
    files.verify(path, File("a", None, md5=hashlib.md5(b"content").hexdigest()))
    with pytest.raises(BadData, match=f"{path} is not the file it should be: its MD5 is "):
        files.verify(path, File("a", None, md5=hashlib.md5(b"other").hexdigest()))
