"""Executing a run: what is on disk, what is not run again, and how it stops."""

import errno
import json
import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trimol import tasks
from trimol.runs import (
    Interrupted,
    RunConfig,
    StoredRun,
    StoreError,
    configure,
    execute,
)
from trimol.runs import (
    _storage as files,
)
from trimol.runs._lock import locked
from trimol.training import Diverged, Record, assess, evaluating, start, train
from trimol.training.assessment import metrics

CONFIG = configure("digits", "modo", steps=12, measure_every=5, checkpoint_every=4, rho=0.1)
FILES = {"config.json", "environment.json", "metrics.parquet", "checkpoint.pt", "model.pt"}
FILES |= {"direction.pt", "summary.json", ".lock"}
SCORED = CONFIG.model_copy(update={"score_every": 3, "task_options": {"validation": 100}})


class Stop:
    """Sends a signal to this process when a step is done."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self.step, self.number = step, number

    def __call__(self, config: RunConfig, step: int, record: Record | None) -> None:
        if step == self.step and record is None:
            os.kill(os.getpid(), self.number)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return execute(CONFIG, tmp_path_factory.mktemp("finished"))


def test_what_is_on_disk(finished: StoredRun) -> None:
    assert set(os.listdir(finished.path)) == FILES
    assert finished.config == CONFIG
    assert finished.objectives == ("cross-entropy", "MSE", "Huber")
    assert finished.environment["torch"] == torch.__version__
    assert finished.summary is not None
    known = {"steps", "samples", "seconds", "measuring", "finished", "record", "digests", "task"}
    assert known == set(finished.summary)
    assert (finished.summary["steps"], finished.summary["samples"]) == (12, 12 * 64)
    assert finished.summary["record"] == finished.record


def test_numbers_are_those_of_the_loop(finished: StoredRun) -> None:
    task = tasks.load("digits")
    run = start(task, "modo", lr=CONFIG.lr, hyperparameters=CONFIG.hyperparameters)
    seen: list[Record] = []
    train(run, 12, watch=lambda run: seen.append(assess(run, rho=0.1).record))
    last = assess(run, rho=0.1)
    assert finished.metrics["step"].to_list() == [0, 5, 10, 12]
    assert finished.metrics.row(1, named=True) == seen[5]
    assert finished.record == last.record
    assert "E_caw" in finished.record
    for name, value in run.model.state_dict().items():
        assert torch.equal(finished.parameters[name], value)
    assert finished.direction.square().sum().item() == pytest.approx(finished.record["E_ca"])


def test_a_finished_run_is_not_run_again(
    finished: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(import_module("trimol.runs._execute"), "start", forbidden)
    before = {name: (finished.path / name).stat().st_mtime_ns for name in FILES}
    other = CONFIG.model_copy(update={"checkpoint_every": 1})  # which changes nothing in it
    for resume in (False, True):
        assert execute(other, finished.path, resume=resume).record == finished.record
    assert {name: (finished.path / name).stat().st_mtime_ns for name in FILES} == before


def test_a_folder_with_another_run(finished: StoredRun) -> None:
    other = CONFIG.model_copy(update={"lr": 0.5})
    line = rf"holds another run \(lr is {CONFIG.lr} there, 0.5 here\): choose another folder"
    with pytest.raises(StoreError, match=line):
        execute(other, finished.path)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_interrupted_and_resumed(
    finished: StoredRun, tmp_path: Path, number: int, code: int
) -> None:
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted, match=r"interrupted at step 7 of 12, saved in .*: resume") as e:
        execute(CONFIG, tmp_path, watch=Stop(7, number))
    assert e.value.code == code
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["run"]["step"] == 7
    with pytest.raises(StoreError, match="holds this run unfinished: resume it"):
        execute(CONFIG, tmp_path)
    again = execute(CONFIG, tmp_path, resume=True)
    assert again.record == finished.record
    for name in ("metrics.parquet", "model.pt", "direction.pt"):
        assert (tmp_path / name).read_bytes() == (finished.path / name).read_bytes()


def test_records_after_the_checkpoint_are_measured_again(
    finished: StoredRun, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        execute(CONFIG, tmp_path, watch=Stop(7))
    table = files.read_table(finished.path / "metrics.parquet")
    files.write_table(tmp_path / "metrics.parquet", table)  # as if killed after step 12's record
    execute(CONFIG, tmp_path, resume=True)
    assert files.read_table(tmp_path / "metrics.parquet").equals(table)


def test_killed_before_the_first_checkpoint(finished: StoredRun, tmp_path: Path) -> None:
    files.write_json(tmp_path / "config.json", CONFIG.model_dump(mode="json"))
    assert execute(CONFIG, tmp_path, resume=True).record == finished.record


def test_resume_where_there_is_nothing(tmp_path: Path) -> None:
    config = configure("digits", "static", steps=0)
    found = execute(config, tmp_path / "new" / "folder", resume=True)
    assert found.metrics["step"].to_list() == [0]


def test_watch_is_told_of_steps_and_records(tmp_path: Path) -> None:
    told: list[tuple[int, bool]] = []
    config = configure("digits", "static", steps=3, measure_every=2)
    execute(config, tmp_path, watch=lambda c, step, record: told.append((step, record is not None)))
    assert told == [(0, True), (1, False), (2, False), (2, True), (3, False), (3, True)]


TASK = """
from trimol.tasks.digits import Digits

