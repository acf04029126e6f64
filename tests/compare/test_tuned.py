"""Tuned methods: tuned on validation data, judged on test data, nothing run twice."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars
import pytest
from polars.testing import assert_frame_equal

import trimol
from trimol import methods
from trimol.compare import TunedResults, TuningPlan, compare_tuned
from trimol.compare._tuned_problem import judge_epochs
from trimol.runs import _pool as pool
from trimol.runs import configure, store
from trimol.search import Setting
from trimol.search._problem import Failure
from trimol.training import Diverged, RunError

TASK = """
import os, time
import torch
from torch import nn
from trimol.tasks import Data, MultiInput, MultiTask

class Lines(MultiInput):
    name = "lines"
    objectives = ("up", "down")
    metric = "error"
    better = "lower"

    def __init__(self, *, width=2, only=None):
        super().__init__(only=only)
        self.width = width

    def model(self):
        heads = {m: nn.Linear(self.width, 1) for m in self.objectives}
        return MultiTask(nn.Linear(3, self.width), heads)

    def loss(self, output, y):
        time.sleep(float(os.environ.get("LINES_SLEEP", 0)))
        return (output[:, 0] - y).square()

    def score(self, output, y):
        return (output[:, 0] - y).abs()

    def data(self):
        random = torch.Generator().manual_seed(0)
        sizes = {"up": 24, "down": 10}
        slopes = {"up": [1.0, 2.0, 0.0], "down": [1.0, -1.0, 0.5]}
        def part():
            x = torch.randn(24, 3, generator=random)
            noise = 0.3 * torch.randn(24, generator=random)
            return self.concatenated([
                (x[: sizes[m]], (x @ torch.tensor(slopes[m]) + noise)[: sizes[m]])
                for m in self.objectives
            ])
        return Data(train=part(), test=part(), validation=part())
