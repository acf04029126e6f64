"""Files of data sets: found where they are, fetched from a server that misbehaves in every way."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trimol import _extras
from trimol.data import files
from trimol.data.files import BadData, DownloadFailed, File, MissingData, Source

CONTENT = bytes(i * i % 251 for i in range(700_000))  # longer than two chunks
FILE = File("thing.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Mirror:
    """What a server does, and what it was asked."""

    content: bytes = CONTENT
    ranges: bool = True  # whether it knows the Range header
    stop_after: int | None = None  # bytes of an answer after which it hangs up
    status: int | None = None  # an error to answer with
    asked: list[str | None] = field(default_factory=list)
    address: str = ""


def handler(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            mirror.asked.append(wanted)
            if mirror.status is not None:
                self.send_error(mirror.status)
                return
            start = 0
            if wanted and mirror.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start else 200)
            body = mirror.content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: mirror.stop_after])

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    return Handler


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no news: some tests want it to."""


@pytest.fixture
def serve() -> Iterator[object]:
    servers = []

    def start(mirror: Mirror) -> Mirror:
        server = Server(("127.0.0.1", 0), handler(mirror))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        servers.append(server)
        mirror.address = f"http://127.0.0.1:{server.server_port}/"
        return mirror

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def fetch(folder: Path, *mirrors: Mirror, watch: files.Watch | None = None) -> Path:
    source = Source("things", "Things", tuple(m.address for m in mirrors), (FILE,))
    (path,) = files.get(source, folder, watch=watch)
    return path


def part(folder: Path, content: bytes) -> Path:
    path = folder / "things" / "thing.gz.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_good_file_with_progress(serve, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = fetch(tmp_path, serve(Mirror()), watch=lambda *state: seen.append(state))
    assert path == tmp_path / "things" / "thing.gz"
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["thing.gz"]
    assert seen[0] == ("thing.gz", 0, FILE.size)
    assert seen[-1] == ("thing.gz", FILE.size, FILE.size)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_whole_file_is_not_fetched_again(serve, tmp_path: Path) -> None:
    mirror = serve(Mirror())
    fetch(tmp_path, mirror)
    fetch(tmp_path, mirror)
    assert len(mirror.asked) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[:1000], "is truncated: it has 1000 bytes instead of 700000"),
        (CONTENT + b"!", "is too long: it has 700001 bytes instead of 700000"),
        (b"!" + CONTENT[1:], "is not the file it should be: its SHA-256 is "),
    ],
)
def test_a_wrong_file_that_is_there_is_named_and_left(
    serve, tmp_path: Path, content: bytes, message: str
) -> None:
    mirror = serve(Mirror())
    path = fetch(tmp_path, mirror)
    path.write_bytes(content)
    with pytest.raises(BadData) as error:
        fetch(tmp_path, mirror)
    assert str(error.value).startswith(f"{path} {message}")
    assert path.read_bytes() == content
    assert len(mirror.asked) == 1


def test_wrong_checksum_goes_on_to_the_next_mirror(serve, tmp_path: Path) -> None:
    wrong, good = serve(Mirror(content=b"!" + CONTENT[1:])), serve(Mirror())
    assert fetch(tmp_path, wrong, good).read_bytes() == CONTENT
    assert good.asked == [None]  # nothing of the wrong file was kept


def test_wrong_checksum_everywhere_is_refused(serve, tmp_path: Path) -> None:
    wrong = serve(Mirror(content=b"!" + CONTENT[1:]))
    with pytest.raises(DownloadFailed) as error:
        fetch(tmp_path, wrong)
    assert str(error.value).startswith(
        f"cannot fetch thing.gz ({wrong.address}: what it serves is not the file it should be"
    )
    assert list((tmp_path / "things").iterdir()) == []


@pytest.mark.parametrize("extra", [b"!", b"!" * 10_000_000])
def test_too_long_is_refused(serve, tmp_path: Path, extra: bytes) -> None:
    with pytest.raises(DownloadFailed, match="is too long"):
        fetch(tmp_path, serve(Mirror(content=CONTENT + extra)))


def test_truncated_is_kept_and_resumed(serve, tmp_path: Path) -> None:
    short = serve(Mirror(stop_after=300_000))
    with pytest.raises(DownloadFailed, match=r"thing\.gz"):
        fetch(tmp_path, short)
    assert not (tmp_path / "things" / "thing.gz").exists()
    kept = (tmp_path / "things" / "thing.gz.part").read_bytes()
    assert kept == CONTENT[: len(kept)]
    assert len(kept) > 0
    good = serve(Mirror())
    assert fetch(tmp_path, good).read_bytes() == CONTENT
    assert good.asked == [f"bytes={len(kept)}-"]


def test_second_mirror_goes_on_where_the_first_stopped(serve, tmp_path: Path) -> None:
    short, good = serve(Mirror(stop_after=300_000)), serve(Mirror())
    assert fetch(tmp_path, short, good).read_bytes() == CONTENT
    assert good.asked[0] is not None


def test_server_without_ranges_starts_over(serve, tmp_path: Path) -> None:
    part(tmp_path, CONTENT[:1000])
    mirror = serve(Mirror(ranges=False))
    assert fetch(tmp_path, mirror).read_bytes() == CONTENT
    assert mirror.asked == ["bytes=1000-"]


@pytest.mark.parametrize("bad", [b"<html>not here</html>", b"!" * len(CONTENT), CONTENT + b"!"])
def test_bad_beginning_is_dropped(serve, tmp_path: Path, bad: bytes) -> None:
    part(tmp_path, bad)
    mirror = serve(Mirror())
    assert fetch(tmp_path, mirror).read_bytes() == CONTENT
    assert mirror.asked[-1] is None


def test_mirrors_that_are_down(serve, tmp_path: Path) -> None:
    gone, broken = Mirror(address="http://127.0.0.1:9/"), serve(Mirror(status=503))
    assert fetch(tmp_path, gone, broken, serve(Mirror())).read_bytes() == CONTENT


def test_all_mirrors_down_names_each(serve, tmp_path: Path) -> None:
    gone, broken = Mirror(address="http://127.0.0.1:9/"), serve(Mirror(status=404))
    with pytest.raises(DownloadFailed) as error:
        fetch(tmp_path, gone, broken)
    message = str(error.value)
    assert message.startswith("cannot fetch thing.gz (http://127.0.0.1:9/: ")
    assert f"{broken.address}: HTTP Error 404: Not Found)" in message
    assert "\n" not in message


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


def test_fetched_into_the_first_place(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    source = Source("things", "Things", (), (FILE,))
    files.get(source, mirrors=[serve(Mirror()).address])
    assert files.locate("things", "thing.gz") == tmp_path / "things" / "thing.gz"


def test_every_source_is_whole() -> None:
    for name, source in files.sources().items():
        assert source.name == name
        assert source.mirrors
        assert all(mirror.startswith("http") and mirror.endswith("/") for mirror in source.mirrors)
        assert all(len(bytes.fromhex(file.sha256)) == 32 and file.size > 0 for file in source.files)
    with pytest.raises(ValueError, match="data set must be one of mnist, fashion, found 'mnits'"):
        files.source("mnits")
