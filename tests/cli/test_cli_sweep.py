"""The command that searches, as a user types it."""

import json
import shlex
import signal
import time
from pathlib import Path

import held
import polars
import pytest
from test_cli_commands import refused
from test_cli_live import Clock, drawn
from test_cli_process import ended, started

from trimol.cli import main
from trimol.cli._sweep_view import SweepView
from trimol.runs import store
from trimol.search import Setting, Trial, TrialState

TASK = '''
import torch
from torch import nn
from trimol.tasks import Data, Task


class Bent(Task):
    """A line through points that a second loss wants to be flat."""

    name = "bent"
    objectives = ("fit", "long-slope")

    def __init__(self, held_out: bool = True) -> None:
        self.held_out = held_out

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), (model.weight - 1).square().sum() + 0 * y.mean()]

    def data(self):
        x = torch.linspace(-1, 1, 300)[:, None]
        three = [(x[i::3], 3 * x[i::3]) for i in range(3)]
        return Data(three[0], three[1], validation=three[2] if self.held_out else None)
'''
SMALL = ["--steps", "12", "--batch-size", "20", "--jobs", "1"]
TPE = [
    *("--lr", "log:1e-3..1", "--set", "modo.gamma=log:1e-3..10", "--set", "static.weights=simplex"),
    *("--schedule", "constant,linear", "--trials", "5"),
]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("bent.py").write_text(TASK)


