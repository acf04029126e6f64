"""Archives: unpacked whole or not at all, whatever is in them and whoever is killed."""

import gzip
import io
import random
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from trimol.data._files.datasets import BadData
from trimol.data._files.fetch import unpack

RULES = [(r"top/(one|two)/(.+\.jpg)", r"\1/\2"), (r"top/the third/(.+\.jpg)", r"three/\1")]
CONTENT = {
    "top/one/a/1.jpg": b"1" * 100_000,
    "top/one/a/2.jpg": b"2",
    "top/two/b/1.jpg": b"3",
    "top/the third/b/1.jpg": b"",
    "top/notes.txt": b"not wanted",
}
UNPACKED = {
    "one/a/1.jpg": b"1" * 100_000,
    "one/a/2.jpg": b"2",
    "two/b/1.jpg": b"3",
    "three/b/1.jpg": b"",
}


def zipped(path: Path, content: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("top")
        for name, data in content.items():
            member = zipfile.ZipInfo(name or "none")
            member.filename, member.compress_type = name, zipfile.ZIP_DEFLATED
            with archive.open(member, "w") as stream:
                stream.write(data)
    return path


def tarred(path: Path, content: dict[str, bytes], *odd: tarfile.TarInfo) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        folder = tarfile.TarInfo("top")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in odd:
            archive.addfile(member)
    return path


MAKE = pytest.mark.parametrize(
    ("make", "name"), [(zipped, "a.zip"), (tarred, "a.tar.gz")], ids=["zip", "tar"]
)


def found(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@MAKE
def test_unpacked_by_the_rules(make, name: str, tmp_path: Path) -> None:
    archive, home = make(tmp_path / "from" / name, CONTENT), tmp_path / "home"
    assert unpack(archive, home, RULES) == [home / "one", home / "three", home / "two"]
    assert found(home) == UNPACKED
    assert sorted(path.name for path in home.iterdir()) == ["one", "three", "two"]


@MAKE
def test_what_is_there_is_left(make, name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "one").mkdir(parents=True)
    (home / "one" / "mine").write_bytes(b"mine")
    unpack(make(tmp_path / name, CONTENT), home, RULES)
    kept = {path: data for path, data in UNPACKED.items() if not path.startswith("one/")}
    assert found(home) == {**kept, "one/mine": b"mine"}


def refused(archive: Path, home: Path, rules=RULES) -> str:
    with pytest.raises(BadData) as error:
        unpack(archive, home, rules)
    assert found(home) == {}
    assert list(home.iterdir()) == []
    said = str(error.value)
    assert said.startswith(f"{archive} ")
    assert "\n" not in said
    return said


@MAKE
@pytest.mark.parametrize(
    "member", ["../out.jpg", "top/one/../../../out.jpg", "/out.jpg", "..\\out.jpg", "C:/out.jpg"]
)
def test_a_member_that_leaves_the_folder(make, name: str, member: str, tmp_path: Path) -> None:
    # Windows' separators are turned by zipfile only there: as a name they must be refused anywhere.
    archive = make(tmp_path / "from" / name, {**CONTENT, member: b"bad"})
    said = refused(archive, tmp_path / "home" / "deep")
    assert f"its member {member!r} leaves the folder" in said
    assert list(tmp_path.rglob("out.jpg")) == []


@MAKE
def test_a_rule_does_not_lead_out_either(make, name: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, CONTENT)
    said = refused(archive, tmp_path / "home", [(r"top/(.+)", r"../\1")])
    assert "leaves the folder" in said


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_in_a_tar_file(kind: bytes, tmp_path: Path) -> None:
    odd = tarfile.TarInfo("top/one/a/odd.jpg")
    odd.type, odd.linkname = kind, "/etc/passwd"
    said = refused(tarred(tmp_path / "a.tar.gz", CONTENT, odd), tmp_path / "home")
    assert "its member 'top/one/a/odd.jpg' is no plain file" in said


def test_links_in_a_zip_file(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", CONTENT)
    link = zipfile.ZipInfo("top/two/link.jpg")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    assert "its member 'top/two/link.jpg' is no plain file" in refused(archive, tmp_path / "home")


@MAKE
def test_two_members_for_one_file(make, name: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, CONTENT)
    said = refused(archive, tmp_path / "home", [(r"top/.+\.jpg", "one/same.jpg")])
    assert "has two members for one file, the second is 'top/one/a/2.jpg'" in said


@MAKE
@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("top/one/" + "x" * 300 + ".jpg", "the name 'top/one/xxxx"),
        ("top/one/" + "ü" * 130 + ".jpg", "is too long"),
        ("x" * 300, "is too long"),
        ("top/one/" + "a/" * 2100 + "2.jpg", "is too long"),
        ("top/one/a\x01b.jpg", "its member 'top/one/a\\x01b.jpg' has no name"),
        ("top/one/a", "has two members for one file, the second is 'top/one/a'"),
        ("top/one/a/2.jpg/3.jpg", "has two members for one file, the second is 'top/one/a/2.jpg/3"),
    ],
)
def test_names_that_are_none(make, name: str, member: str, said: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, {**CONTENT, member: b"bad"})
    rules = [*RULES, (r"top/(one/.+)", r"\1")]
    assert said in refused(archive, tmp_path / "home", rules)


@MAKE
@pytest.mark.parametrize("member", ["", ".", "./", "/"])
def test_an_empty_name(make, name: str, member: str, tmp_path: Path) -> None:
    content = {**CONTENT, member: b"bad"}
    home = tmp_path / "home"
    if make is zipped and member.endswith("/"):  # a folder, which is none of ours
        archive = make(tmp_path / name, {**CONTENT, member: b""})
        assert unpack(archive, home, RULES)
    else:
        said = refused(make(tmp_path / name, content), home)
        assert "has no name" in said or "leaves the folder" in said
    # Nor may a rule make one.
    archive = make(tmp_path / f"more-{name}", CONTENT)
    assert "has no name" in refused(archive, tmp_path / "other", [(r"top/one/.+", "")])


@MAKE
def test_limits_of_size_and_number(make, name: str, tmp_path: Path) -> None:
    """A small archive may hold a lot: what it says of its sizes does not count."""
    archive = make(tmp_path / name, {"top/one/a.jpg": bytes(10**6), "top/one/b.jpg": b"b"})
    assert archive.stat().st_size < 10_000
    for limits, said in (
        ({"most_bytes": 10**6}, f"{archive} unpacks to more than 1000000 bytes"),
        ({"most_members": 1}, f"{archive} has more than 1 members: it is no data set"),
    ):
        with pytest.raises(BadData, match=re.escape(said)):
            unpack(archive, tmp_path / "home", RULES, **limits)
        assert list((tmp_path / "home").iterdir()) == []
    assert unpack(archive, tmp_path / "home", RULES, most_bytes=2 * 10**6, most_members=2)


def test_zeros_without_end_behind_a_tar_file(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "a.tar.gz", {"top/one/a.jpg": b"a"})
    with archive.open("ab") as stream:
        stream.write(gzip.compress(bytes(10**6)))
    with pytest.raises(BadData, match="unpacks to more than 1000 bytes"):
        unpack(archive, tmp_path / "home", RULES, most_bytes=1000)


def test_a_locked_member_and_an_unknown_packing(tmp_path: Path) -> None:
    for place, value in ((6, 1), (8, 99)):  # the flags and the method, in both headers of a member
        archive = tmp_path / f"{place}.zip"
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("top/one/a.jpg", b"a")
        content = bytearray(archive.read_bytes())
        content[place] = content[content.index(b"PK\1\2") + place + 2] = value
        archive.write_bytes(content)
        assert "is no whole archive" in refused(archive, tmp_path / "home")


@MAKE
def test_nothing_that_is_wanted(make, name: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, {"readme.txt": b""})
    assert "has none of the files that are wanted" in refused(archive, tmp_path / "home")


@MAKE
@pytest.mark.parametrize("part", [0, 10, 0.5, 0.95])
def test_truncated(make, name: str, part: float, tmp_path: Path) -> None:
    content = {f"top/one/{i}.jpg": random.Random(i).randbytes(500) for i in range(100)}
    archive = make(tmp_path / name, content)
    data = archive.read_bytes()
    archive.write_bytes(data[: int(part if part >= 1 else part * len(data))])
    assert "is no whole archive" in refused(archive, tmp_path / "home")


@MAKE
def test_damaged_in_the_middle(make, name: str, tmp_path: Path) -> None:
    content = {f"top/one/{i}.jpg": random.Random(i).randbytes(500) for i in range(100)}
    archive = make(tmp_path / name, content)
    data = bytearray(archive.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 600] = bytes(600)
    archive.write_bytes(data)
    assert "is no whole archive" in refused(archive, tmp_path / "home")


KILLED = """
import os, signal, shutil, sys
from pathlib import Path
from trimol.data._files import fetch

def dying(call, after):
    done = 0
    def wrapped(*arguments, **named):
        nonlocal done
        if done == after:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return call(*arguments, **named)
    return wrapped

where, after = sys.argv[3], int(sys.argv[4])
if where == "writing":
    shutil.copyfileobj = dying(shutil.copyfileobj, after)
else:
    Path.rename = dying(Path.rename, after)
fetch.unpack(Path(sys.argv[1]), Path(sys.argv[2]), {rules})
"""


@pytest.mark.parametrize(
    ("where", "after", "there"), [("writing", 2, set()), ("moving", 2, {"one", "three"})]
)
def test_killed_in_between(where: str, after: int, there: set[str], tmp_path: Path) -> None:
    archive, home = tarred(tmp_path / "a.tar.gz", CONTENT), tmp_path / "home"
    script = KILLED.replace("{rules}", repr(RULES))
    command = [sys.executable, "-c", script, str(archive), str(home), where, str(after)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    seen = {path.name for path in home.iterdir() if not path.name.startswith(".")}
    assert seen == there
    for name in seen:  # each is whole
        whole = {path: data for path, data in UNPACKED.items() if path.startswith(f"{name}/")}
        assert {f"{name}/{path}": data for path, data in found(home / name).items()} == whole
    unpack(archive, home, RULES)
    assert found(home) == UNPACKED
    assert sorted(path.name for path in home.iterdir()) == ["one", "three", "two"]
