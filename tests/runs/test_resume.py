"""Tasks that draw and remember: resumed, measured or grouped, a run is the same, or it is said."""

import os
import random
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trimol
from trimol.runs import Interrupted, RunConfig, StoredRun, configure, execute, execute_all
from trimol.tasks import load
from trimol.training import Record, start, train

TASK = """
import itertools, os, random, signal
import numpy as np, torch
from torch import nn
from trimol.data import IndependentDraws
from trimol.tasks import Data, Task

X = torch.linspace(-1, 1, 160).reshape(80, 2)
RANDOM = np.random.default_rng(7)
CALLS = [0]


class Helper:
    all = 0

    def __init__(self):
        self.calls = 0

    def next(self):
        self.calls += 1
        return self.calls / 9


class Rows:
    def __init__(self, draw):
        self.draw, self.own = draw, np.random.default_rng(3)

    def __len__(self):
        return len(X)

    def __getitem__(self, places):
        return X[places] * self.draw(self)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls, self.mean = nn.Linear(2, 1), 0, torch.zeros(())

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


class Sampler(IndependentDraws):
    def indices(self, step):
        return [torch.randint(80, (8,), generator=self.own)]


class Odd(Task):
    name = "odd"
    objectives = ("a", "b")

    def __init__(self):
        self.torch, self.numpy = torch.Generator().manual_seed(1), np.random.default_rng(2)
        self.calls, self.list, self.helper = 0, [0], Helper()
        self.iterator, self.tensor, self.batches = itertools.count(), torch.zeros(()), []

    def data(self):
        kind = "{kind}"
        draws = {{
            "numpy rows": lambda rows: np.random.rand(),
            "own rows": lambda rows: float(rows.own.random()),
        }}
        x = Rows(draws[kind]) if kind in draws else X.clone()
        y = X.sum(1)
        return Data(train=(x, y), test=(X.clone(), y.clone()), validation=(X[:9].clone(), y[:9]))

    def model(self):
        return Net()

    def optimizer(self, params, lr):
        made = torch.optim.SGD(params, lr=lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(made, 2, 0.5)
        return made

    def step(self, model):
        if model.training and self.calls:  # the optimizer's first step is done
            self.scheduler.step()
        self.calls += model.training

    def sampler(self, data, batch_size, *, growth, seed):
        if "{kind}" != "sampler":
            return super().sampler(data, batch_size, growth=growth, seed=seed)
        made = Sampler(80, batch_size, k=1, seed=seed)
        made.own = torch.Generator().manual_seed(seed)
        return made

    def losses(self, model, batch):
        x, y = batch
        {code}
        out = model(x)[:, 0]
        return [(out - z * y).square().mean(), (out + z).abs().mean()]

    def metrics(self, model, batch):
        batch[0].mul_(0.5)
        return {{"noise": torch.tensor(random.random() + np.random.rand())}}
"""
# What is saved with a run.
SAME = {
    "python": "z = random.gauss(0, 1)",
    "numpy": "z = float(np.random.randn())",
    "torch": "z = torch.rand(()).item()",
    "own torch": "z = torch.rand((), generator=self.torch).item()",
    "own numpy": "z = float(self.numpy.random())",
    "file's numpy": "z = float(RANDOM.random())",
    "counter": "self.calls += 1; z = 1.0 if self.calls < 9 else 0.3",
    "counter of model": "z = 1.0 if model.calls < 9 else 0.3",
    "counter of class": "Helper.all += 1; z = Helper.all / 9",
    "counter of file": "CALLS[0] += 1; z = CALLS[0] / 9",
    "counter in list": "self.list[0] += 1; z = 1.0 if self.list[0] < 9 else 0.3",
    "counter in helper": "z = self.helper.next()",
    "scheduler": "self.step(model); z = 1.0",
    "in place": "x.mul_(0.5); y.numpy()[:] += 1; z = 1.0",
    "numpy rows": "z = 1.0",
    "own rows": "z = 1.0",
    "sampler": "z = 1.0",
}
# What is not.
OTHER = {
    "iterator": "z = next(self.iterator) / 9",
    "tensor": "self.tensor = self.tensor * 0.9 + y.mean(); z = float(self.tensor)",
    "tensor of model": "model.mean = model.mean * 0.9 + y.mean(); z = float(model.mean)",
    "list of tensors": "self.batches.append(y); z = 1.0 if len(self.batches) < 9 else 0.3",
}
STEPS, CUT = 12, 7
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
SAID = "not the same bit for bit"


def config(folder: Path, kind: str, **options: Any) -> RunConfig:
    code = (SAME | OTHER)[kind]
    (folder / "odd.py").write_text(TASK.format(kind=kind, code=code), encoding="utf-8")
    asked = {"steps": STEPS, "batch_size": 8, "lr": 0.05, "measure_every": 3, **options}
    return configure(f"{folder / 'odd.py'}:Odd", "static", **asked)


def elsewhere() -> None:
    """What another process may have drawn before."""
    random.seed()
    np.random.seed()
    torch.seed()


def interrupt(asked: RunConfig, folder: Path) -> None:
    def stop(config: RunConfig, step: int, record: Record | None) -> None:
        if step == CUT and record is None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        execute(asked, folder, watch=stop)
    elsewhere()


