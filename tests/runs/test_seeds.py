"""One setting, several seeds: together or one by one, the same numbers; resumed, the same bytes."""

from dataclasses import replace
from pathlib import Path

import polars
import pytest

from trimol.runs import _seeds as seeds
from trimol.runs import _storage as files
from trimol.runs._seeds import Setting
from trimol.tasks import load
from trimol.training import Diverged, RunError, assess, start, train

SMALL = {"hidden": 8, "validation": 200}
SETTING = Setting(
    "digits", "modo", 1.0, steps=(5, 12), seeds=(3, 4, 5), options=SMALL,
    hyperparameters={"gamma": 0.5}, batch_size=16,
)  # fmt: skip
CLOCKS = ["train_seconds", "measure_seconds"]


def test_rows_are_those_of_ordinary_runs(tmp_path: Path) -> None:
    table = seeds.run(SETTING, tmp_path)
    assert table["seed"].to_list() == [3, 4, 5] * 2
    assert table["step"].to_list() == [5] * 3 + [12] * 3
    task = load("digits", SMALL)
    run = start(task, "modo", lr=1.0, hyperparameters={"gamma": 0.5}, batch_size=16, seed=4)
    for steps in (5, 12):
        record = assess(train(run, steps - run.step)).record
        (row,) = table.filter((polars.col("seed") == 4) & (polars.col("step") == steps)).to_dicts()
        assert set(record) <= set(row)
        for name, value in record.items():
            assert row[name] == pytest.approx(value, rel=2e-4, abs=1e-7), name


def test_together_and_one_by_one_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = seeds.run(SETTING, tmp_path / "together")
    monkeypatch.setattr(seeds, "_Together", _refuses)
    apart = seeds.run(SETTING, tmp_path / "apart").sort("step", "seed")
    for name in set(together.columns) - set(CLOCKS):
        assert together[name].to_list() == pytest.approx(
            apart[name].to_list(), rel=2e-4, abs=1e-7
        ), name
    assert set(apart.columns) == set(together.columns)


def _refuses(task: object, setting: object) -> None:
    raise NotImplementedError


def test_the_definition_is_below_the_mean_of_squares(tmp_path: Path) -> None:
    table = seeds.run(SETTING, tmp_path).filter(polars.col("step") == 12)
    assert len(set(table["E_ca_definition"])) == 1
    mean = sum(table["E_ca"]) / 3
    assert 0 < table["E_ca_definition"][0] <= mean
    # n² definition = Σ‖v‖² + n(n − 1) unbiased
    expected = (9 * table["E_ca_definition"][0] - 3 * mean) / 6
    assert table["E_ca_unbiased"][0] == pytest.approx(expected, rel=1e-6)


def test_a_finished_setting_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = seeds.run(SETTING, tmp_path)
    monkeypatch.setattr(seeds, "_runs", None)
    assert seeds.run(SETTING, tmp_path).equals(table)
    assert [path.name for path in tmp_path.iterdir()] == [f"{SETTING.key}.parquet"]


@pytest.mark.parametrize("together", [True, False])
def test_an_interrupted_setting_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    if not together:
        monkeypatch.setattr(seeds, "_Together", _refuses)
    whole = seeds.run(SETTING, tmp_path / "whole")

    def stop(done: int, total: int) -> None:
        if done > total * 2 // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seeds.run(SETTING, tmp_path / "broken", stop)
    assert [path.suffix for path in (tmp_path / "broken").iterdir()] == [".pt"]
    seen: list[int] = []
    resumed = seeds.run(SETTING, tmp_path / "broken", lambda done, total: seen.append(done))
    assert resumed.drop(CLOCKS).equals(whole.drop(CLOCKS))
    assert min(seen) >= 12  # the first measurement, or the first seed, was not run again


def test_settings_differ_in_their_keys() -> None:
    others = [
        replace(SETTING, lr=2.0),
        replace(SETTING, seeds=(3, 4)),
        replace(SETTING, steps=(12,)),
        replace(SETTING, hyperparameters={"gamma": 0.4}),
        replace(SETTING, options={}),
        replace(SETTING, on="validation"),
    ]
    keys = {setting.key for setting in (SETTING, *others)}
    assert len(keys) == 7
    assert replace(SETTING).key == SETTING.key


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": ()}, "steps must be rising"),
        ({"steps": (5, 5)}, "steps must be rising"),
        ({"steps": (-1,)}, "steps must be rising"),
        ({"seeds": ()}, "seeds must be different"),
        ({"seeds": (1, 1)}, "seeds must be different"),
    ],
)
def test_bad_settings(change: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTING, **change)


