"""The program in processes of its own: pipes, signals, workers."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import held
import pytest

import trimol
from trimol.cli import main
from trimol.runs import store

ROOT = Path(__file__).parents[2]


def started(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    source = str(Path(trimol.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)


@pytest.mark.slow
def test_workers_compare_and_progress_goes_to_stderr(tmp_path: Path) -> None:
    arguments = (
        "compare digits --methods static,modo --seeds 2 --steps 30 --jobs 2 --out here --json"
    )
    code, out, err = ended(started("-m", "trimol", *arguments.split(), cwd=tmp_path))
    assert code == 0, err
    found = json.loads(out)
    assert {row["method"] for row in found["rows"]} == {"static", "modo"}
    assert err.splitlines()[-1].endswith("120 of 120 steps (runs: static 2/2, modo 2/2)")
    assert len(store.find(tmp_path / "here")) == 4


@pytest.mark.slow
def test_ctrl_c_saves_and_resume_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    held.write(tmp_path, "Digits", "from trimol.tasks.digits import Digits")
    held.wait(tmp_path, "broken/checkpoint.pt")
    run = ["run", "held.py", "--steps", "90", "--checkpoint-every", "20", "--measure-every", "30"]
    first = started("-m", "trimol", *run, "--out", "broken", cwd=tmp_path)
    wait_for(tmp_path / "broken" / "checkpoint.pt", first)
    first.send_signal(signal.SIGINT)
    held.go(tmp_path)
    code, out, err = ended(first)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("trimol: interrupted at step ")
    assert err.endswith("(the same command with --resume)\n")

    assert main([*run, "--out", "broken", "--quiet"]) == 1
    assert "broken holds this run unfinished: resume it" in capsys.readouterr().err
    assert main([*run, "--out", "broken", "--quiet", "--resume"]) == 0
    assert main([*run, "--out", "whole", "--quiet"]) == 0
    for name in ("metrics.parquet", "model.pt"):
        broken, whole = (tmp_path / folder / name for folder in ("broken", "whole"))
        assert broken.read_bytes() == whole.read_bytes(), name


def test_whoever_closes_the_pipe_hears_no_more(tmp_path: Path) -> None:
    process = started("-u", "-m", "trimol", "methods", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    assert process.returncode in (0, 1)


@pytest.mark.slow
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Here, where torch is imported already."""
    runpy.run_path(str(ROOT / "examples" / "plain_loop.py"), run_name="__main__")
    *_, accuracy, errors = capsys.readouterr().out.splitlines()
    assert float(accuracy.split()[1]) > 0.9
    assert errors.startswith("opt ")
    assert [part.split()[0] for part in errors.split(" · ")] == ["opt", "pop", "gen", "conflict"]
