"""``--on``: a cluster for the runs, named, missed, started, and left by Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import trimol
from trimol.cli import main
from trimol.runs import store

TASK = """
import time
from pathlib import Path
from trimol.tasks.digits import Digits

class Slow(Digits):
    name = "slow"

    def losses(self, model, batch):
        if Path(__file__).with_name("slowly").exists():
            time.sleep(0.5)
        return super().losses(model, batch)
"""
COMPARE = "compare slow.py --methods static,modo --seeds 1 --steps 200 --json --quiet"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("compare digits --on head", 2, "--on must be ray, ray://HOST:PORT or HOST:PORT, found"),
        ("reproduce table3 --on 1.2.3.4", 2, "--on must be ray, ray://HOST:PORT or HOST:PORT"),
        ("reproduce fig3 --on ray", 2, "--on: fig3 has no runs that a cluster could take"),
        ("compare digits --steps 2 --on 127.0.0.1:1", 1, "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_a_cluster_that_is_none_is_one_line(
    arguments: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments.split(), *(["--quiet"] if code == 1 else [])]) == code
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err


def test_without_ray_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["compare", "digits", "--seeds", "1", "--on", "ray", "--quiet"]) == 1
    assert capsys.readouterr().err == "trimol: --on needs ray: pip install 'trimol[ray]'\n"


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_ctrl_c_cancels_and_the_command_goes_on_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    (tmp_path / "slow.py").write_text(TASK)
    (tmp_path / "slowly").touch()
    there = _started(f"{COMPARE} --on ray --out there", tmp_path)
    while len(list(tmp_path.glob("there/*/metrics.parquet"))) < 2:
        assert there.poll() is None, there.communicate()
        time.sleep(0.05)
    os.killpg(there.pid, signal.SIGINT)  # as a terminal does, to all of the group
    out, err = there.communicate(timeout=240)
    assert (there.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("trimol: interrupted; every run is saved")
    assert {run.state.name for run in store.find(tmp_path / "there")} == {"interrupted"}
    assert all((run.path / store.CHECKPOINT).exists() for run in store.find(tmp_path / "there"))
    assert not list((tmp_path / "there").glob(".*"))

    (tmp_path / "slowly").unlink()
    monkeypatch.chdir(tmp_path)
    for folder in ("there", "here"):
        assert main([*COMPARE.split(), "--out", folder, "--jobs", "1"]) == 0
    for run in store.find(tmp_path / "here"):
        for name in ("config.json", "metrics.parquet", "model.pt", "direction.pt"):
            other = tmp_path / "there" / run.path.name / name
            assert other.read_bytes() == (run.path / name).read_bytes(), name


def _started(arguments: str, folder: Path) -> "subprocess.Popen[str]":
    """A command in a process group of its own."""
    source = str(Path(trimol.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "trimol", *arguments.split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ray's workers would be nicer than the tests by 15: beside others they would hardly begin.
        env={
            **os.environ,
            "PYTHONPATH": source,
            "OMP_NUM_THREADS": "1",
            "RAY_worker_niceness": "0",
        },
        start_new_session=True,
    )