class Mine(Digits):
    steps = 0

    def losses(self, model, batch):
        if model.training:
            self.steps += 1
        return super().losses(model, batch) * (1 if self.steps < 5 else {value})
"""


def mine(folder: Path, value: str) -> str:
    (folder / "mine.py").write_text(TASK.format(value=value))
    return f"{folder / 'mine.py'}:Mine"


def test_a_run_that_diverges(tmp_path: Path) -> None:
    config = configure(mine(tmp_path, "float('nan')"), "static", steps=9, lr=0.1, measure_every=2)
    with pytest.raises(Diverged, match="the loss 'cross-entropy' is nan at step 4"):
        execute(config, tmp_path / "run")
    table = files.read_table(tmp_path / "run" / "metrics.parquet")
    assert table["step"].to_list() == [0, 2]
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_users_mistake_names_its_line(tmp_path: Path) -> None:
    config = configure(mine(tmp_path, "1 / 0"), "static", steps=9, lr=0.1)
    with pytest.raises(tasks.TaskError, match=r"mine.py, line 10: ZeroDivisionError"):
        execute(config, tmp_path / "run")


def test_a_task_that_changed(tmp_path: Path) -> None:
    config = configure(mine(tmp_path, "1"), "static", steps=2, lr=0.1)
    mine(tmp_path, "2")
    with pytest.raises(StoreError, match=r"mine.py:Mine has changed since this run"):
        execute(config, tmp_path / "run")


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data").mkdir()
    execute(configure("digits", "static", steps=1), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "data").is_dir()


def test_a_foreign_configuration_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"colour": "red"}')
    with pytest.raises(StoreError, match=r"config.json is no run's configuration"):
        execute(CONFIG, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {"colour": "red"}
    assert os.listdir(tmp_path) == ["config.json"]


def test_a_folder_in_use(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StoreError, match="is in use by process"):
        execute(CONFIG, tmp_path)


def test_a_full_disk_loses_nothing(
    finished: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.fsync, [12]

    def filling(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", filling)
    with pytest.raises(StoreError, match=r"cannot write .*: No space left on device"):
        execute(CONFIG, tmp_path)
    monkeypatch.undo()
    assert execute(CONFIG, tmp_path, resume=True).record == finished.record


def test_dropout_and_adam_resume(tmp_path: Path) -> None:
    class Dropped(tasks.get("digits")):  # type: ignore[misc]
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(64, 8), nn.Dropout(), nn.Linear(8, 10))

        def optimizer(self, params: Any, lr: float) -> torch.optim.Optimizer:
            return torch.optim.Adam(params, lr=lr)

    config = configure("digits", "moco", lr=1e-2, steps=9, measure_every=2, checkpoint_every=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("trimol.runs._execute"), "task_of", lambda *_: Dropped())
        whole = execute(config, tmp_path / "whole")
        with pytest.raises(Interrupted):
            execute(config, tmp_path / "broken", watch=Stop(5))
        broken = execute(config, tmp_path / "broken", resume=True)
    assert broken.metrics.equals(whole.metrics)
    assert all(torch.equal(broken.parameters[k], v) for k, v in whole.parameters.items())


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return execute(SCORED, tmp_path_factory.mktemp("scored"))


def test_scores_are_the_tasks_metrics_between_steps(scored: StoredRun) -> None:
    task = tasks.load("digits", {"validation": 100})
    data = task.data()
    assert data.validation is not None
    run = start(task, "modo", lr=CONFIG.lr, hyperparameters=CONFIG.hyperparameters)
    expected = []
    for step in (3, 6, 9, 12):
        train(run, 3)
        with evaluating(run.model), torch.no_grad():
            losses = torch.stack(list(task.losses(run.model, data.validation))).tolist()
        held_out = metrics(task, run.model, data.validation)["accuracy"]
        test = metrics(task, run.model, data.test)["accuracy"]
        named = {f"validation_loss/{n}": v for n, v in zip(task.objectives, losses, strict=True)}
        accuracies = {"validation/accuracy": held_out, "test/accuracy": test}
        expected.append({"step": step, **named, **accuracies})
    for found, wanted in zip(scored.scores.to_dicts(), expected, strict=True):
        assert list(found) == list(wanted)
        assert found == pytest.approx(wanted, rel=1e-6)
    assert scored.record["metric/accuracy"] == expected[-1]["test/accuracy"]


def test_scoring_leaves_the_run_as_it_is(scored: StoredRun, tmp_path: Path) -> None:
    plain = execute(SCORED.model_copy(update={"score_every": 0}), tmp_path)
    assert plain.metrics.equals(scored.metrics)
    assert plain.scores.is_empty()
    assert not (tmp_path / "scores.parquet").exists()


@pytest.mark.parametrize("step", [2, 6, 7, 8, 11])  # before, at and after a score or a checkpoint
def test_scores_resume(scored: StoredRun, tmp_path: Path, step: int) -> None:
    with pytest.raises(Interrupted):
        execute(SCORED, tmp_path, watch=Stop(step))
    execute(SCORED, tmp_path, resume=True)
    for name in ("scores.parquet", "metrics.parquet", "model.pt"):
        assert (tmp_path / name).read_bytes() == (scored.path / name).read_bytes()


def test_scores_after_the_checkpoint_are_taken_again(scored: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        execute(SCORED, tmp_path, watch=Stop(7))
    files.write_table(tmp_path / "scores.parquet", scored.scores)  # as if killed after step 12's
    execute(SCORED, tmp_path, resume=True)
    assert files.read_table(tmp_path / "scores.parquet").equals(scored.scores)


def test_scores_without_validation_data(tmp_path: Path) -> None:
    found = execute(configure("digits", "static", steps=4, score_every=2), tmp_path)
    assert found.scores.columns == ["step", "test/accuracy"]
    assert found.scores["step"].to_list() == [2, 4]


COUNTING = """
from trimol.tasks.digits import Digits