"""
RATES = (0.001, 0.1, 0.2)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("task") / "lines.py"
    file.write_text(TASK)
    return f"{file}:Lines"


def static(*lrs: float) -> list[Setting]:
    return [Setting("static", lr) for lr in lrs]


def plan(task: str, **changes: Any) -> TuningPlan:
    tried = static(*RATES)
    wide = {"width": 3}
    tried += [Setting("modo", 0.1, {"gamma": own}, task_options=wide) for own in (0.0, 0.1)]
    given = {"epochs": 3, "batch_size": 8, "seeds": 2, "measure_epochs": 2, **changes}
    return TuningPlan(task, tried, **given)


@pytest.fixture(scope="module")
def compared(task: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[TunedResults, Path]:
    folder = tmp_path_factory.mktemp("compared")
    baselines = {"paper": {"up error": 0.5, "down error": 0.25}}
    asked = plan(task, budget="paper", baselines=baselines)
    return compare_tuned(asked, folder, jobs=1), folder


def row(found: TunedResults, method: str, seed: int, metric: str) -> dict[str, Any]:
    return found.seeds.row(
        by_predicate=(polars.col("method") == method)
        & (polars.col("seed") == seed)
        & (polars.col("metric") == metric),
        named=True,
    )


def test_every_number_from_the_runs_by_hand(compared: tuple[TunedResults, Path]) -> None:
    """All of ΔA again, from the files alone: an independent and plain computation."""
    found, folder = compared
    final: dict[str, list[polars.DataFrame]] = {}
    for run in store.find(folder / "runs"):
        final.setdefault(run.path.parent.parent.name, []).append(run.scores)
    best = {}
    for m in ("up", "down"):
        rows = [
            t.sort(f"validation/{m} error", maintain_order=True)[0] for t in final[f"alone-{m}"]
        ]
        best[m] = {k: fmean(r[f"{k}/{m} error"][0] for r in rows) for k in ("validation", "test")}
        assert found.baseline[f"{m} error"] == best[m]["test"]
    static = {
        m: fmean(t.sort(f"validation/{m} error")[f"test/{m} error"][0] for t in final["static"])
        for m in best
    }
    for label, name in (("static", "static"), ("modo", "modo")):
        for seed, table in enumerate(final[name]):
            own = {m: table.sort(f"validation/{m} error")[f"test/{m} error"][0] for m in best}
            for m in best:
                assert row(found, label, seed, f"{m} error")["value"] == own[m]
            lost = {
                "ΔA_id": 50 * sum(own[m] / best[m]["test"] - 1 for m in best),
                "ΔA_st": 50 * sum(own[m] / static[m] - 1 for m in best),
                "ΔA_id (paper)": 50 * (own["up"] / 0.5 + own["down"] / 0.25 - 2),
            }
            for metric, value in lost.items():
                assert row(found, label, seed, metric)["value"] == pytest.approx(value)
            together = [
                sum(r[f"validation/{m} error"] / best[m]["validation"] for m in best)
                for r in table.to_dicts()
            ]
            epoch = together.index(min(together))
            at = row(found, label, seed, "up error")
            assert at["joint"] == table["test/up error"][epoch]
            assert at["joint_epoch"] == epoch + 1
            both = 50 * sum(table[f"test/{m} error"][epoch] / best[m]["test"] - 1 for m in best)
            assert row(found, label, seed, "ΔA_id")["joint"] == pytest.approx(both)


def test_drops_against_themselves_are_zero_on_average(compared: tuple[TunedResults, Path]) -> None:
    found = compared[0].seeds.filter(method="static", metric="ΔA_st")
    assert found["value"].mean() == pytest.approx(0, abs=1e-12)
    assert found["joint"].mean() == pytest.approx(0, abs=1e-12)
    alone = compared[0].seeds.filter(method="alone")
    assert alone["value"].equals(alone["joint"])
    assert set(alone["metric"]) == {"up error", "down error"}


def test_budgets(compared: tuple[TunedResults, Path]) -> None:
    found, _ = compared
    configs = {label: runs[0].config for label, runs in found.runs.items()}
    longer = configs.pop("modo (paper's budget)")
    assert {c.steps for c in configs.values()} == {9}  # 3 epochs of ⌈24 / 8⌉
    assert {c.batch_size for c in configs.values()} == {8}
    assert (longer.steps, longer.batch_size) == (18, 8)  # of ⌈24 / 4⌉
    assert longer.hyperparameters == configs["modo"].hyperparameters
    label = "modo (paper's budget)"
    assert found.settings[label] == replace(found.settings["modo"], method=label)
    samples = {label: runs[0].summary for label, runs in found.runs.items()}
    assert samples["static"]["samples"] == samples["modo"]["samples"] == 9 * 16
    assert samples["alone-down"]["samples"] == 9 * 8
    assert samples["modo (paper's budget)"]["samples"] == 18 * 16
    for runs in found.runs.values():
        assert [run.config.seed for run in runs] == [0, 1]
        assert len(runs[0].scores) == 3


def test_single_task_learning(compared: tuple[TunedResults, Path]) -> None:
    found, _ = compared
    for objective in ("up", "down"):
        (run, _) = found.runs[f"alone-{objective}"]
        assert run.objectives == (objective,)
        assert run.config.task_options["only"] == objective
        assert run.config.method == "static"
    assert found.tuning.filter(method="alone-up").height == len(RATES)


def test_tuning_is_told(compared: tuple[TunedResults, Path]) -> None:
    found, folder = compared
    for label in ("static", "modo", "alone-up", "alone-down"):
        table = found.tuning.filter(method=label)
        assert table["chosen"].sum() == 1
        best = table.filter("chosen")
        assert best["score"][0] == table["score"].max()
        assert best["lr"][0] == found.settings[label].lr
        (key,) = os.listdir(folder / "runs" / label)
        left = os.listdir(folder / store.ASIDE / label)
        assert key not in left
        assert len(left) == len(table) - 1
    edges = found.tuning.filter(method="static")["edge"].to_list()
    assert edges == ["lr", "", "lr"]
    assert found.tuning.filter(method="modo")["edge"].to_list() == ["gamma", "gamma"]


def test_a_search_for_runs_finds_the_final_ones(compared: tuple[TunedResults, Path]) -> None:
    found, folder = compared
    paths = {run.path for runs in found.runs.values() for run in runs}
    assert {run.path for run in store.find(folder)} == paths
    assert {run.path for run in store.find(folder / "runs")} == paths
    left = {run.path for run in store.find(folder / store.ASIDE)}
    assert len(left) == len(found.tuning) - 4
    assert not left & paths


def test_the_score_of_a_setting(compared: tuple[TunedResults, Path]) -> None:
    found, folder = compared
    alone = {
        m: fmean(run.scores[f"validation/{m} error"].min() for run in found.runs[f"alone-{m}"])
        for m in ("up", "down")
    }
    for run in store.find(folder / store.ASIDE / "static"):
        lost = 50 * sum(run.scores[f"validation/{m} error"].min() / alone[m] - 1 for m in alone)
        table = found.tuning.filter(method="static", lr=run.config.lr)
        assert table["score"].item() == pytest.approx(-lost)


def test_the_tables_are_left_in_the_folder(compared: tuple[TunedResults, Path]) -> None:
    found, folder = compared
    assert_frame_equal(polars.read_parquet(folder / "seeds.parquet"), found.seeds)
    assert_frame_equal(polars.read_parquet(folder / "tuning.parquet"), found.tuning)


def test_tables_over_training(compared: tuple[TunedResults, Path]) -> None:
    found, _ = compared
    assert set(found.curves["method"]) == {"static", "modo", "modo (paper's budget)"}
    assert {"weight/up", "R_opt", "R_pop", "R_gen", "E_ca", "seed", "step"} <= set(
        found.curves.columns
    )
    one = found.curves.filter(method="modo", seed=0)
    assert one["step"].to_list() == [0, 6, 9]  # every 2 epochs, and at the end
    assert one["epoch"].to_list() == [0, 2, 3]
    scores = found.scores.filter(method="modo (paper's budget)", seed=1)
    assert scores["epoch"].to_list() == [1, 2, 3]
    assert scores["step"].to_list() == [6, 12, 18]


def test_nothing_is_run_twice(
    compared: tuple[TunedResults, Path], task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, folder = compared
    ran: list[Path] = []
    real = pool.execute_unit

    def counted(unit: Any, watch: Any) -> Any:
        for _, path in unit.jobs:
            assert not (path / store.SUMMARY).exists()
            ran.append(path.relative_to(folder))
        return real(unit, watch)

    monkeypatch.setattr(pool, "execute_unit", counted)
    told: list[tuple[int, int]] = []
    again = compare_tuned(plan(task), folder, jobs=1, watch=lambda *now: told.append(now))
    assert ran == []
    assert told[-1] == (told[-1][1],) * 2
    compare_tuned(plan(task, seeds=3), folder, jobs=1)
    assert {path.parent.parent.as_posix() for path in ran} == {
        f"runs/{label}" for label in ("static", "modo", "alone-up", "alone-down")
    }
    assert {path.name for path in ran} == {"seed-2"}
    assert_frame_equal(again.tuning, found.tuning)


@pytest.mark.slow
def test_another_choice_moves_the_folders(task: str, tmp_path: Path) -> None:
    first = plan(task, seeds=1)
    compare_tuned(first, tmp_path, jobs=1)
    (before,) = os.listdir(tmp_path / "runs" / "static")
    left = [own for own in first.settings if own.method != "static" or own.lr == RATES[0]]
    compare_tuned(replace(first, settings=left), tmp_path, jobs=1)
    (after,) = os.listdir(tmp_path / "runs" / "static")
    assert after != before
    assert before in os.listdir(tmp_path / store.ASIDE / "static")
    compare_tuned(first, tmp_path, jobs=1)
    assert os.listdir(tmp_path / "runs" / "static") == [before]


def test_a_setting_that_diverges_is_out(task: str, tmp_path: Path) -> None:
    asked = TuningPlan(task, static(1e12, 0.1), epochs=4, batch_size=8, seeds=1)
    found = compare_tuned(asked, tmp_path, jobs=1)
    table = found.tuning.filter(method="static")
    assert table["score"][0] == -math.inf
    assert "at step" in table["note"][0]
    assert table["chosen"].to_list() == [False, True]
    assert table["note"][1] == ""


def test_a_setting_without_numbers_is_out(compared: tuple[TunedResults, Path]) -> None:
    run = compared[0].runs["alone-up"][0]
    name = "validation/up error"
    at_end = polars.col("step") == polars.col("step").max()
    broken = run.scores.with_columns(
        polars.when(at_end).then(math.nan).otherwise(polars.col(name)).alias(name)
    )
    goals: Any = {"up": {"up error": "lower"}}
    assert judge_epochs(run, goals) == {"up error": run.scores[name].min()}
    why = judge_epochs(replace(run, scores=broken), goals)
    assert (isinstance(why, Failure), str(why)) == (True, "up error became NaN or infinite")
    with pytest.raises(ValueError, match="goals must name metrics of the training"):
        judge_epochs(run, {"up": {"accuracy": "higher"}})


def test_no_setting_is_left(task: str, tmp_path: Path) -> None:
    asked = TuningPlan(task, static(1e12), epochs=4, batch_size=8, seeds=1)
    with pytest.raises(Diverged, match=r"no setting of alone-up came to an end: the loss 'up'"):
        compare_tuned(asked, tmp_path, jobs=1)


@pytest.mark.slow
def test_a_final_run_that_diverges(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pool.execute_unit

    def failing(unit: Any, watch: Any) -> Any:
        for config, path in unit.jobs:
            if config.seed == 1 and config.method == "modo":
                return {path: Diverged("the loss 'up' is nan at step 3")}
        return real(unit, watch)

    monkeypatch.setattr(pool, "execute_unit", failing)
    with pytest.raises(Diverged, match=r"modo diverged with seed 1: the loss 'up' is nan at step"):
        compare_tuned(plan(task), tmp_path, jobs=1)


@pytest.mark.slow
def test_an_edge_that_wins_is_moved(task: str, tmp_path: Path) -> None:
    tried = static(0.001, 0.01)
    asked = TuningPlan(task, tried, 3, 8, seeds=2, tuning_seeds=2, extend=3)
    seen: list[tuple[int, int]] = []
    found = compare_tuned(asked, tmp_path, jobs=1, watch=lambda *now: seen.append(now))
    assert seen[-1][0] == seen[-1][1]
    for method in ("static", "alone-up", "alone-down"):
        table = found.tuning.filter(method=method)
        rates = table["lr"].to_list()
        assert rates[:3] == [0.001, 0.01, 0.1]  # by the grid's factor
        assert rates == sorted(rates)
        best = table.filter("chosen")
        # Inside, or as far as it may go.
        assert best["edge"].item() == "" or len(rates) == 5
        assert table["seeds"].to_list() == [2] * len(rates)
        assert best["lr"].item() == found.settings[method].lr
        assert table["first_of_seeds"].sum() == 2
    again = compare_tuned(asked, tmp_path, jobs=1)
    assert_frame_equal(again.tuning, found.tuning)


def test_ties_go_to_the_first(task: str, tmp_path: Path) -> None:
    same = [Setting("static", 0.1), Setting("static", 0.1, {"weights": [0.5, 0.5]})]
    same += same[:1]  # the same runs, which are tried once
    asked = TuningPlan(task, same, epochs=1, batch_size=8, seeds=1)
    found = compare_tuned(asked, tmp_path, jobs=1)
    table = found.tuning.filter(method="static")
    assert table["score"][0] == table["score"][1]
    assert table["chosen"].to_list() == [True, False]
    assert table["tied"].to_list() == [2, 2]
    assert found.tuning.filter(method="alone-up").height == 1  # the same without weights


CODE = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from test_tuned import plan
from trimol.compare import compare_tuned
compare_tuned(plan({task!r}), Path({folder!r}), jobs=1)
"""