@pytest.mark.parametrize("method", ["modo", "famo"])
def test_validation_alone(tmp_path: Path, method: str) -> None:
    setting = replace(SETTING, method=method, hyperparameters={}, on="validation", steps=(12,))
    (first, *_) = seeds.run(setting, tmp_path).to_dicts()
    task = load("digits", SMALL)
    run = train(start(task, method, lr=1.0, batch_size=16, seed=3), 12)
    validation = task.data().validation
    accuracy = float(task.metrics(run.model, validation)["accuracy"])
    assert first["validation/accuracy"] == pytest.approx(accuracy)
    losses = task.losses(run.model, validation).tolist()
    found = [first[f"validation_loss/{name}"] for name in task.objectives]
    assert found == pytest.approx(losses, rel=1e-4)
    assert not any(name.startswith(("R_", "test_loss")) for name in first)


def test_validation_needs_such_data(tmp_path: Path) -> None:
    setting = replace(SETTING, options={"hidden": 8}, on="validation", steps=(1,))
    with pytest.raises(ValueError, match="needs a task with validation data, found digits"):
        seeds.run(setting, tmp_path)


def test_growing_batches_take_as_many_samples(tmp_path: Path) -> None:
    setting = replace(SETTING, method="smg", hyperparameters={}, steps=(12,), seeds=(0,))
    (row,) = seeds.run(setting, tmp_path).to_dicts()
    assert row["step"] < 12
    assert 12 * 16 - (16 + row["step"]) < row["samples"] <= 12 * 16


def test_divergence_is_said(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"not finite at step .* of seed 3: try a smaller lr"):
        seeds.run(replace(SETTING, method="static", hyperparameters={}, lr=1e38), tmp_path)


@pytest.mark.parametrize("together", [True, False])
def test_validation_shows_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    if not together:
        monkeypatch.setattr(seeds, "_Together", _refuses)
    setting = replace(SETTING, method="static", hyperparameters={}, lr=1e38, on="validation")
    table = seeds.run(setting, tmp_path)
    assert len(table) == 6
    assert table["validation/accuracy"].max() < 0.5


def test_all_settings_in_processes_and_in_order(tmp_path: Path) -> None:
    settings = [replace(SETTING, lr=lr, steps=(4,), seeds=(0,)) for lr in (0.5, 1.0, 0.5)]
    told: list[tuple[int, int]] = []
    apart = seeds.run_all(settings, tmp_path / "a", lambda *now: told.append(now), jobs=2)
    assert told == [(0, 8), (4, 8), (8, 8)]
    together = seeds.run_all(settings, tmp_path / "b", jobs=1)
    for one, other in zip(apart, together, strict=True):
        assert one.drop(CLOCKS).equals(other.drop(CLOCKS))
    assert apart[0].equals(apart[2])
    assert not apart[0].drop(CLOCKS).equals(apart[1].drop(CLOCKS))


DEADLY = """
import os
from trimol.tasks.digits import Digits

class Deadly(Digits):
    def model(self):
        os._exit(3)
"""


def test_a_process_that_dies_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    deadly = replace(SETTING, task=f"{tmp_path}/deadly.py:Deadly", options={})
    settings = [deadly, replace(deadly, lr=2.0)]
    with pytest.raises(RunError, match="a process that ran the study died"):
        seeds.run_all(settings, tmp_path, jobs=2)


def test_numbers_have_the_names_of_results(tmp_path: Path) -> None:
    table = seeds.run(SETTING, tmp_path)
    found = seeds.numbers(table)
    names = ["cross-entropy", "MSE", "Huber", "accuracy", "R_opt", "R_pop", "R_gen", "E_ca"]
    assert list(found) == names
    assert all(len(values) == 3 and min(values) >= 0 for values in found.values())
    at_first = table.filter(polars.col("step") == 5)
    assert seeds.numbers(table, step=5)["R_opt"] == at_first["R_opt"].to_list()
    assert seeds.numbers(table, step=5)["R_gen"] == at_first["R_gen"].abs().to_list()


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    path = tmp_path / f"{SETTING.key}.parquet"
    path.write_bytes(b"not a table")
    with pytest.raises(files.StoreError, match=SETTING.key):
        seeds.run(SETTING, tmp_path)
