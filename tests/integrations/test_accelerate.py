"""A loop by accelerate: two processes do what one does, and its checkpoints hold λ."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.data import Subset

from pair import free_port

pytest.importorskip("accelerate", reason="needs the extra 'integrations'")

ROOT = Path(__file__).parents[2]
FILE = "examples/accelerate_loop.py"


@pytest.fixture
def example(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script(FILE)


def test_two_processes_equal_the_joined_batch(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the example's docstring says it; alone, with the first halves of both processes first."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(free_port())]
    run = subprocess.run(
        [*command, str(ROOT / FILE), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert re.search(r"^2 processes  weights 0\.\d+, 0\.\d+$", run.stdout, re.M)

    everything = example.data()
    halves = torch.arange(len(everything)).view(example.STEPS, 2, 2, -1)  # step, process, half
    monkeypatch.setattr(
        example, "data", lambda: Subset(everything, halves.transpose(1, 2).flatten().tolist())
    )
    alone = example.main()
    safetensors = pytest.importorskip("safetensors.torch")
    together = safetensors.load_file(tmp_path / "model.safetensors")
    method = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    together |= {f"modo.{name}": value for name, value in method.items()}
    assert together.keys() == alone.keys()
    assert together["modo.step"] == example.STEPS
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-5, atol=1e-6, msg=name)
