"""Comparing methods: the numbers, their names, their means; equal samples; several processes."""

import os
import signal
import statistics
from pathlib import Path

import pytest
import torch

from trimol import _files
from trimol.data import GrowingBatches
from trimol.runs import (
    Interrupted,
    RunConfig,
    compare,
    configure,
    differences,
    summarise,
)
from trimol.runs import _storage as files
from trimol.runs._pool import execute_all
from trimol.runs.comparison import Comparison, folder_name, numbers
from trimol.tasks import get, load
from trimol.training import Diverged, Record, RunError, assess, start, train

NAMES = ["cross-entropy", "MSE", "Huber", "accuracy", "R_opt", "R_pop", "R_gen", "E_ca"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compared")
    return compare("digits", ["static", "mgda"], folder=folder, seeds=3, steps=4)


def test_runs_are_those_of_the_tasks_settings(tmp_path: Path) -> None:
    task, steps = load("digits"), []
    results = compare(
        "digits",
        ["modo"],
        folder=tmp_path,
        seeds=2,
        steps=5,
        watch=lambda config, step, record: steps.append((config.seed, step, record is None)),
    )
    assert [told for told in steps if told[2]] == [
        (s, t, True) for s in (0, 1) for t in range(1, 6)
    ]
    settings = task.settings["modo"]
    for seed, stored in enumerate(results.runs["modo"]):
        run = start(task, "modo", lr=settings.lr, hyperparameters=settings.method, seed=seed)
        assert stored.record == assess(train(run, 5)).record


def test_runs_may_train_together(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    results = compare(
        "digits",
        ["modo"],
        folder=tmp_path,
        seeds=2,
        steps=5,
        watch=lambda config, step, record: told.append((config.seed, step)),
        together=True,
    )
    assert told[:4] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    settings = load("digits").settings["modo"]
    for seed, stored in enumerate(results.runs["modo"]):
        run = start(
            load("digits"), "modo", lr=settings.lr, hyperparameters=settings.method, seed=seed
        )
        expected = assess(train(run, 5)).record
        assert list(stored.record) == list(expected)
        assert stored.record == pytest.approx(expected, rel=2e-4, abs=1e-7)


def test_finished_runs_are_skipped(found: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = found.runs["static"][0].path.parent
    steps: list[int] = []
    again = compare(
        "digits",
        ["static", "mgda"],
        folder=folder,
        seeds=4,  # one more
        steps=4,
        watch=lambda config, step, record: steps.append(config.seed),
    )
    assert set(steps) == {3}
    assert [run.config.seed for run in again.runs["mgda"]] == [0, 1, 2, 3]


def test_rows(found: Comparison) -> None:
    rows = summarise(found)
    names = [*NAMES, "|R_gen|", "E_ca_definition", "E_ca_unbiased"]
    assert [row["metric"] for row in rows] == names * 2
    assert [row["method"] for row in rows] == ["static"] * 11 + ["mgda"] * 11
    signed = [run.record["R_gen"] for run in found.runs["static"]]
    for row, gaps in ((rows[6], signed), (rows[8], [*map(abs, signed)])):
        assert (row["n"], row["paper"]) == (3, None)
        assert row["mean"] == pytest.approx(statistics.mean(gaps), rel=1e-14)
        assert row["std"] == pytest.approx(statistics.stdev(gaps))
        assert row["ci"] == pytest.approx(4.302653 * statistics.stdev(gaps) / 3**0.5)


def test_the_generalization_error_has_its_sign_and_is_compared_by_its_size() -> None:
    found = numbers({"R_opt": 0.3, "R_pop": 0.1, "R_gen": -0.2})
    assert found == {"R_opt": 0.3, "R_pop": 0.1, "R_gen": -0.2, "|R_gen|": 0.2}


def test_both_readings_of_the_conflict(found: Comparison) -> None:
    rows = {(row["method"], row["metric"]): row["mean"] for row in summarise(found)}
    directions = torch.stack([run.direction for run in found.runs["static"]])
    assert rows["static", "E_ca"] == pytest.approx(directions.square().sum(1).mean().item())
    mean = directions.mean(0).square().sum().item()
    assert rows["static", "E_ca_definition"] == pytest.approx(mean)
    assert rows["static", "E_ca_definition"] <= rows["static", "E_ca"]


def test_rows_for_machines(found: Comparison) -> None:
    row = summarise(found)[0]
    settings = load("digits").settings["static"]
    assert row["lr"] == settings.lr
    assert row["steps"] == 4
    assert {"method", "metric", "mean", "std", "n", "paper", "ci"} <= row.keys()
    assert "settings" not in row


def test_differences_are_seed_by_seed(found: Comparison) -> None:
    rows = differences(found)
    assert [row.metric for row in rows] == [n for n in NAMES if n != "R_gen"] + ["|R_gen|"]
    assert {(row.method, row.baseline, row.n) for row in rows} == {("mgda", "static", 3)}
    pairs = zip(found.runs["mgda"], found.runs["static"], strict=True)
    values = [two.record["R_opt"] - one.record["R_opt"] for two, one in pairs]
    row = rows[4]
    assert row.mean == pytest.approx(statistics.mean(values))
    assert row.ci == pytest.approx(4.302653 * statistics.stdev(values) / 3**0.5)
    assert row.excludes_zero == (abs(row.mean) > row.ci)


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    results = compare("digits", ["static", "rgw"], folder=tmp_path, seeds=1, steps=1)
    assert {(row["std"], row["ci"]) for row in summarise(results)} == {(None, None)}
    assert {(row.ci, row.p, row.clear) for row in differences(results)} == {(None, None, False)}


def test_a_growing_method_gets_the_same_samples(tmp_path: Path) -> None:
    results = compare("digits", ["static", "smg"], folder=tmp_path, seeds=1, steps=9)
    (static,), (smg,) = results.runs.values()
    steps = smg.config.steps
    sampler = GrowingBatches(1437, 64)
    assert smg.record["samples"] == sampler.samples(steps) <= static.record["samples"] == 9 * 64
    assert sampler.samples(steps + 1) > 9 * 64


def test_options_reach_the_runs(tmp_path: Path) -> None:
    results = compare(
        "digits",
        ["static", "modo"],
        folder=tmp_path,
        seeds=1,
        steps=2,
        batch_size=8,
        task_options={"hidden": 5},
        hyperparameters={"modo": {"gamma": 0.5}},
        lr={"static": 0.25},
        rho=0.1,
        measure_every=1,
    )
    static, modo = results.runs["static"][0], results.runs["modo"][0]
    assert (static.config.lr, modo.config.hyperparameters["gamma"]) == (0.25, 0.5)
    assert len(static.parameters["0.bias"]) == 5
    assert modo.metrics["samples"].to_list() == [0, 8, 16]
    assert "E_caw" in modo.record


TASK = """
from trimol.tasks.digits import Digits

class Mine(Digits):
    name = "my task/1"

    def losses(self, model, batch):
        found = super().losses(model, batch)
        return found * float("nan") if model[0].bias.detach().abs().max() > {largest} else found
"""


def mine(folder: Path, largest: float) -> str:
    (folder / "mine.py").write_text(TASK.format(largest=largest))
    return f"{folder / 'mine.py'}:Mine"


def test_diverged_runs_do_not_stop_the_others(tmp_path: Path) -> None:
    task = mine(tmp_path, 0.2)  # the biases start below 1/8
    rates = {"static": 1e-3, "modo": 1e3}
    results = compare(task, ["static", "modo"], folder=tmp_path, seeds=2, steps=5, lr=rates)
    assert [len(runs) for runs in results.runs.values()] == [2, 0]
    assert {config.method for config, _ in results.failed} == {"modo"}
    assert "is nan at step" in results.failed[0][1]
    assert {row["method"] for row in summarise(results)} == {"static"}
    assert differences(results) == []


def test_all_diverged(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="every run diverged; static: the loss 'cross-entropy' is"):
        compare(mine(tmp_path, -1), ["static"], folder=tmp_path, seeds=2, steps=5, lr={})


def test_folders_have_plain_names(tmp_path: Path) -> None:
    name = folder_name(configure(mine(tmp_path, 1), "modo", steps=1, seed=2))
    assert name.startswith("my-task-1-modo-seed2-")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": []}, "methods must be one or more different names"),
        ({"methods": ["modo", "modo"]}, "methods must be one or more different names"),
        ({"methods": ["mod"]}, "method must be one of"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, found 0"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1, found 0"),
        ({"steps": -1}, "steps: input should be greater than or equal to 0, found -1"),
    ],
)
def test_bad_settings(change: dict[str, object], message: str, tmp_path: Path) -> None:
    settings = {"methods": ["static"], "seeds": 1, "steps": 1, "folder": tmp_path, **change}
    with pytest.raises(ValueError, match=message):
        compare("digits", **settings)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_several_processes(found: Comparison, tmp_path: Path) -> None:
    told: list[tuple[str, int, bool]] = []

    def watch(config: RunConfig, step: int, record: Record | None) -> None:
        told.append((config.method, step, record is None))

    settings = {"seeds": 3, "steps": 4, "jobs": 2, "watch": watch, "folder": tmp_path}
    results = compare("digits", ["static", "mgda"], **settings)  # type: ignore[arg-type]
    for method, runs in results.runs.items():
        assert [run.record for run in runs] == [run.record for run in found.runs[method]]
    for method in ("static", "mgda"):
        assert told.count((method, 4, False)) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_several_processes_interrupted_and_failing(tmp_path: Path) -> None:
    long = [configure("digits", method, steps=10**6) for method in ("static", "mgda")]
    runs = [(config, tmp_path / config.method) for config in long]

    def stop(config: RunConfig, step: int, record: Record | None) -> None:
        if step > 0:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="run the same command again to go on") as error:
        execute_all(runs, jobs=2, watch=stop)
    assert error.value.code == 143
    # The one that had begun has saved where it was; no lock is left.
    saved = [folder for _, folder in runs if (folder / "checkpoint.pt").exists()]
    assert saved
    (tmp_path / "mgda").mkdir(exist_ok=True)  # if it had not begun
    content = {"run": {"step": -1}, "seconds": 0.0}
    files.write_tensors(saved[0] / "checkpoint.pt", content)
    with pytest.raises(RunError, match=r"checkpoint.pt does not fit this run.*found -1"):
        execute_all(runs, jobs=2)