def saying(kind: str) -> AbstractContextManager[Any]:
    return pytest.warns(RuntimeWarning, match=SAID) if kind in OTHER else nullcontext()


def alike(one: StoredRun, other: StoredRun) -> bool:
    return all(torch.equal(p, other.parameters[name]) for name, p in one.parameters.items())


@pytest.mark.parametrize("kind", [*SAME, *OTHER])
def test_resumed_it_is_the_same_or_that_is_said(kind: str, tmp_path: Path) -> None:
    asked = config(tmp_path, kind)
    with saying(kind):
        whole = execute(asked, tmp_path / "whole")
    with saying(kind):
        interrupt(asked, tmp_path / "broken")
        broken = execute(asked, tmp_path / "broken", resume=True)
    for run in (whole, broken):
        assert run.summary is not None
        assert (SAID in run.summary.get("unrepeatable", "")) == (kind in OTHER)
    same = alike(whole, broken) and whole.metrics.equals(broken.metrics)
    assert same == (kind in SAME)


@pytest.mark.parametrize("kind", SAME)
def test_measuring_changes_no_training(kind: str, tmp_path: Path) -> None:
    asked = config(tmp_path, kind, measure_every=0)
    seldom = execute(asked, tmp_path / "seldom")
    elsewhere()
    often = asked.model_copy(update={"measure_every": 1, "score_every": 2, "watch_every": 1})
    assert alike(seldom, execute(often, tmp_path / "often"))


@pytest.mark.parametrize(
    "kind", ["python", "own torch", "counter", "counter in helper", "scheduler", "in place"]
)
def test_what_is_checked_is_what_the_loop_trains(kind: str, tmp_path: Path) -> None:
    asked = config(tmp_path, kind, checkpoint_every=2)
    run = execute(asked, tmp_path / "run")
    loop = train(start(load(asked.task), "static", lr=asked.lr, batch_size=8), STEPS)
    assert all(torch.equal(p, loop.model.state_dict()[name]) for name, p in run.parameters.items())


@pytest.mark.parametrize("kind", [*SAME, *OTHER])
def test_a_group_is_the_runs_one_by_one(kind: str, tmp_path: Path) -> None:
    asked = config(tmp_path, kind)
    seeds = [asked.model_copy(update={"seed": seed}) for seed in (0, 1)]
    with saying(kind):
        group = execute_all([(each, tmp_path / f"group{each.seed}") for each in seeds])
    for each, run in zip(seeds, group, strict=True):
        elsewhere()
        with saying(kind):
            alone = execute(each, tmp_path / f"alone{each.seed}")
        assert isinstance(run, StoredRun)
        for name, value in alone.parameters.items():
            torch.testing.assert_close(run.parameters[name], value, rtol=1e-4, atol=1e-6)


def rewritten(folder: Path, old: str, new: str) -> str:
    """The task of torch's random numbers, with other code."""
    file = Path(config(folder, "torch").task.removesuffix(":Odd"))
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    return f"{file}:Odd"


def test_other_data_when_it_is_resumed_are_said(tmp_path: Path) -> None:
    new = tmp_path / "new"
    task = rewritten(tmp_path, "y = X.sum(1)", f"y = X.sum(1) + os.path.exists({str(new)!r})")
    asked = configure(task, "static", steps=STEPS, batch_size=8)
    interrupt(asked, tmp_path / "run")
    new.touch()
    with pytest.warns(RuntimeWarning, match="another batch for the same samples.* interrupted"):
        run = execute(asked, tmp_path / "run", resume=True)
    assert run.summary is not None
    assert "another batch" in run.summary["unrepeatable"]


def test_a_step_that_cannot_be_repeated_does_not_stop_the_run(tmp_path: Path) -> None:
    once = "self.batches.append(x); assert len(self.batches) != 3; z = 1.0"
    task = rewritten(tmp_path, SAME["torch"], once)
    asked = configure(task, "static", steps=4, batch_size=8)
    with pytest.warns(RuntimeWarning, match="adds to a list"):
        run = execute(asked, tmp_path / "run")
    assert run.record["step"] == 4


@pytest.mark.slow
def test_by_the_command(tmp_path: Path) -> None:
    stop = "if 'STOP' in os.environ and self.calls == 7: os.kill(os.getpid(), signal.SIGTERM)"
    draws = "z = random.random() + np.random.rand() + float(RANDOM.random()); self.calls += 1"
    task = rewritten(tmp_path, SAME["torch"], f"{draws}\n        {stop}")

    def command(out: str, *more: str, **environment: str) -> int:
        asked = ["run", task, "--method", "static", "--steps", str(STEPS), "--quiet"]
        source = str(Path(trimol.__file__).parents[1])
        return subprocess.run(
            [sys.executable, "-m", "trimol.cli", *asked, "--out", str(tmp_path / out), *more],
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **environment},
            check=False,
            timeout=240,
        ).returncode

    assert command("whole") == 0
    assert command("broken", STOP="1") == 143
    assert command("broken", "--resume") == 0
    whole, broken = (trimol.runs.store.load(tmp_path / name) for name in ("whole", "broken"))
    assert alike(whole, broken)
    assert whole.metrics.equals(broken.metrics)
    assert "unrepeatable" not in (broken.summary or {})
