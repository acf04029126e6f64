"""Runs with a thousand objectives: saved, resumed, reported."""

import io
import math
import os
import signal
from pathlib import Path

import pytest

from trimol import _digests as digests
from trimol.report import _curves as curves
from trimol.report import _printed as printed
from trimol.report import write
from trimol.runs import Interrupted, RunConfig, configure, execute
from trimol.training.records import MOST_PAIRED, Record

TASK = """
import torch
from torch import nn
from trimol.tasks import Data, Task


class Wide(Task):
    name = "wide"

    def __init__(self, objectives: int = 1000):
        self.objectives = tuple(f"o{n}" for n in range(objectives))

    def model(self):
        return nn.Linear(3, 1)

    def losses(self, model, batch):
        return (model(batch[0]) - torch.linspace(-1, 1, len(self.objectives))).square().mean(0)

    def data(self):
        x = torch.linspace(-1, 1, 90).reshape(30, 3)
        return Data(train=(x,), test=(x[:9],))
"""
RESULTS = ("metrics.parquet", "model.pt", "direction.pt")


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "wide.py").write_text(TASK)
    return f"{tmp_path / 'wide.py'}:Wide"


def settings(task: str, objectives: int = 1000) -> RunConfig:
    often = {"steps": 3, "batch_size": 4, "measure_every": 2, "checkpoint_every": 1}
    return configure(task, "static", task_options={"objectives": objectives}, **often)


def stop(config: RunConfig, step: int, record: Record | None) -> None:
    if step == 2 and record is None:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_thousand_objectives_are_saved_resumed_and_reported(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = execute(settings(task), tmp_path / "whole")
    with pytest.raises(Interrupted):
        execute(settings(task), tmp_path / "broken", watch=stop)
    execute(settings(task), tmp_path / "broken", resume=True)
    for name in RESULTS:
        own = [(tmp_path / folder / name).read_bytes() for folder in ("whole", "broken")]
        assert own[0] == own[1], name
    assert len(whole.objectives) == 1000
    assert -1 <= whole.record["least_cosine"] < -0.9 < whole.record["mean_cosine"] < 1
    assert len(whole.metrics.columns) < 6000
    monkeypatch.setattr(curves, "MOST_PANELS", 1)
    monkeypatch.setattr(printed, "curves", lambda *_: {})  # drawing takes long
    page = write(tmp_path / "whole").read_text()
    assert "The first 1 of 1000: all numbers are in metrics.parquet." in page
    assert "Least of all pairs" in page


@pytest.mark.parametrize("more", [0, 1])
def test_every_pair_has_a_column_up_to_some_number_of_objectives(
    task: str, tmp_path: Path, more: int
) -> None:
    objectives = MOST_PAIRED + more
    run = execute(settings(task, objectives), tmp_path / "run")
    pairs = [name for name in run.metrics.columns if name.startswith("cosine/")]
    assert len(pairs) == (0 if more else math.comb(objectives, 2))
    assert ("least_cosine" in run.record) == bool(more)


@pytest.mark.parametrize("after", [0, 2**12 - 20, 2**16, 10**6])
def test_a_seal_is_found_however_much_comes_after_it(after: int) -> None:
    buffer = io.BytesIO(b"before " + digests.PLACE + bytes(after))
    digests.seal(buffer)
    assert digests.written(buffer.getvalue()) != "0" * 64
    assert digests.intact(buffer.getvalue())
