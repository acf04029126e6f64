"""``trimol data``: what is there, fetching it from a server on this machine, and checking it."""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from trimol.cli import main
from trimol.data._files import datasets
from trimol.data._files.datasets import File, Source

CONTENT = b"one small file"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A server that has the file."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "a.gz").write_bytes(CONTENT)
    server = HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served")))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, mirror: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One data set is known, of one file; none is there."""
    file = File("a.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    about = {"licence": "free", "home": "https://example.org"}
    known = {"things": Source("things", "Some things", (mirror,), (file,), **about)}
    monkeypatch.setattr(datasets, "sources", lambda: known)
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "home" / "things"


def test_list_says_what_is_missing_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["things", "Some", "things"]
    assert said[1].strip() == "licence: free (https://example.org)"
    assert said[2].strip() == "not here: trimol data get things"


def test_get_then_list(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "things"]) == 0
    assert (home / "a.gz").read_bytes() == CONTENT
    said = capsys.readouterr()
    assert said.out == f"{home / 'a.gz'}: there, verified\n"
    assert said.err.startswith("things, licence: free (https://example.org)\n")  # before all else
    assert main(["data", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found == {
        "data": "things",
        "title": "Some things",
        "licence": "free",
        "home": "https://example.org",
        "where": str(home),
    }


def test_get_into_another_folder_for_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "elsewhere"
    assert main(["data", "get", "things", "--out", str(out), "--json"]) == 0
    path = out / "things" / "a.gz"
    assert json.loads(capsys.readouterr().out) == {"files": [str(path)]}
    assert path.exists()


def test_another_mirror(mirror: str, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    source = Source(
        "things", "Some things", ("http://127.0.0.1:9/",), datasets.source("things").files
    )
    monkeypatch.setattr(datasets, "sources", lambda: {"things": source})
    assert main(["data", "get", "things", "--mirror", mirror.removesuffix("/")]) == 0
    assert (home / "a.gz").exists()


def failure(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["data", *arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("trimol: ")
    return lines[-1]


def test_one_clear_line_for_what_is_wrong(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "must be one of things, found 'thongs'" in failure(["get", "thongs"], 2, capsys)
    assert "name what to get: things" in failure(["get"], 2, capsys)
    assert "name what to check: things" in failure(["check"], 2, capsys)
    assert "trimol data get things" in failure(["list", "things"], 2, capsys)
    home.mkdir(parents=True)
    (home / "a.gz").write_bytes(CONTENT[:-1])
    said = failure(["get", "things"], 1, capsys)
    assert f"{home / 'a.gz'} is truncated: it has 13 bytes instead of 14" in said


def test_no_mirror_answers(capsys: pytest.CaptureFixture[str]) -> None:
    said = failure(["get", "things", "--mirror", "http://127.0.0.1:9"], 1, capsys)
    assert "cannot fetch a.gz (http://127.0.0.1:9/a.gz: " in said


def test_check(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(["check", "things"], 1, capsys) == f"trimol: {home / 'a.gz'} is not there"
    main(["data", "get", "things"])
    capsys.readouterr()
    assert main(["data", "check", "things"]) == 0
    assert capsys.readouterr().out == f"{home / 'a.gz'}: there, verified\n"
    (home / "a.gz").write_bytes(CONTENT[:-1])
    said = failure(["check", "things"], 1, capsys)
    assert said == f"trimol: {home / 'a.gz'} is truncated: it has 13 bytes instead of 14"


def test_what_people_must_get_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rooms = Source("rooms", "Rooms", (), (), contents={"train": 1}, by_hand="Ask its owner.")
    monkeypatch.setattr(datasets, "sources", lambda: {"rooms": rooms})
    assert "rooms cannot be fetched from here. Ask its owner." in failure(
        ["get", "rooms"], 1, capsys
    )
    assert not (tmp_path / "home").exists()
    (tmp_path / "home" / "rooms" / "train").mkdir(parents=True)
    (tmp_path / "home" / "rooms" / "train" / "0.npy").write_bytes(b"")
    assert main(["data", "check", "rooms"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/home/rooms/train: there, with all its files\n"
