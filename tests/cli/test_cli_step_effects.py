"""Optimizers and looks at the steps, through the commands that a user types."""

import json
from pathlib import Path

import pytest

from trimol.cli import main
from trimol.report import _printed as printed
from trimol.runs import store

SMALL = ["--steps", "12", "--quiet", "--measure-every", "0"]
WATCHED = [*SMALL, "--optimizer", "adam", "--watch-every", "2"]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def test_run_says_what_its_steps_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "digits", "--lr", "0.01", *WATCHED, "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "lr=0.01, optimizer=adam" in out
    assert "Steps: of 6 steps looked at, " in out
    run = store.load("run")
    assert run.config.optimizer == "adam"
    assert run.config.watch_every == 2
    assert run.record["steps_looked"] == 6
    assert "full_looked" not in run.record


def test_run_looks_at_all_data_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--watch-full-every", "3", "--out", "run"]
    assert main(["run", "digits", "--lr", "0.01", *WATCHED, *flags]) == 0
    assert "; on the training data, of 2 steps " in capsys.readouterr().out
    assert store.load("run").record["full_looked"] == 2
    assert main(["run", "digits", "--watch-full-every", "3", *SMALL]) == 2
    assert "at which looks of watch_every: that must be above 0" in capsys.readouterr().err


def test_compare_and_report_have_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("curves", "cosines", "triangle"):  # Matplotlib's, which take long
        monkeypatch.setattr(printed, name, lambda *_: dict.fromkeys(printed.FORMATS, b"drawn"))
    arguments = ["compare", "digits", "--methods", "static,mgda", "--seeds", "1", "--out", "runs"]
    arguments += ["--jobs", "1"]
    assert main([*arguments, *WATCHED]) == 0
    out = capsys.readouterr().out
    (head,) = (line for line in out.splitlines() if "what the steps did" in line)
    assert head.split()[-2:] == ["worst", "cosine"]
    rows = out[out.index("what the steps did") :].splitlines()[2:4]
    assert [row.split()[:2] for row in rows] == [["static", "6"], ["mgda", "6"]]
    assert "steps_raise" not in out
    assert main([*arguments, *WATCHED, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    shares = {row["metric"]: row for row in found if row["method"] == "mgda"}
    assert 0 <= shares["steps_raise_all"]["mean"] <= shares["steps_raise_some"]["mean"] <= 1
    assert shares["steps_worst_cosine"]["optimizer"] == "adam"
    assert main(["report", "runs"]) == 0
    assert "What the steps did" in Path("runs/report.html").read_text(encoding="utf-8")


def test_without_looks_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "digits", "--methods", "static", "--seeds", "1", *SMALL]) == 0
    assert "what the steps did" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--optimizer", "lion"], "--optimizer must be one of sgd, momentum, nesterov, adam, "),
        (["--watch-every", "-1"], "--watch-every must be a whole number of at least 0, found '-1'"),
    ],
)
def test_bad_flags_are_one_line(
    command: str, flags: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "digits", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert line in said.err