def test_a_search_is_shown_and_its_next_command_runs(capsys) -> None:
    assert main(["sweep", "bent.py", *TPE, *SMALL]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[-1].endswith("120 of 120 steps (trials: static 5/5, modo 5/5)")
    lines = said.out.splitlines()
    assert "Searched by tpe; trials: static 5, modo 5." in said.out
    assert "runs/bent-sweep" in lines[-1]
    (command,) = [line for line in lines if line.startswith("  trimol compare ")]
    assert max(len(line) for line in lines if not line.startswith("  ")) <= 80
    words = shlex.split(command.replace("--seeds 5", "--seeds 1"))
    assert main([*words[1:], "--jobs", "1", "--quiet", "--out", "compared"]) == 0
    tried = {run.config.lr for run in store.find("runs/bent-sweep/tuning-only")}
    chosen = [run.config for run in store.find("compared")]
    assert [config.method for config in chosen] == ["modo", "static"]
    searched = {run.config.seed for run in store.find("runs/bent-sweep/tuning-only")}
    assert not searched & {config.seed for config in chosen}
    assert {config.lr for config in chosen} <= tried
    assert len(chosen[1].hyperparameters["weights"]) == 2


def test_machines_are_told_the_best(capsys) -> None:
    flags = ["--lr", "0.01,0.1", "--set", "static.weights=[1,0],[0.5,0.5]", "--quiet", "--json"]
    assert main(["sweep", "bent.py", "--methods", "static,mgda", *flags, *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"study", "rows", "files", "best"} <= found.keys()
    assert (found["search"], found["prune"]) == ("grid", "none")
    assert {"method", "metric", "mean", "std", "n", "paper"} <= found["rows"][0].keys()
    assert len(found["rows"]) == (4 + 2) * 2
    table = polars.read_parquet("runs/bent-sweep/trials.parquet")
    for method, best in found["best"].items():
        own = table.filter(polars.col("method") == method).sort("score", descending=True)
        assert best["trial"] == own["trial"][0]
        assert best["score"] == own["score"][0]
        assert Path(best["runs"][0]).is_dir()
    assert all(Path(file).exists() for file in found["files"])


@pytest.mark.slow
def test_the_command_that_a_study_notes_repeats_it(capsys) -> None:
    assert main(["sweep", "bent.py", *TPE, *SMALL, "--quiet", "--json", "--prune", "halving"]) == 0
    first = json.loads(capsys.readouterr().out)
    words = shlex.split(json.loads(Path("runs/bent-sweep/study.json").read_text())["command"])
    assert main([*words[1:], "--jobs", "1", "--quiet", "--json", "--out", "again"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == first["rows"]


def test_bounds_may_be_searched() -> None:
    flags = ["--methods", "preference", "--set", "preference.bounds.long-slope=0.1,1", "--quiet"]
    assert main(["sweep", "bent.py", *flags, *SMALL]) == 0
    found = {
        json.dumps(r.config.hyperparameters) for r in store.find("runs/bent-sweep/tuning-only")
    }
    assert found == {'{"bounds": {"long-slope": 0.1}}', '{"bounds": {"long-slope": 1.0}}'}


@pytest.mark.slow
def test_after_ctrl_c_and_a_kill_the_same_command_goes_on(tmp_path: Path, capsys) -> None:
    own = ["--methods", "static", "--lr", "log:1e-3..1", "--trials", "6"]
    command = ["sweep", "held.py:Held", *own, *SMALL]
    held.write(tmp_path, "Bent", TASK)
    finished = "cut/tuning-only/*/*/*/summary.json"
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        more = len(list(tmp_path.glob(finished))) + 1
        held.wait(tmp_path, finished, more)
        process = started("-m", "trimol", *command, "--out", "cut", cwd=tmp_path)
        while len(list(tmp_path.glob(finished))) < more:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        held.go(tmp_path)
        found, out, err = ended(process)
        assert (found, out) == (code, "")
        if code == 130:
            last = err.splitlines()[-1]
            assert last.startswith("trimol: interrupted after ")
            assert last.endswith("all is saved: run the same command again to go on")
    for folder in ("cut", "whole"):
        assert main([*command, "--out", folder, "--quiet"]) == 0
    cut, whole = (polars.read_parquet(f"{name}/trials.parquet") for name in ("cut", "whole"))
    assert cut.equals(whole)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--lr", "1"], "settings must have something to try"),
        (["--lr", "log:1"], "--lr must be like log:1e-3..10"),
        (["--lr", "1e-4..1e-1"], "--lr must be log:1e-4..1e-1 (by ratio) or lin:1e-4..1e-1"),
        (["--lr", "1..2:5"], "--lr must be log:1..2:5 (by ratio) or lin:1..2:5 (evenly), found"),
        (["--set", "modo.gamma=.1..2"], "--set modo.gamma must be log:.1..2 (by ratio) or lin:.1"),
        (["--lr", "log:3..1"], "--lr must go from a number to a larger one, found log:3..1"),
        (["--lr", "0.1,-1"], "--lr must be a finite number above 0, found '-1'"),
        (["--schedule", "up"], "--schedule must be one of constant, linear, cosine, found 'up'"),
        (["--set", "modo.gamma=lin:-1..1"], "gamma must be a finite number of at least 0"),
        (["--set", "modo.nu=lin:0..1"], "--set modo.nu is unknown: modo has gamma"),
        (["--set", "modo.gamma=1,x"], "--set modo.gamma must be a finite number, found 'x'"),
        (["--set", "stch.mu=1,2"], "--set must name one of static, modo, found 'stch.mu'"),
        (["--set", "static.weights=simplex:x"], "must end in a whole number of points"),
        (["--set", "modo.gamma=simplex"], "gamma must be"),
        (["--lr", "1,1"], "--lr must be different values, found '1,1'"),
        (["--lr", "1,2", "--trials", "3"], "trials must be left out for a grid"),
        (["--lr", "log:1..2", "--search", "grid"], "lr must have a number of points for a grid"),
        (["--lr", "log:1..2", "--search", "best"], "--search must be one of grid, random, tpe"),
        (["--lr", "1,2", "--methods", "static,nobody"], "unknown method 'nobody'"),
        (["--lr", "1,2", "--prune", "halving", "--steps", "5"], "steps must be at least 9"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(flags: list[str], said: str, capsys) -> None:
    assert said in refused("sweep", "bent.py", *flags, capsys=capsys)
    assert not Path("runs").exists()


def trial(number: int, value: float | None) -> Trial:
    setting = Setting("static", 0.1)
    if value is None:
        return Trial(number, setting, TrialState.FAILED, note="it diverged")
    return Trial(number, setting, TrialState.COMPLETE, {0: {"fit": value}}, -value)


def test_the_view_shows_the_best_so_far_and_counts_what_this_process_does() -> None:
    clock, view = Clock(), SweepView("it", {"static": 4}, 10, ["fit"])
    view.progress.clock = clock
    view.add([trial(0, 3.0), trial(1, None)])  # found on disk
    assert view.progress.pace == ""
    assert view.line() == "it: 20 of 40 steps (trials: static 2/4)"

    class Config:
        key = "a"

    for step in (1, 6):
        view.advance(Config(), step)  # type: ignore[arg-type]
        clock.now += 1.0
    assert view.line() == "it: 26 of 40 steps, 2.5 steps/s, 6 s left (trials: static 2/4)"
    view.add([trial(2, 2.0)])
    shown = " ".join(drawn(view))
    assert "3 of 4" in shown
    assert " 2 " in shown
