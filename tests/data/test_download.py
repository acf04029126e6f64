"""Downloads, from a server that misbehaves in every way."""

import hashlib
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trimol.data._files import fetch as files
from trimol.data._files.datasets import BadData, File
from trimol.data._files.fetch import DownloadFailed, Watch, download

CONTENT = bytes(i * i % 251 for i in range(700_000))  # longer than two chunks
FILE = File("thing.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
UNSIZED = File("thing.gz", None, md5=hashlib.md5(CONTENT).hexdigest())
BOTH = pytest.mark.parametrize("file", [FILE, UNSIZED], ids=["size", "no size"])


@dataclass
class Mirror:
    """What a server does, and what it was asked."""

    content: bytes = CONTENT
    ranges: bool = True  # whether it knows the Range header
    stop_after: int | None = None  # bytes of an answer after which it hangs up
    status: int | None = None  # an error to answer with
    kind: str = "application/octet-stream"
    length: bool = True  # whether it says how much it will send
    slow: str = ""  # what it sends byte by byte, a hundred a second: "headers" or "body"
    asked: list[str | None] = field(default_factory=list)
    address: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)


def handler(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            mirror.asked.append(wanted)
            if mirror.slow == "headers":
                self.drip(b"HTTP/1.1 200 OK\r\nX-Long: " + CONTENT)
                return
            if mirror.status is not None:
                self.send_error(mirror.status)
                return
            start = 0
            if wanted and mirror.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start and start >= len(mirror.content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            body = mirror.content[start:]
            self.send_header("Content-Type", mirror.kind)
            if mirror.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if mirror.slow == "body":
                self.drip(body)
                return
            self.wfile.write(body[: mirror.stop_after])

        def drip(self, content: bytes) -> None:
            for place in range(len(content)):
                if mirror.stopped.wait(0.01):
                    return
                self.wfile.write(content[place : place + 1])

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    return Handler


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no news: some tests want it to."""


@pytest.fixture
def serve() -> Iterator[object]:
    servers, mirrors = [], []

    def start(mirror: Mirror) -> Mirror:
        mirrors.append(mirror)
        server = Server(("127.0.0.1", 0), handler(mirror))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        servers.append(server)
        mirror.address = f"http://127.0.0.1:{server.server_port}/thing.gz"
        return mirror

    yield start
    for mirror in mirrors:
        mirror.stopped.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def fetch(folder: Path, *mirrors: Mirror, watch: Watch | None = None, file: File = FILE) -> Path:
    return download(file, folder / "things", [m.address for m in mirrors], watch)


def part(folder: Path, content: bytes) -> Path:
    path = folder / "things" / "thing.gz.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


@BOTH
def test_good_file_with_progress(serve, tmp_path: Path, file: File) -> None:
    seen: list[tuple[str, int, int]] = []
    path = fetch(tmp_path, serve(Mirror()), watch=lambda *state: seen.append(state), file=file)
    assert path == tmp_path / "things" / "thing.gz"
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["thing.gz"]
    assert seen[0] == ("thing.gz", 0, FILE.size)
    assert seen[-1] == ("thing.gz", FILE.size, FILE.size)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


@BOTH
def test_a_whole_file_is_not_fetched_again(serve, tmp_path: Path, file: File) -> None:
    mirror = serve(Mirror())
    fetch(tmp_path, mirror, file=file)
    fetch(tmp_path, mirror, file=file)
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


@BOTH
def test_wrong_checksum_goes_on_to_the_next_mirror(serve, tmp_path: Path, file: File) -> None:
    wrong, good = serve(Mirror(content=b"!" + CONTENT[1:])), serve(Mirror())
    assert fetch(tmp_path, wrong, good, file=file).read_bytes() == CONTENT
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


@BOTH
def test_truncated_is_kept_and_resumed(serve, tmp_path: Path, file: File) -> None:
    short = serve(Mirror(stop_after=300_000))
    with pytest.raises(DownloadFailed, match=r"thing\.gz"):
        fetch(tmp_path, short, file=file)
    assert not (tmp_path / "things" / "thing.gz").exists()
    kept = (tmp_path / "things" / "thing.gz.part").read_bytes()
    assert kept == CONTENT[: len(kept)]
    assert len(kept) > 0
    good = serve(Mirror())
    assert fetch(tmp_path, good, file=file).read_bytes() == CONTENT
    assert good.asked == [f"bytes={len(kept)}-"]


@BOTH
def test_second_mirror_goes_on_where_the_first_stopped(serve, tmp_path: Path, file: File) -> None:
    short, good = serve(Mirror(stop_after=300_000)), serve(Mirror())
    assert fetch(tmp_path, short, good, file=file).read_bytes() == CONTENT
    assert good.asked[0] is not None


@BOTH
def test_server_without_ranges_starts_over(serve, tmp_path: Path, file: File) -> None:
    part(tmp_path, CONTENT[:1000])
    mirror = serve(Mirror(ranges=False))
    assert fetch(tmp_path, mirror, file=file).read_bytes() == CONTENT
    assert mirror.asked == ["bytes=1000-"]


@pytest.mark.parametrize("bad", [b"<html>not here</html>", b"!" * len(CONTENT), CONTENT + b"!"])
@BOTH
def test_bad_beginning_is_dropped(serve, tmp_path: Path, bad: bytes, file: File) -> None:
    part(tmp_path, bad)
    mirror = serve(Mirror())
    assert fetch(tmp_path, mirror, file=file).read_bytes() == CONTENT
    assert mirror.asked[-1] is None


@BOTH
def test_mirrors_that_are_down(serve, tmp_path: Path, file: File) -> None:
    gone, broken = Mirror(address="http://127.0.0.1:9/"), serve(Mirror(status=503))
    assert fetch(tmp_path, gone, broken, serve(Mirror()), file=file).read_bytes() == CONTENT


def test_all_mirrors_down_names_each(serve, tmp_path: Path) -> None:
    gone, broken = Mirror(address="http://127.0.0.1:9/"), serve(Mirror(status=404))
    with pytest.raises(DownloadFailed) as error:
        fetch(tmp_path, gone, broken)
    message = str(error.value)
    assert message.startswith("cannot fetch thing.gz (http://127.0.0.1:9/: ")
    assert f"{broken.address}: HTTP Error 404: Not Found)" in message
    assert "\n" not in message


@BOTH
def test_a_whole_part_only_lacks_its_name(serve, tmp_path: Path, file: File) -> None:
    kept = part(tmp_path, CONTENT)
    mirror = serve(Mirror())
    assert fetch(tmp_path, mirror, file=file).read_bytes() == CONTENT
    assert mirror.asked in ([], [f"bytes={len(CONTENT)}-"])  # not sent again
    assert not kept.exists()


@BOTH
def test_a_web_page_does_not_replace_a_good_beginning(serve, tmp_path: Path, file: File) -> None:
    kept = part(tmp_path, CONTENT[:1000])
    page = serve(Mirror(content=b"<html>quota</html>", ranges=False, kind="text/html"))
    with pytest.raises(DownloadFailed, match="it serves a web page instead of the file"):
        fetch(tmp_path, page, file=file)
    assert kept.read_bytes() == CONTENT[:1000]


def test_neither_side_knows_the_size(serve, tmp_path: Path) -> None:
    seen: list[int | None] = []
    mirror = serve(Mirror(length=False))
    path = fetch(tmp_path, mirror, watch=lambda *state: seen.append(state[2]), file=UNSIZED)
    assert path.read_bytes() == CONTENT
    assert set(seen) == {None}


def test_cut_off_while_neither_side_knows_the_size(serve, tmp_path: Path) -> None:
    mirror = serve(Mirror(length=False, stop_after=300_000))
    with pytest.raises(DownloadFailed, match="what it serves is not the file it should be"):
        fetch(tmp_path, mirror, file=UNSIZED)
    assert list((tmp_path / "things").iterdir()) == []


def test_a_file_in_a_folder(serve, tmp_path: Path) -> None:
    inside = File("splits/a.txt", FILE.size, FILE.sha256)
    path = download(inside, tmp_path, [serve(Mirror()).address])
    assert path == tmp_path / "splits" / "a.txt"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("slow", "said"),
    [("headers", "no answer within 0 seconds"), ("body", "it sends less than 1000 bytes per s")],
)
def test_a_mirror_that_drips_counts_as_down(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, said: str
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    dripping = serve(Mirror(slow=slow))
    with pytest.raises(DownloadFailed, match=said):
        fetch(tmp_path, dripping)
    monkeypatch.setattr(files, "_PATIENCE", 30.0)
    good = serve(Mirror())
    assert fetch(tmp_path, good).read_bytes() == CONTENT
    # What had come is kept.
    assert (good.asked[0] is not None) == (slow == "body")


def test_a_mirror_has_so_much_time_in_all(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_ALL_DAY", 0.0)
    with pytest.raises(DownloadFailed, match="it took more than 0 hours"):
        fetch(tmp_path, serve(Mirror()))


def test_no_more_than_a_data_set_can_have_is_taken(
    serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_BYTES", 1000)
    with pytest.raises(DownloadFailed, match=r"thing\.gz"):
        fetch(tmp_path, serve(Mirror(content=bytes(50_000_000))), file=UNSIZED)
    assert (tmp_path / "things" / "thing.gz.part").stat().st_size < 2**20


def test_a_link_planted_as_the_part_is_not_written_through(serve, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for content in (b"", b"precious"):
        victim.write_bytes(content)
        (tmp_path / "things").mkdir(exist_ok=True)
        (tmp_path / "things" / "thing.gz.part").symlink_to(victim)
        with suppress(DownloadFailed):  # what it leads to is no beginning of the file
            fetch(tmp_path, serve(Mirror()))
        assert victim.read_bytes() == content
        shutil.rmtree(tmp_path / "things")