class Counting(Digits):
    calls = 0

    def losses(self, model, batch):
        self.calls += 1
        return super().losses(model, batch) * (1 + self.calls / 10)
"""


def test_what_a_task_remembers_is_of_one_run_only(tmp_path: Path) -> None:
    """Whether another run came before it in this process does not change a run."""
    (tmp_path / "mine.py").write_text(COUNTING)
    config = configure(f"{tmp_path}/mine.py", "static", lr=0.1, steps=3)
    first, second = (execute(config, tmp_path / name) for name in "ab")
    assert first.record == second.record


def test_data_that_a_task_reads_are_read_for_every_run(tmp_path: Path) -> None:
    made = """
    def __init__(self):
        super().__init__()
        self.calls = int(pathlib.Path(__file__).with_name("calls").read_text())
"""
    text = "import pathlib\n" + COUNTING.replace("    calls = 0\n", made)
    (tmp_path / "mine.py").write_text(text)
    records = []
    for calls in ("1", "50"):
        (tmp_path / "calls").write_text(calls)
        config = configure(f"{tmp_path}/mine.py", "static", lr=0.1, steps=3)
        records.append(execute(config, tmp_path / f"runs-{calls}").record)
    assert records[0] != records[1]


def test_looks_at_steps_are_in_the_records_and_resume(tmp_path: Path) -> None:
    own = {"optimizer": "adam", "watch_every": 2, "watch_full_every": 3, "lr": 0.05}
    config = CONFIG.model_copy(update=own)
    whole = execute(config, tmp_path / "whole")
    plain = execute(
        config.model_copy(update={"watch_every": 0, "watch_full_every": 0}), tmp_path / "plain"
    )
    for name, value in plain.parameters.items():
        assert torch.equal(whole.parameters[name], value)
    assert [row.get("steps_looked") for row in whole.metrics.to_dicts()] == [None, 3, 5, 6]
    looked = {
        name: value for name, value in whole.record.items() if name.startswith(("steps_", "full_"))
    }
    assert {k: v for k, v in whole.record.items() if k not in looked} == plain.record
    assert (looked["steps_looked"], looked["full_looked"]) == (6, 2)
    assert 0 <= looked["steps_raise_all"] <= looked["steps_raise_some"] <= 1
    assert {f"steps_raise/{name}" for name in whole.objectives} <= looked.keys()
    assert -1 <= looked["steps_worst_cosine"] <= 1
    assert whole.summary is not None
    assert whole.summary["record"] == whole.record
    with pytest.raises(Interrupted):
        execute(config, tmp_path / "broken", watch=Stop(7))
    execute(config, tmp_path / "broken", resume=True)
    for name in ("metrics.parquet", "model.pt"):
        assert (tmp_path / "broken" / name).read_bytes() == (whole.path / name).read_bytes()
