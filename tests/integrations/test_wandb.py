"""Records arrive in a run of Weights & Biases at their steps.

The package is stood in for by the two calls that we make of it; where it is installed, a run
without a network is made, too.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimol._extras import MissingExtra
from trimol.integrations.wandb import WandB


class Run:
    def __init__(self, **options: Any) -> None:
        self.options, self.logged, self.finished = options, [], False

    def log(self, numbers: dict[str, float], *, step: int) -> None:
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished = True


def test_every_number_is_logged_at_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=Run))
    sink = WandB(project="mine", mode="offline")
    sink({"step": 2, "loss/fit": 0.5})
    sink({"step": 4, "loss/fit": 0.25, "samples": 8})
    assert sink.run.options == {"project": "mine", "mode": "offline"}
    assert sink.run.logged == [(2, {"loss/fit": 0.5}), (4, {"loss/fit": 0.25, "samples": 8.0})]
    sink.close()
    assert sink.run.finished


def test_a_run_of_yours_is_left_open() -> None:
    sink = WandB(Run())
    sink({"step": 1, "R_opt": 0.5})
    sink.close()
    assert sink.run.logged == [(1, {"R_opt": 0.5})]
    assert not sink.run.finished


def test_without_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    expected = r"^the Weights & Biases sink needs wandb: pip install 'trimol\[wandb\]'$"
    with pytest.raises(MissingExtra, match=expected):
        WandB()


@pytest.mark.filterwarnings("ignore")
def test_a_real_run_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    sink = WandB(mode="offline", dir=str(tmp_path))
    sink({"step": 1, "R_opt": 0.5})
    assert sink.run.step == 1
    sink.close()
    assert list(tmp_path.rglob("*.wandb"))
