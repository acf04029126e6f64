"""A loop by accelerate: two processes do what one does, and its checkpoints hold λ."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.data import Subset

from pair import forked

accelerate = pytest.importorskip("accelerate", reason="needs the extra 'integrations'")
safetensors = pytest.importorskip("safetensors.torch", reason="needs the extra 'integrations'")


@pytest.fixture
def example(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("examples/accelerate_loop.py")


def fresh(example: ModuleType, *args: str) -> dict[str, torch.Tensor]:
    """The example's `main` in a process that knows nothing of accelerate yet."""
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()
    found: dict[str, torch.Tensor] = example.main(*args)
    return found


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_processes_equal_the_joined_batch(
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Alone, with the first halves of both processes first."""
    forked(fresh, example, str(tmp_path))
    assert re.search(r"^2 processes  weights 0\.\d+, 0\.\d+$", capfd.readouterr().out, re.M)

    everything = example.data()
    halves = torch.arange(len(everything)).view(example.STEPS, 2, 2, -1)  # step, process, half
    monkeypatch.setattr(
        example, "data", lambda: Subset(everything, halves.transpose(1, 2).flatten().tolist())
    )
    alone = fresh(example)
    together = safetensors.load_file(tmp_path / "model.safetensors")
    method = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    together |= {f"modo.{name}": value for name, value in method.items()}
    assert together.keys() == alone.keys()
    assert together["modo.step"] == example.STEPS
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-5, atol=1e-6, msg=name)
