"""Sinks: one line a record, and a file that is whole at any moment."""

import io
import os
from pathlib import Path

import polars
import pytest

from trimol._extras import MissingExtra
from trimol.training import sinks
from trimol.training.records import Record
from trimol.training.sinks import Parquet, Terminal, line


def record(step: int, **more: float) -> Record:
    return {"step": step, "loss/fit": 1.5, "R_opt": 1 / step, **more}


def test_one_line_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    full = record(200) | {"test_loss/fit": 1.75, "metric/accuracy": 0.971, "weight/fit": 1.0}
    full |= {"cosine/a/b": -1.0, "norm/fit": 3.0, "R_gen": -2e-4, "R_opt_low": 0.0, "E_caw": 0.25}
    Terminal()(full)
    Terminal()(record(400))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "step 200 · loss 1.5 · test 1.8 · accuracy 0.97 · weights 1 · opt 5e-3 · gen -2e-4 "
        "· conflict weight 0.25",
        "step 400 · loss 1.5 · opt 2.5e-3",
    ]


def test_long_lines_and_odd_names_stay_as_they_are() -> None:
    file = io.StringIO()
    names = {f"metric/[bold]{i} :smile: of a long name": 0.5 for i in range(9)}
    Terminal(file)(record(1) | names)
    assert file.getvalue() == line(record(1) | names) + "\n"


def test_plain_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    file = io.StringIO()
    Terminal(file)(record(1))
    assert file.getvalue() == "step 1 · loss 1.5 · opt 1\n"


def test_the_file_holds_all_records(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    sink = Parquet(path)
    assert not path.exists()
    sink(record(1))
    sink(record(2, E_ca=0.5))
    table = polars.read_parquet(path)
    assert table["step"].to_list() == [1, 2]
    assert table["step"].dtype == polars.Int64
    assert table["R_opt"].to_list() == [1.0, 0.5]
    assert table["E_ca"].to_list() == [None, 0.5]
    assert os.listdir(tmp_path) == ["metrics.parquet"]


def test_nan_is_kept(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "metrics.parquet")
    sink(record(1, E_ca=float("nan")))
    assert polars.read_parquet(sink.path)["E_ca"].is_nan().to_list() == [True]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Parquet(tmp_path / "metrics.parquet")
    sink(record(1))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sink(record(2))
    monkeypatch.undo()
    assert polars.read_parquet(sink.path)["step"].to_list() == [1]
    assert os.listdir(tmp_path) == ["metrics.parquet"]
    sink(record(3))
    assert polars.read_parquet(sink.path)["step"].to_list() == [1, 3]


def test_an_old_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    Parquet(path)(record(1))
    with pytest.raises(FileExistsError, match=r"metrics.parquet exists: pass resume=True"):
        Parquet(path)


def test_resuming_replaces_what_is_measured_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    first = Parquet(path)
    for step in (2, 4, 6):
        first(record(step))
    resumed = Parquet(path, resume=True)  # from a checkpoint at step 3
    assert polars.read_parquet(path)["step"].to_list() == [2, 4, 6]
    resumed(record(4, E_ca=1.0))
    resumed(record(6))
    table = polars.read_parquet(path)
    assert table["step"].to_list() == [2, 4, 6]
    assert table["E_ca"].to_list() == [None, 1.0, None]


def test_a_damaged_file_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    Parquet(path)(record(2))
    content = path.read_bytes()
    for place in range(0, len(content), 7):  # in the numbers, the names, the footer
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        if b"trimol-sha256:" in damaged:  # without the mark it is a file of somebody else's
            with pytest.raises(ValueError, match=r"^path must be a parquet .*damaged$"):
                Parquet(path, resume=True)
    for other in (b"", b"PAR1PAR1", content[:-9]):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"found .*metrics\.parquet damaged"):
            Parquet(path, resume=True)
    polars.DataFrame({"step": [1]}).write_parquet(path)  # an older version's, which has no digest
    assert Parquet(path, resume=True).rows == [{"step": 1}]


def test_resuming_without_a_file_starts_one(tmp_path: Path) -> None:
    Parquet(tmp_path / "new.parquet", resume=True)(record(1))
    assert (tmp_path / "new.parquet").exists()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must be in a folder that exists, .*nowhere"):
        Parquet(tmp_path / "nowhere" / "metrics.parquet")


def test_without_polars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingExtra, match=r"needs polars: pip install 'trimol\[studies\]'$"):
        Parquet(tmp_path / "metrics.parquet")
