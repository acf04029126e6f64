"""What a task does to its process and to stdout: the command notices, and its result is whole."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import trimol
from trimol.cli import main

LINE = """
import torch
from torch import nn
from trimol.tasks import Data, Task


class Line(Task):
    name = "line"
    objectives = ("fit", "slope")

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), model.weight.square().sum()]

    def data(self):
        x = torch.linspace(-1, 1, 200)[:, None]
        return Data(train=(x[::2], 3 * x[::2]), test=(x[1::2], 3 * x[1::2]))
"""
BEGIN = "import os, signal, sys, time\nfrom trimol.cli._supervision import supervised\n"
BEGIN += "marker = supervised()\n"

linux = pytest.mark.skipif(sys.platform != "linux", reason="children are watched over on Linux")


def python(*arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    source = str(Path(trimol.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    )


@linux
@pytest.mark.parametrize(
    ("rest", "code", "said"),
    [
        ("os._exit(0)", 1, "the process was left in the middle (exit code 0), as os._exit does"),
        ("os._exit(7)", 7, "the process was left in the middle (exit code 7), as os._exit does"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "the process was killed by SIGSEGV in the"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL in the middle (out of me"),
        ("marker.set(); print('done')", 0, ""),
        ("marker.set(); sys.exit(3)", 3, ""),
    ],
)
def test_how_a_process_ended_is_noticed(rest: str, code: int, said: str) -> None:
    process = python("-c", BEGIN + rest)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ("done\n" if "done" in rest else "")
    assert err.startswith(f"trimol: {said}" if said.startswith("the") else "")
    assert said in err
    assert err.count("\n") == bool(said)


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_one_that_works(number: signal.Signals) -> None:
    rest = f"""
def note(number, frame):
    marker.set()
    sys.exit(40 + number)
signal.signal({int(number)}, note)
print(os.getpid(), flush=True)
time.sleep(60)
"""
    process = python("-c", BEGIN + rest)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (40 + number, "")


@linux
def test_nobody_goes_on_when_the_command_is_killed() -> None:
    process = python("-c", BEGIN + "print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert child != process.pid
    process.kill()
    process.communicate(timeout=60)
    while Path(f"/proc/{child}/status").exists():  # until it is gone, or a zombie of init's
        if "zombie" in Path(f"/proc/{child}/status").read_text():
            break
        time.sleep(0.02)


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "code"), [("os._exit(0)", 1), ("__import__('ctypes').string_at(0)", 139)]
)
def test_a_run_that_a_task_ends_has_failed(does: str, code: int, tmp_path: Path) -> None:
    text = LINE.replace("x, y = batch", f"x, y = batch; import os; {does}")
    (tmp_path / "leaves.py").write_text(text)
    arguments = ["-m", "trimol", "run", "leaves.py", "--steps", "3", "--quiet"]
    process = python(*arguments, cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("trimol: the process was ")
    assert not list(tmp_path.glob("runs/*/summary.json"))


TALKS = "x, y = batch; print('hello'); os.write(1, b'low\\n'); ctypes.CDLL(None).puts(b'C')"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["compare", "--seeds", "1", "--jobs", "1"],
        ["diagnose", "--look-only"],
        ["sweep", "--jobs", "1"],
        ["front", "--points", "2", "--jobs", "1"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_a_task_prints_goes_to_stderr(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talks.py").write_text("import ctypes, os\n" + LINE.replace("x, y = batch", TALKS))
    command, *more = arguments
    assert main([command, "talks.py", *more, "--steps", "2", "--quiet", "--json"]) == 0
    out, err = capfd.readouterr()
    assert isinstance(json.loads(out), dict)
    assert {"hello", "low", "C"} <= {*err.split()}
    print("and then stdout is stdout")
    assert capfd.readouterr().out == "and then stdout is stdout\n"


@pytest.mark.slow
def test_what_workers_print_goes_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "talks.py").write_text("import ctypes, os\n" + LINE.replace("x, y = batch", TALKS))
    arguments = ["-m", "trimol", "compare", "talks.py", "--seeds", "1", "--steps", "2"]
    process = python(*arguments, "--jobs", "2", "--quiet", "--json", cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert isinstance(json.loads(out), dict)
    assert {"hello", "low", "C"} <= {*err.split()}


def test_a_task_that_closes_stdout_does_not_close_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("closes.py").write_text(
        "import sys\n" + LINE.replace("x, y = batch", "x, y = batch; sys.stdout.close()")
    )
    assert main(["run", "closes.py", "--steps", "2", "--quiet", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)
