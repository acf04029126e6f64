"""Files that are whole or not there: written under another name, then renamed; read with blame."""

import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars
import torch

from trimol._failures import RunError
from trimol._files import replace

_UNREADABLE = (RuntimeError, EOFError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile)


class StoreError(RunError):
    """A run's folder cannot be used; the message is one line that names it."""


def write(path: Path, content: bytes) -> None:
    """Replace a file by new content: a crash at any moment leaves the old or the new."""
    try:
        replace(path, content)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole."""
    write(path, (json.dumps(content, indent=1) + "\n").encode())


def write_tensors(path: Path, content: Any) -> None:
    """Write tensors and what holds them, such that ``weights_only=True`` reads them."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write(path, buffer.getvalue())


def write_table(path: Path, table: polars.DataFrame) -> None:
    """Write a parquet file, whole."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    write(path, buffer.getvalue())


def read_json(path: Path) -> Any:
    """Read a JSON file, or say which one is damaged."""
    try:
        return json.loads(_read(path))
    except ValueError as error:
        raise _damaged(path, "JSON") from error


def read_tensors(path: Path) -> Any:
    """Read tensors, or say which file is damaged."""
    content = _read(path)
    try:
        return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except _UNREADABLE as error:
        raise _damaged(path, "saved tensors") from error


def read_table(path: Path) -> polars.DataFrame:
    """Read a parquet file, or say which one is damaged."""
    content = _read(path)
    try:
        return polars.read_parquet(io.BytesIO(content))
    except (polars.exceptions.PolarsError, OSError) as error:
        raise _damaged(path, "parquet") from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {path}: {error.strerror}") from error


@contextmanager
def understanding(path: Path) -> Iterator[None]:
    """What is made of a file that can be read must fit; if not, say which file."""
    try:
        yield
    except RunError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreError(
            f"{path} does not fit this run, as if another version wrote it ({reason}): move it "
            "away to begin again"
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _damaged(path: Path, kind: str) -> StoreError:
    return StoreError(f"{path} is damaged or not ours: no readable {kind}; move it away to go on")
