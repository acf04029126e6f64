"""Where a monitor's records go: the terminal, a parquet file.

A sink is any function of a record (`trimol.training.records`), and may have ``close()``. Those for
other tools are in `trimol.integrations`.
"""

import sys
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TextIO

from trimol import _digests as digests
from trimol._extras import require
from trimol._failures import BadValue
from trimol._files import read, replace
from trimol._terminal import clean
from trimol.errors._measure import short
from trimol.training._tally import percent
from trimol.training.records import ERRORS, Record


class Terminal:
    """One compact line a record, on stderr: the step, the losses, the metrics, the errors.

    In colour where rich (the ``studies`` extra) is installed and the terminal has it.

    Args:
        file: Where to write instead.

    Example:
        >>> import sys
        >>> record = {"step": 200, "loss/fit": 0.53, "loss/slope": 2.0, "metric/accuracy": 0.971}
        >>> Terminal(sys.stdout)(record | {"R_opt": 0.0019, "R_gen": -2e-4, "E_ca": 4e-5})
        step 200 · loss 0.53 2 · accuracy 0.97 · opt 1.9e-3 · gen -2e-4 · conflict 4e-5
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file

    def __call__(self, record: Record) -> None:
        """Write the line."""
        file = self.file or sys.stderr  # looked up now: tests and notebooks replace it
        if find_spec("rich") is None:
            print(clean(line(record)), file=file, flush=True)
            return
        console = require("rich.console", extra="studies", purpose="colour").Console(file=file)
        console.print(clean(line(record)), soft_wrap=True, markup=False, emoji=False)


class Parquet:
    """All records so far in a parquet file, one row each: whole at any moment, or not there.

    Each record rewrites the file, under another name that is then renamed: a crash leaves the old
    file or the new one. It holds a digest of its content, in its metadata, which is checked before
    it is continued. Needs polars (the ``studies`` extra).

    Args:
        path: The file.
        resume: Whether to continue a file that exists. The first new record replaces what the file
            has of its step and later ones, which a resumed loop measures anew. Without, a file
            that exists is an error.

    Example:
        >>> import polars, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.parquet"
        >>> sink = Parquet(path)
        >>> sink({"step": 1, "R_opt": 0.5}); sink({"step": 2, "R_opt": 0.25})
        >>> polars.read_parquet(path)["R_opt"].to_list()
        [0.5, 0.25]
    """

    def __init__(self, path: str | Path, *, resume: bool = False) -> None:
        self._polars = require("polars", extra="studies", purpose="the parquet sink")
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise BadValue(f"path must be in a folder that exists, found {self.path}")
        if self.path.exists() and not resume:
            raise FileExistsError(
                f"{self.path} exists: pass resume=True to continue it, or another path"
            )
        rows = self._read() if self.path.exists() else []
        # A key that a record has not is a null in its row.
        self.rows: list[Record] = [
            {key: value for key, value in row.items() if value is not None} for row in rows
        ]
        self._resumed = bool(rows)

    def __call__(self, record: Record) -> None:
        """Add a row."""
        if self._resumed:
            self.rows = [row for row in self.rows if row["step"] < record["step"]]
            self._resumed = False
        rows = [*self.rows, dict(record)]
        buffer = BytesIO()
        table = self._polars.from_dicts(rows, infer_schema_length=None)
        table.write_parquet(buffer, metadata={digests.KEY: digests.PLACE.decode()})
        digests.seal(buffer)
        replace(self.path, buffer.getvalue())
        self.rows = rows  # what is in the file: a write that failed adds nothing

    def _read(self) -> list[Record]:
        """The rows of the file that is there, checked first: polars ends the process on some."""
        content, errors = read(self.path), self._polars.exceptions
        whole = content[:4] == content[-4:] == b"PAR1" and digests.intact(content)
        if whole:
            with suppress(errors.PolarsError, errors.PanicException, OSError):
                rows: list[Record] = self._polars.read_parquet(BytesIO(content)).to_dicts()
                return rows
        raise BadValue(f"path must be a parquet file as it was written, found {self.path} damaged")


def line(record: Record) -> str:
    """A record in one line.

    >>> line({"step": 3, "loss/0": 1.5, "test_loss/0": 1.75, "weight/0": 1.0, "R_opt": 0.25})
    'step 3 · loss 1.5 · test 1.8 · weights 1 · opt 0.25'
    >>> line({"step": 3, "kept": 1, "R_opt": 0.25})
    'step 3 · kept 1 · opt 0.25'
    >>> line({"step": 3, "steps_raise_some": 0.84, "steps_raise_all": 0.03})
    'step 3 · steps that raise some 84 % all 3 %'
    """
    parts = [f"{name} {record[name]}" for name in ("step", "kept") if name in record]
    for prefix, name in {"loss/": "loss", "test_loss/": "test"}.items():
        parts += _joined(name, record, prefix)
    parts += [
        f"{key.removeprefix('metric/')} {short(value)}"
        for key, value in record.items()
        if key.startswith("metric/")
    ]
    parts += _joined("weights", record, "weight/")
    parts += [
        f"{name.replace('_', ' ')} {short(record[key])}"
        for key, name in ERRORS.items()
        if key in record
    ]
    for kind, name in {"steps": "steps that raise", "full": "on all data"}.items():
        if f"{kind}_raise_some" in record:
            some, every = (percent(record[f"{kind}_raise_{share}"]) for share in ("some", "all"))
            parts.append(f"{name} some {some} all {every}")
    return " · ".join(parts)


def _joined(name: str, record: Record, prefix: str) -> list[str]:
    values = [short(value) for key, value in record.items() if key.startswith(prefix)]
    return [f"{name} {' '.join(values)}"] if values else []
