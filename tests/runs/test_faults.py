"""Tasks that end the program, processes that die: no hang, one line, and what is left on disk."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trimol
from covering import one_in
from trimol.cli import main
from trimol.runs import Interrupted, RunConfig, StoreError, configure, execute, execute_all, store
from trimol.runs import _run_state as states
from trimol.runs import _storage as files
from trimol.runs._signals import ONE_PRESS, noting_signals
from trimol.runs._together import Unit
from trimol.runs._worker import outcome
from trimol.tasks import TaskError
from trimol.training import Diverged, RunError

TASK = """
import os, sys, signal, torch
from torch import nn
from trimol.tasks import Data, Task


class Odd(BaseException):
    pass


def fault(where, model=None):
    if where == "{where}" and (model is None or model.training) and CALLS[0] >= {after}:
        {what}
    if where == "losses" and {after}:  # a group's task counts nothing
        CALLS[0] += 1


CALLS = [0]


class Own(Task):
    name = "own"
    objectives = ("a", "b")

    def data(self):
        fault("data")
        x = torch.linspace(-1, 1, 80).reshape(40, 2)
        return Data(train=(x, x.sum(1)), test=(x, x.sum(1)))

    def model(self):
        fault("model")
        return nn.Linear(2, 1)

    def losses(self, model, batch):
        fault("losses", model)
        x, y = batch
        return [(model(x)[:, 0] - y).square().mean(), model.weight.square().sum()]

    def metrics(self, model, batch):
        fault("metrics")
        return {{"bias": model.bias.sum()}}
