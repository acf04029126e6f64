"""A run that is killed again and again comes out as one that was left alone, byte for byte."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import trimol
from trimol.runs import RunConfig, configure

KILLS = 8
ADAM = """
import torch
from torch import nn
from trimol.tasks.digits import Digits

class Dropped(Digits):
    name = "dropped"

    def model(self):
        return nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10)
        )

    def optimizer(self, params, lr):
        return torch.optim.Adam(params, lr=lr)
"""


class Forks:
    """A process that forks others."""

    def __init__(self) -> None:
        source = str(Path(trimol.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forked_runs.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, order: dict[str, object]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def execute(self, configs: list[RunConfig], folder: Path, kill_after: float | None) -> int:
        """The exit code of a process that executes the runs, and is killed if it takes longer."""
        dumped = [config.model_dump(mode="json") for config in configs]
        child = self.ask({"configs": dumped, "folder": str(folder)})
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)  # not reaped yet: the id is still its own
        return self.ask({"wait": child})

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


def configs(folder: Path) -> list[RunConfig]:
    file = folder / "adam.py"
    file.write_text(ADAM)
    often = {"steps": 40, "measure_every": 9, "checkpoint_every": 4}
    runs = [("digits", name, None) for name in ("smg", "pcgrad")]
    runs += [(f"{file}:Dropped", "modo", 1e-3), (f"{file}:Dropped", "moco", 1e-3)]
    return [configure(task, name, lr=lr, seed=1, **often) for task, name, lr in runs]


def survive(
    forks: Forks, configs: list[RunConfig], folder: Path, longest: float, dice: random.Random
) -> int:
    """Kill until they finish; how often that was."""
    kills = 0
    while forks.execute(configs, folder, kill_after=dice.uniform(0, longest)) != 0:
        kills += 1
        longest *= 1.05  # it must finish in the end, however slow the machine has become
    return kills


def killed_and_whole(forks: Forks, configs: list[RunConfig], folder: Path) -> tuple[int, Path]:
    """Execute runs undisturbed, in ``whole``, and killed again and again, in ``broken``."""
    whole, broken = folder / "whole", folder / "broken"
    began = time.monotonic()
    assert forks.execute(configs, whole, kill_after=None) == 0
    takes = time.monotonic() - began
    return survive(forks, configs, broken, takes / 4, random.Random(0)), broken


def same(broken: Path, whole: Path) -> None:
    assert sorted(os.listdir(broken)) == sorted(os.listdir(whole))
    for name in ("config.json", "metrics.parquet", "model.pt", "direction.pt"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    first, second = (
        json.loads((folder / "summary.json").read_text()) for folder in (whole, broken)
    )
    assert first["record"] == second["record"]
    assert (first["steps"], first["samples"]) == (second["steps"], second["samples"])


@pytest.mark.slow
def test_killed_runs_come_out_as_unbroken_ones(forks: Forks, tmp_path: Path) -> None:
    kills = {}
    for number, config in enumerate(configs(tmp_path)):
        folder = tmp_path / str(number)
        kills[number], broken = killed_and_whole(forks, [config], folder)
        same(broken, folder / "whole")
    assert sum(kills.values()) >= KILLS, kills


@pytest.mark.slow
def test_killed_groups_come_out_as_unbroken_ones(forks: Forks, tmp_path: Path) -> None:
    often = {"steps": 60, "measure_every": 9, "checkpoint_every": 4}
    group = [configure("digits", "modo", seed=seed, **often) for seed in (1, 2, 3)]
    kills, broken = killed_and_whole(forks, group, tmp_path)
    assert sorted(os.listdir(broken)) == ["1", "2", "3"]  # no checkpoint is left
    for name in os.listdir(broken):
        same(broken / name, tmp_path / "whole" / name)
    assert kills >= KILLS // 4