@pytest.mark.slow
def test_killed_and_gone_on_with(
    compared: tuple[TunedResults, Path], task: str, tmp_path: Path
) -> None:
    code = CODE.format(tests=str(Path(__file__).parent), task=task, folder=str(tmp_path))
    source = str(Path(trimol.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "LINES_SLEEP": "0.002"}
    child = subprocess.Popen([sys.executable, "-c", code], env=env)
    try:
        while child.poll() is None and len(list(tmp_path.rglob(store.SUMMARY))) < 3:
            time.sleep(0.02)
        assert child.poll() is None, "it was to be killed before its end"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = {file: file.stat().st_mtime_ns for file in tmp_path.rglob(store.SUMMARY)}
    assert len(done) >= 3
    found = compare_tuned(plan(task), tmp_path, jobs=1)
    # What was finished is still there as it was, perhaps at its final place.
    now = {file.stat().st_mtime_ns for file in tmp_path.rglob(store.SUMMARY)}
    assert set(done.values()) <= now
    for name in ("seeds", "scores", "curves"):
        whole = getattr(compared[0], name).filter(~polars.col("method").str.contains("paper"))
        if name == "seeds":
            whole = whole.filter(~polars.col("metric").str.contains("paper"))
        assert_frame_equal(getattr(found, name), whole)
    assert_frame_equal(found.tuning, compared[0].tuning)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"tuning_seeds": 3}, "tuning_seeds must be at most seeds=2, found 3"),
        ({"budget": "mine"}, "budget must be equal or paper, found 'mine'"),
        ({"reference": "mgda"}, "reference must be one of static, modo, found 'mgda'"),
        ({"measure_epochs": -1}, "measure_epochs must be"),
    ],
)
def test_what_does_not_fit(task: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(task, **changes)


def test_methods_that_do_not_fit(task: str) -> None:
    growing = next(name for name in methods.names() if methods.growth(name))
    one = static(0.1)
    with pytest.raises(ValueError, match="whose batches grow"):
        TuningPlan(task, [*one, Setting(growing, 0.1)], epochs=1, batch_size=8)
    with pytest.raises(ValueError, match="reference must be one of the settings' methods"):
        TuningPlan(task, [], epochs=1, batch_size=8)


def test_tasks_that_do_not_fit(task: str, tmp_path: Path) -> None:
    one = static(0.1)
    with pytest.raises(ValueError, match="goals must name a metric for every objective"):
        compare_tuned(TuningPlan("digits", one, epochs=1, batch_size=8), tmp_path)
    file = tmp_path / "lines.py"
    file.write_text(TASK.replace(", validation=part()", ""))
    with pytest.raises(ValueError, match="lines must have validation data"):
        compare_tuned(TuningPlan(f"{file}:Lines", one, epochs=1, batch_size=8), tmp_path)
    with pytest.raises(ValueError, match=r"baselines\['paper'\]: values must have down error"):
        compare_tuned(plan(task, baselines={"paper": {"up error": 1.0}}), tmp_path)


def test_processes_are_not_started_by_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As happens to a script that starts runs without asking whether it is the main one."""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    runs = [(configure("digits", m, steps=1), tmp_path / m) for m in ("static", "mgda")]
    with pytest.raises(RunError, match="if __name__"):
        pool.execute_all(runs, jobs=2)
