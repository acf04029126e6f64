"""Files that are whole or not there, checked before they are read, with blame for damaged ones.

Each is written under another name, then renamed, and holds the digest of its own content
(:mod:`trimol._digests`). A file without one (an older version's, somebody else's) is read
unchecked, but for the zip's own checksums.
"""

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars
import torch

from trimol import _digests as digests
from trimol import _files
from trimol._failures import RunError
from trimol._warnings import say

_UNREADABLE = (
    *(RuntimeError, EOFError, LookupError, ValueError, TypeError, NotImplementedError),
    *(pickle.UnpicklingError, zipfile.BadZipFile, OSError),
)
_MISFITS = (
    *(LookupError, TypeError, AttributeError, ValueError, RuntimeError, OverflowError),
    polars.exceptions.PolarsError,
)
_PARQUET = b"PAR1"  # at both ends


class StoreError(RunError):
    """A run's folder cannot be used; the message is one line that names it."""


class Damaged(StoreError):
    """A file is not as it was written, or gone though there was one."""

    @property
    def flaw(self) -> str:
        """Which file, and what is wrong with it."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.flaw}; move it away to go on (what resumes makes it again)"


def write(path: Path, content: bytes | memoryview, *, keep: Path | None = None) -> None:
    """Replace a file by new content: a crash at any moment leaves the old or the new."""
    with _changing(path):
        _files.replace(path, content, keep=keep)


def write_json(path: Path, content: dict[str, Any]) -> str:
    """Write a JSON file, whole; its digest."""
    marked = {**content, digests.KEY: digests.PLACE.decode()}
    text = json.dumps(marked, indent=1) + "\n"
    return _write_sealed(path, io.BytesIO(text.encode()))


def write_tensors(path: Path, content: Any, *, keep: Path | None = None) -> str:
    """Write tensors and what holds them, such that ``weights_only=True`` reads them; the digest."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    buffer.seek(-2, io.SEEK_END)  # an archive ends with the length of its comment, and the comment
    buffer.write(len(digests.PLACE).to_bytes(2, "little") + digests.PLACE)
    return _write_sealed(path, buffer, keep=keep)


def write_table(path: Path, table: polars.DataFrame) -> str:
    """Write a parquet file, whole; its digest."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, metadata={digests.KEY: digests.PLACE.decode()})
    return _write_sealed(path, buffer)


def read_json(path: Path, *, digest: str | None = None) -> Any:
    """Read a JSON file, or say which one is damaged; with a digest, it must be that very file."""
    try:
        found = json.loads(check(path, digest=digest))
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, "JSON") from error
    if isinstance(found, dict) and str(found.get(digests.KEY)).startswith(digests.MARK.decode()):
        del found[digests.KEY]
    return found


def read_tensors(path: Path, *, digest: str | None = None) -> Any:
    """Read tensors, or say which file is damaged; with a digest, it must be that very file."""
    content = check(path, digest=digest)
    try:
        marked = digests.written(content) is not None
        if not marked and zipfile.ZipFile(io.BytesIO(content)).testzip() is not None:
            raise _unreadable(path, "saved tensors")  # torch does not look at the checksums
        return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except _UNREADABLE as error:
        raise _unreadable(path, "saved tensors") from error


def read_table(path: Path, *, digest: str | None = None) -> polars.DataFrame:
    """Read a parquet file, or say which one is damaged; with a digest, it must be that very file.

    Polars panics, or ends the process, on some damaged files: they are checked before.
    """
    content = check(path, digest=digest)
    if not (content.startswith(_PARQUET) and content.endswith(_PARQUET)):
        raise _unreadable(path, "parquet")
    try:
        return polars.read_parquet(io.BytesIO(content))
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise _unreadable(path, "parquet") from error


def check(path: Path, *, digest: str | None = None) -> bytes:
    """The content of a file that is as it was written.

    Args:
        path: The file.
        digest: That of the very file that must be there.

    Raises:
        Damaged: It is not; or it is not there, though there must be one.
        StoreError: It cannot be read.
    """
    try:
        content = _files.read(path)
    except FileNotFoundError as error:
        kind = StoreError if digest is None else Damaged
        raise kind(f"cannot read {path}: {error.strerror}") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if not digests.intact(content):
        json_key = f' (if you edited it, delete its "{digests.KEY}")'
        by_hand = json_key if path.suffix == ".json" else ""
        raise Damaged(f"{path} is damaged: its content is not what its digest says{by_hand}")
    if digest is not None and digests.written(content) != digest:
        raise Damaged(f"{path} is another file than the one that was written here")
    return content


def earlier(checkpoint: Path) -> Path:
    """Where the checkpoint before this one is kept."""
    return checkpoint.with_suffix(".previous")


def newest(checkpoint: Path, step_of: Callable[[Any], int | None]) -> Any:
    """The content of the newest checkpoint that can be gone on from; None if there is none.

    It then has the first name. A later one that is damaged is gone, and that is said.

    Args:
        checkpoint: The name of the newest.
        step_of: The step of a content; None if it is of no use. It may find it `Damaged`, too.
    """
    flaws = []
    for file in (checkpoint, earlier(checkpoint)):
        if not file.exists():
            continue
        try:
            kept = read_tensors(file)
            with understanding(file):
                step = step_of(kept)
        except Damaged as error:
            flaws.append(error.flaw)
            continue
        if step is not None:
            if flaws:
                say(f"{flaws[0]}: going on from the checkpoint before it, of step {step}")
            if file != checkpoint:
                with _changing(checkpoint):
                    file.replace(checkpoint)
            return kept
    if flaws:
        all_flaws = "; ".join(dict.fromkeys(flaws))
        say(f"{all_flaws}: no other checkpoint is there, it begins again")
    drop(checkpoint)
    return None


def drop(checkpoint: Path) -> None:
    """Remove a checkpoint and the one before it."""
    for file in (earlier(checkpoint), checkpoint):
        with _changing(file):
            file.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        _files.make_folder(path)
    except OSError as error:
        shown = _files.shown(path)
        raise StoreError(f"cannot make the folder {shown}: {error.strerror}") from error


@contextmanager
def understanding(path: Path) -> Iterator[None]:
    """What is made of a file that can be read must fit; if not, say which file."""
    try:
        yield
    except RunError:
        raise
    except _MISFITS as error:
        lines = [line.strip() for line in str(error).strip().splitlines()]
        reason = " ".join(lines[:2]) or type(error).__name__
        raise StoreError(
            f"{path} does not fit this run, as if another version wrote it ({reason}): move it "
            "away to begin again"
        ) from error


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """A file that cannot be written, renamed or removed is named."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def _write_sealed(path: Path, buffer: io.BytesIO, *, keep: Path | None = None) -> str:
    """Put the digest in the place that the content has for it, and write it."""
    digest = digests.seal(buffer)
    write(path, buffer.getbuffer(), keep=keep)
    return digest


def _unreadable(path: Path, kind: str) -> Damaged:
    return Damaged(f"{path} is damaged or not ours: no readable {kind}")