"""
FAULTS = {
    "sys.exit(0)": "SystemExit: 0",
    "sys.exit('leaving')": "SystemExit: leaving",
    "raise SystemExit": "SystemExit",
    "raise Odd('one')": "Odd: one",
    "raise GeneratorExit('x')": "GeneratorExit: x",
    "raise ValueError('x')": "ValueError: x",
    "raise StopIteration": "StopIteration",
}
SMALL = ("--steps", "6", "--batch-size", "8", "--quiet")


def task(folder: Path, what: str = "pass", where: str = "losses", after: int = 0) -> str:
    file = folder / "own.py"
    file.write_text(TASK.format(what=what, where=where, after=after))
    return "own.py:Own"


def line_of(folder: Path, what: str) -> int:
    return (folder / "own.py").read_text().splitlines().index(f"        {what}") + 1


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("what", "where"), one_in(2, FAULTS, ["data", "model", "losses", "metrics"])
)
def test_a_task_that_ends_the_program_is_one_line(
    what: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = task(tmp_path, what, where)
    code = main(["run", name, *SMALL, "--out", "runs/one"])
    said = f"trimol: own.py, line {line_of(tmp_path, what)}: {FAULTS[what]}\n"
    assert (code, capsys.readouterr().err) == (1, said)
    if where in ("data", "model"):  # it never began: nothing is left, not even runs/
        assert sorted(path.name for path in tmp_path.iterdir()) == ["own.py"]
    else:
        run = store.load("runs/one")
        assert str(run.state) == f"failed: {said.removeprefix('trimol: ').strip()}"
        assert (run.state.diverged, run.state.saved) == (False, False)


@pytest.mark.parametrize("what", ["sys.stdout.close()", "sys.stderr.close()", "sys.stdout = 5"])
def test_a_task_that_closes_a_stream_closes_nothing(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = task(tmp_path, what)
    assert main(["run", name, *SMALL, "--out", "one"]) == 0
    said = capsys.readouterr()
    assert "Saved in one" in said.out
    assert said.err == ""


@pytest.mark.slow
def test_what_a_task_does_to_its_streams_does_not_change_what_a_command_prints(
    tmp_path: Path,
) -> None:
    """As a process: with jobs=2 the task prints in others."""
    task(
        tmp_path,
        # Once: what has the number 1 afterwards is somebody else's.
        "if not hasattr(sys, 'first'): "
        "sys.first = 1; print('hello'); os.system('echo there'); os.dup2(2, 1); os.close(1)",
    )
    given = ["compare", "own.py:Own", *SMALL, "--methods", "static", "--seeds", "2", "--json"]
    for jobs in ("1", "2"):
        ended = subprocess.run(
            [sys.executable, "-m", "trimol", *given, "--jobs", jobs, "--out", jobs],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(trimol.__file__).parents[1])},
        )
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["rows"]
        assert {"hello", "there"} <= set(ended.stderr.split())


CODES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


@pytest.mark.parametrize("where", ["an error", "names", "a path"])
def test_control_characters_do_not_reach_the_terminal(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = task(tmp_path, f"raise ValueError({CODES!r})" if where == "an error" else "pass")
    if where == "names":
        text = (tmp_path / "own.py").read_text().replace('"a"', repr(f"a{CODES}"))
        (tmp_path / "own.py").write_text(text.replace('"bias"', repr(f"bias{CODES}")))
    out = f"one{CODES}" if where == "a path" else "one"
    compare = ["compare", name, *SMALL[:-1], "--methods", "static,modo", "--seeds", "2"]
    commands = [
        ["run", name, *SMALL[:-1], "--out", out],
        [*compare, "--jobs", "1", "--out", f"{out}2"],
        ["report", out],
        ["run", name, *SMALL, "--out", out, "--lr", "1e99"],
    ]
    everything = ""
    for command in commands:
        main(command)
        everything += "".join(capsys.readouterr())
    assert not {c for c in CODES if not c.isprintable()} & set(everything)
    assert "\\x1b]0;owned" in everything


def test_ctrl_c_of_the_tasks_own_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = "raise KeyboardInterrupt"
    name = task(tmp_path, what)
    assert main(["run", name, *SMALL, "--out", "one"]) == 130
    said = f"interrupted in own.py, line {line_of(tmp_path, what)}"
    assert capsys.readouterr().err == f"trimol: {said}\n"
    assert str(store.load("one").state) == said


@pytest.mark.parametrize("what", [*FAULTS, "raise KeyboardInterrupt"])
def test_a_worker_hands_every_fault_to_its_parent(what: str, tmp_path: Path) -> None:
    name = task(tmp_path, what)
    config = configure(name, "static", steps=3, batch_size=8)
    error = outcome(Unit(((config, tmp_path / "run"),)), lambda *_: None)
    assert isinstance(error, TaskError | RunError)
    assert f"own.py, line {line_of(tmp_path, what)}" in str(error)


def command(*arguments: str, timeout: float = 240) -> tuple[int, str]:
    """A command in a process of its own: the exit code, and what it said. No hang."""
    source = str(Path(trimol.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "trimol.cli", *arguments],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("sys.exit(0)", r"own\.py, line \d+: SystemExit: 0"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            r"a process that ran the study died \(killed by SIGKILL; out of memory\?\) at "
            r"out/own-\S+: run the same command again to go on",
        ),
    ],
    ids=["exit", "kill"],
)
def test_a_comparison_in_processes_ends_with_the_fault(
    what: str, said: str, tmp_path: Path
) -> None:
    name = task(tmp_path, what, after=3)
    asked = ("compare", name, "--methods", "static,mgda", "--seeds", "1", *SMALL)
    code, err = command(*asked, "--jobs", "2", "--out", "out")
    assert (code, bool(re.fullmatch(f"trimol: {said}\n", err))) == (1, True), err
    named = {run.state.name for run in store.find("out")}
    assert named <= {"failed", "interrupted"}


@pytest.mark.parametrize(("where", "after"), [("losses", 0), ("losses", 3), ("metrics", 0)])
def test_the_mended_task_runs_by_the_same_command(
    where: str, after: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("my own")
    run = ["run", task(tmp_path, "raise ValueError", where, after), *SMALL, "--out", "mine"]
    assert main(run) == 1
    assert main(run) == 1  # tried again: the same fault, not a refusal
    assert [line[-10:] for line in capsys.readouterr().err.splitlines()] == ["ValueError"] * 2
    task(tmp_path)
    assert main(run) == 0
    assert (tmp_path / "mine" / "notes.txt").read_text() == "my own"
    assert not (tmp_path / "mine" / "state.json").exists()
    found = store.load("mine")
    assert (found.state, found.config.steps) == (states.RunState("finished"), 6)


def test_what_has_a_checkpoint_is_not_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", task(tmp_path, "raise ValueError", after=4), *SMALL, "--out", "one"]
    run += ["--checkpoint-every", "2", "--method", "static"]
    assert main(run) == 1
    failed = store.load("one").state
    assert (failed.name, failed.saved) == ("failed", True)
    assert main(run) == 1
    assert f"one holds this run, which {failed}: resume it (--resume)" in capsys.readouterr().err
    task(tmp_path)
    assert main(run) == 1
    assert "one holds a run of" in capsys.readouterr().err
    assert (tmp_path / "one" / "checkpoint.pt").exists()


def test_a_failed_run_is_tried_again_once_a_command_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task(tmp_path, "if not os.path.exists('go'): raise ValueError('no data')")
    compare = ["compare", "own.py:Own", *SMALL, "--methods", "static", "--seeds", "1"]
    compare += ["--jobs", "1", "--out", "out"]
    assert main(compare) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("ValueError: no data")
    (tmp_path / "go").touch()
    assert main(compare) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"out/own-\S+ failed before \(own.*: no data\): it is tried again", said)


def test_what_diverged_is_not_trained_again_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The file go stands for data that no configuration knows of.
    (tmp_path / "tried").touch()
    count = "os.truncate('tried', os.path.getsize('tried') + 1)"
    task(tmp_path, f"{count}; os.path.exists('go') or model.weight.data.fill_(float('nan'))")
    compare = ["compare", "own.py:Own", *SMALL, "--methods", "static", "--seeds", "1"]
    compare += ["--jobs", "1", "--out", "out"]
    assert main(compare) == 1
    first = capsys.readouterr().err
    assert "every run diverged; static: the loss 'a' is nan at step 0" in first
    tried = (tmp_path / "tried").stat().st_size
    assert main(compare) == 1
    assert capsys.readouterr().err == first
    assert (tmp_path / "tried").stat().st_size == tried
    (tmp_path / "go").touch()
    assert main([*compare, "--retry"]) == 0


def test_states_of_a_run(tmp_path: Path) -> None:
    config = configure("quadratic", "static", steps=4, batch_size=8)
    seen = []

    def watch(_: object, step: int, record: object) -> None:
        seen.append(str(states.read(tmp_path, finished=False)))
        if step == 2:
            os.kill(os.getpid(), 2)

    with pytest.raises(Interrupted):
        execute(config, tmp_path, watch=watch)
    assert seen[0].startswith(f"running: process {os.getpid()} on ")
    assert str(store.load(tmp_path).state).startswith("interrupted at step 2 of 4, ")
    assert str(execute(config, tmp_path, resume=True).state) == "finished"
    states.begin(tmp_path)  # as if killed between the summary and the end of the state
    assert str(store.load(tmp_path).state) == "finished"
    (again,) = execute_all([(config, tmp_path)])
    assert isinstance(again, store.StoredRun)
    assert not (tmp_path / "state.json").exists()


def test_a_process_that_was_killed_does_not_run(tmp_path: Path) -> None:
    states.begin(tmp_path)
    content = files.read_json(tmp_path / "state.json")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for change in ({"pid": dead.pid}, {"process": "0"}, {"pid": 10**12}, {"pid": -1}):
        (tmp_path / "state.json").write_text(json.dumps({**content, **change}))
        found = states.read(tmp_path, finished=False)
        assert found.name == "interrupted", change
        assert found.reason.endswith("ended without a word")
    (tmp_path / "state.json").write_text(json.dumps({**content, "pid": dead.pid, "host": "else"}))
    assert states.read(tmp_path, finished=False).name == "running"  # nobody here can tell
    (tmp_path / "state.json").unlink()
    assert str(states.read(tmp_path, finished=False)) == "interrupted"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"state": "failed"}', '{"state": []}'])
def test_a_damaged_state_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(StoreError, match=r"state\.json is damaged or not ours"):
        states.read(tmp_path, finished=False)


def test_a_signal_in_the_last_writes_stops_the_list_after_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure("quadratic", "static", steps=2, batch_size=8)
    other = config.model_copy(update={"seed": 1})
    finish = states.finish

    def interrupted(folder: Path) -> None:
        os.kill(os.getpid(), 2)
        finish(folder)

    monkeypatch.setattr(states, "finish", interrupted)
    with pytest.raises(Interrupted, match="just finished"):
        execute_all([(config, tmp_path / "a"), (other, tmp_path / "b")], together=False)
    assert store.load(tmp_path / "a").finished
    assert not (tmp_path / "b").exists()
    with pytest.raises(Interrupted, match="just finished"):  # nor what a script does after it
        execute(config, tmp_path / "c")
    assert store.load(tmp_path / "c").finished


def test_a_signal_in_the_last_measuring_is_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = task(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)", "metrics")
    run = ["run", name, *SMALL, "--measure-every", "0", "--out", "one"]
    assert main(run) == 143
    said = "trimol: interrupted when the run was just finished: the same command shows it\n"
    assert capsys.readouterr().err == said
    assert str(store.load("one").state) == "finished"
    assert main(run) == 0  # there is nothing left to be interrupted
    runs = pair(name, tmp_path)
    with pytest.raises(Interrupted, match="just finished") as stop:
        execute_all(runs)
    assert stop.value.code == 143
    assert [str(store.load(folder).state) for _, folder in runs] == ["finished"] * 2
    assert not (tmp_path / ".together").exists()


def test_two_signals_at_once_are_one() -> None:
    with noting_signals() as noted:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert noted.signal == signal.SIGINT
        noted.when -= 2 * ONE_PRESS  # a second later
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_member_of_a_group_that_diverged_says_so(tmp_path: Path) -> None:
    configs = [
        configure("quadratic", "static", steps=9, batch_size=8, lr=lr) for lr in (0.01, 1e200)
    ]
    runs = [(config, tmp_path / str(place)) for place, config in enumerate(configs)]
    _, diverged = execute_all(runs)
    assert isinstance(diverged, Diverged)
    assert store.load(tmp_path / "0").state.name == "finished"
    state = store.load(tmp_path / "1").state
    assert (state.name, state.reason, state.diverged) == ("failed", str(diverged), True)
    before = (tmp_path / "1" / "state.json").stat().st_mtime_ns
    again = execute_all(runs)[1]
    assert (str(again), before) == (
        str(diverged),
        (tmp_path / "1" / "state.json").stat().st_mtime_ns,
    )


def pair(name: str, folder: Path) -> list[tuple[RunConfig, Path]]:
    """Two runs of a task that train together."""
    configs = [configure(name, "static", steps=3, batch_size=8, seed=seed) for seed in (0, 1)]
    return [(config, folder / str(config.seed)) for config in configs]


@pytest.mark.parametrize("what", ["raise StopIteration", "raise ValueError('x')"])
def test_a_fault_in_the_metrics_of_a_group_is_the_same_line(what: str, tmp_path: Path) -> None:
    runs = pair(task(tmp_path, what, "metrics"), tmp_path)
    said = f"own.py, line {line_of(tmp_path, what)}: {FAULTS[what]}"
    with pytest.raises(TaskError, match=f"^{re.escape(said)}$"):
        execute_all(runs)
    assert [str(store.load(folder).state) for _, folder in runs] == [f"failed: {said}"] * 2


def test_a_stop_iteration_that_passed_a_generator_is_the_tasks(tmp_path: Path) -> None:
    task(tmp_path)
    text, batch = (tmp_path / "own.py").read_text(), "        x, y = batch\n"
    on_all_data = f"{batch}        if len(x) > 8: raise StopIteration\n"
    (tmp_path / "own.py").write_text(text.replace(batch, on_all_data))
    runs = pair("own.py:Own", tmp_path)
    with pytest.raises(TaskError, match=r"^own\.py, line 37: StopIteration$"):
        execute_all(runs)


def test_test_data_that_are_not_finite_are_not_blamed_on_the_step_size(tmp_path: Path) -> None:
    task(tmp_path)
    text = (tmp_path / "own.py").read_text().replace("test=(x, x.sum(1))", "test=(x, x.sum(1) / 0)")
    (tmp_path / "own.py").write_text(text)
    said = (
        "losses or gradients over all data, test data too, are not finite at step 0: look for NaN"
    )
    runs = [
        (config.model_copy(update={"measure_every": 1}), folder)
        for config, folder in pair("own.py:Own", tmp_path)
    ]
    for found in (*execute_all(runs), *execute_all(runs[:1], retry=True)):  # together, and alone
        assert str(found).startswith(said)
        assert "lr" not in str(found)
    ended = pair("own.py:Own", tmp_path / "ended")  # measured for the first time
    for found in execute_all(ended):
        assert "test data too, are not finite at step 3: try a smaller lr, or look" in str(found)


def test_a_batch_larger_than_the_data_names_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = task(tmp_path)
    said = "batch_size (--batch-size) must be at most 40, the samples of train, found 64"
    for arguments in (["run", name], ["compare", name, "--jobs", "1", "--methods", "smg"]):
        assert main([*arguments, "--steps", "3", "--batch-size", "64", "--quiet"]) == 1
        assert capsys.readouterr().err == f"trimol: {said}\n"
    assert main(["run", name, "--epochs", "3", "--batch-size", "64", "--quiet"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
