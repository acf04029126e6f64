"""Files are written whole, never through a link, and nothing is waited for that is none."""

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trimol import _files as files


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside the folder that is written to."""
    (tmp_path / "outside").mkdir()
    file = tmp_path / "outside" / "precious"
    file.write_bytes(b"precious")
    return file


@pytest.mark.parametrize("plant", [os.symlink, os.link], ids=["link", "second name"])
def test_what_is_planted_under_a_temporary_name_is_not_written_to(
    tmp_path: Path, victim: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(victim, tmp_path / ".note.part")
    files.replace(tmp_path / "note", b"mine")
    plant(victim, tmp_path / "more")
    with pytest.raises(OSError, match=r"symbolic links|another name"):
        files.growing(tmp_path / "more", keep=True)
    with files.growing(tmp_path / "more", keep=False) as file:
        file.write(b"mine")
    assert [(tmp_path / name).read_bytes() for name in ("note", "more")] == [b"mine"] * 2
    assert victim.read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["more", "note", "outside"]


def test_a_link_under_the_name_itself_is_replaced(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "note").symlink_to(victim)
    files.replace(tmp_path / "note", b"mine")
    assert not (tmp_path / "note").is_symlink()
    assert victim.read_bytes() == b"precious"


def test_what_a_crash_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    (tmp_path / ".note.part").write_bytes(b"half of something long")
    files.replace(tmp_path / "note", b"mine")
    assert os.listdir(tmp_path) == ["note"]
    assert files.read(tmp_path / "note") == b"mine"


def test_an_error_while_writing_leaves_the_old_file_alone(tmp_path: Path) -> None:
    files.replace(tmp_path / "note", b"old")

    def interrupted() -> None:
        with files.writing(tmp_path / "note") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == ["note"]
    assert files.read(tmp_path / "note") == b"old"


def test_a_new_file_can_be_mapped_into_memory(tmp_path: Path) -> None:
    with files.writing(tmp_path / "numbers") as file:
        mapped = np.memmap(file, np.int64, "r+", 0, (3,))
        mapped[:] = 1, 2, 3
    assert np.fromfile(tmp_path / "numbers", np.int64).tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            bound.bind(str(path))
        else:
            path.symlink_to("/dev/zero")
        said = "No such device" if kind == "socket" else "it is not a regular file"
        with pytest.raises(OSError, match=said):
            files.read(path)
    with pytest.raises(IsADirectoryError):
        files.read(tmp_path)


def test_folders_nested_too_deeply_are_refused_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="at most 200 nested folders are allowed, found") as refused:
        files.make_folder(tmp_path / ("a/" * 2000))
    assert len(str(refused.value)) < 400
    assert os.listdir(tmp_path) == []
    files.make_folder(tmp_path / ("a/" * 150))
    assert (tmp_path / ("a/" * 150)).is_dir()


def test_files_are_found_below_a_folder_however_deep_it_is(tmp_path: Path) -> None:
    for home in (tmp_path, tmp_path / "b", tmp_path / "a" / "c"):
        home.mkdir(exist_ok=True, parents=True)
        (home / "it").touch()
    (tmp_path / "around").symlink_to(tmp_path)
    (tmp_path / "b" / "nowhere").mkdir()
    (tmp_path / "b" / "nowhere" / "it").symlink_to("it")
    here, deep = os.getcwd(), 1100  # as deep as no recursive walk gets
    os.chdir(tmp_path)
    try:
        for _ in range(deep):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    found = [path.relative_to(tmp_path).as_posix() for path in files.find(tmp_path, "it")]
    assert found == ["a/c/it", "b/it", "it"]
    assert files.find(tmp_path / "none", "it") == []
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # pytest's own walk is recursive
