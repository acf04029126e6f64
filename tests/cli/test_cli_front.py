"""``trimol front``: what a user types, sees and gets."""

import json
import signal
import time
from pathlib import Path

import held
import pytest
from test_cli_process import ended, started

from trimol.cli import main
from trimol.report._front import is_front
from trimol.runs import store
from trimol.runs import study as results

SMALL = ["--points", "3", "--steps", "40", "--jobs", "1", "--quiet"]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["front", *arguments]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def test_a_front_is_trained_shown_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["concave", "--by", "static,stch", "--refine", "1", *SMALL]
    out = said(arguments, capsys)
    assert max(map(len, out.splitlines())) <= 80
    for text in (
        "stch: 4 of 4 points not dominated on test data; hypervolume 0.",
        "stch − static: hypervolume +0.",
        "one seed cannot tell a difference from luck: 5 seeds at least to name one",
        "is derived from these runs",
        "Next: trimol report runs/concave-front",
    ):
        assert text in " ".join(out.split())
    runs = store.find("runs/concave-front")
    assert len(runs) == 8
    # Every run can be found by the letters that the table shows.
    letters = [line.split()[-1] for line in out.splitlines() if line[1:2].isdigit()]
    assert sorted(letters) == sorted(run.path.name.rpartition("-")[2][:6] for run in runs)
    # Typed again, nothing is run again, and the same is said.
    before = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in runs}
    assert said(arguments, capsys) == out
    assert before == {path: (path / "summary.json").stat().st_mtime_ns for path in before}

    study = results.load("runs/concave-front")
    assert study.command == f"trimol front {' '.join(arguments)}"
    assert is_front(study)
    assert main(["report", "runs/concave-front"]) == 0
    page = Path("runs/concave-front/report.html").read_text()
    assert "Front of concave" in page
    assert "stch: 4 of 4 points not dominated" in page
    assert page.count('data-figure="front"') == 1


def test_json_is_one_object_with_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["concave", "--by", "stch", "--seeds", "2", "--reference", "2,2", "--json", *SMALL]
    found = json.loads(said(arguments, capsys))
    assert found["study"] == "front concave"
    assert found["reference"] == {"test": [2.0, 2.0], "train": [2.0, 2.0]}
    assert {"method", "metric", "mean", "std", "n", "paper"} <= found["rows"][0].keys()
    (row,) = (r for r in found["rows"] if (r["metric"], r["data"]) == ("hypervolume", "test"))
    assert row["n"] == 2
    assert row["ci"] is not None
    assert [(p["method"], p["seed"], p["point"]) for p in found["points"]] == [
        ("stch", seed, point) for seed in (0, 1) for point in (1, 2, 3)
    ]
    for point in found["points"]:
        record = store.load(point["folder"]).record
        assert point["test"] == {name: record[f"test_loss/{name}"] for name in ("f1", "f2")}
        assert sum(point["weights"]) == pytest.approx(1)
        assert point["dominated"] == {"test": False, "train": False}
    assert all(Path(name).exists() for name in found["files"])
    assert "was given: (2, 2)" in found["sentence"]


def test_settings_reach_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    own = (
        "--by stch:mu=0.5,static --schedule cosine --optimizer adam --lr 0.01 --set static.lr=0.02"
    )
    task = "--option dimension=3 --batch-size 16 --out here"
    said(["concave", *own.split(), *task.split(), *SMALL], capsys)
    configs = [run.config for run in store.find("here")]
    assert {(c.method, c.lr) for c in configs} == {("stch", 0.01), ("static", 0.02)}
    assert {c.hyperparameters.get("mu") for c in configs} == {0.5, None}
    assert {(c.schedule, c.optimizer, c.batch_size) for c in configs} == {("cosine", "adam", 16)}
    assert {c.task_options["dimension"] for c in configs} == {3}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("concave --by mgda", "--by must be of static, "),
        ("concave --by nobody", "unknown method 'nobody'"),
        ("concave --by stch:mu", "--by must be METHOD or METHOD:NAME=VALUE, found 'mu'"),
        ("concave --by stch:mu=x", "--by stch:mu=x: mu must be a finite number, found 'x'"),
        ("concave --points 0", "--points must be a whole number of at least 1, found '0'"),
        ("concave --refine -1", "--refine must be a whole number of at least 0, found '-1'"),
        ("concave --reference 1", "reference must be 2 finite numbers, one for each of f1, f2"),
        ("concave --reference a,b", "--reference must be numbers with commas between them"),
        ("concave --set stch.prefer=1,1", "stch: prefer says which points of the front are meant"),
        ("concave --set stch.mu=-1", "mu must be a finite number above 0, found -1.0"),
        ("concave --schedule slow", "--schedule must be one of constant, linear, cosine"),
        ("nowhere", "task must be one of "),
        ("concave --batch-size 999", "batch_size (--batch-size) must be at most 64"),
    ],
)
def test_bad_input_is_one_line(
    arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["front", *arguments.split(), "--quiet"]) != 0
    found = capsys.readouterr()
    assert found.out == ""
    (only,) = found.err.splitlines()
    assert only.startswith("trimol: ")
    assert line in only
    assert not Path("runs").exists()


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_again_give_the_same_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held.write(tmp_path, "Concave", "from trimol.tasks.concave import Concave")
    held.wait(tmp_path, "broken/*/checkpoint.pt")
    command = ["held.py", "--points", "2", "--refine", "1", "--steps", "60", "--jobs", "1"]
    first = started("-m", "trimol", "front", *command, "--out", "broken", cwd=tmp_path)
    while not list(tmp_path.glob("broken/*/checkpoint.pt")):
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    held.go(tmp_path)
    code, out, err = ended(first)
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    assert not (tmp_path / "broken" / "study.json").exists()
    tables = []
    for name in ("broken", "whole"):
        said([*command, "--out", name, "--quiet"], capsys)
        tables.append(results.load(name).tables["points"])
    assert tables[0].equals(tables[1])


def test_help_names_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["front", "--help"])
    found = capsys.readouterr().out
    for flag in ("--by", "--points", "--refine", "--reference", "--seeds", "--on", "--json"):
        assert flag in found