def test_a_task_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    kind = get("digits")
    original = kind.__init__

    def counted(self: object, **options: object) -> None:
        made.append(self)
        original(self, **options)

    monkeypatch.setattr(kind, "__init__", counted)
    options = {"hidden": 6}
    for _ in range(2):
        compare(
            "digits", ["static", "modo"], folder=tmp_path, seeds=2, steps=2, task_options=options
        )
    assert len(made) == 1


def test_a_finished_run_is_read_once(found: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    original = _files.read

    def counted(path: Path) -> bytes:
        read.append(path)
        return original(path)

    monkeypatch.setattr(_files, "read", counted)
    folder = found.runs["static"][0].path.parent
    again = compare("digits", ["static", "mgda"], folder=folder, seeds=3, steps=4)
    summarise(again)
    differences(again)
    names = {"config.json", "environment.json", "metrics.parquet", "summary.json", "direction.pt"}
    names |= {"model.pt"}  # for its digest
    for runs in again.runs.values():
        for run in runs:
            assert {path.name for path in read if path.parent == run.path} == names
    # Its vector is read for the digest, before it is taken for finished, and when it is asked for.
    twice = {path for path in read if read.count(path) > 1}
    assert {path.name for path in twice} == {"direction.pt"}
    assert len(read) == len(set(read)) + len(twice)


@pytest.mark.parametrize("what", ["lr", "schedule", "hyperparameters"])
def test_what_is_said_of_a_method_that_is_not_compared_is_refused(what, tmp_path):
    given = {what: {"mgda": {"chunk": 1} if what == "hyperparameters" else 0.1}}
    said = rf"{what} must name compared methods \(static, modo\), found 'mgda'"
    with pytest.raises(ValueError, match=said):
        compare("digits", ["static", "modo"], folder=tmp_path, seeds=1, steps=1, **given)


def test_seeds_may_begin_elsewhere(tmp_path):
    both = compare("digits", ["static"], folder=tmp_path, seeds=2, steps=1, first_seed=3)
    assert [run.config.seed for run in both.runs["static"]] == [3, 4]
    with pytest.raises(ValueError, match="first_seed must be a whole number of at least 0"):
        compare("digits", ["static"], folder=tmp_path, seeds=1, steps=1, first_seed=-1)
