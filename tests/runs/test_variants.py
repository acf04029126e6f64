"""Variants of a method in Python: `compare` keeps them apart."""

from pathlib import Path

import pytest

from trimol.runs import Variant, compare, configure, differences

STCH = {"method": "stch", "lr": 1.0}


def test_runs_are_by_label(tmp_path: Path) -> None:
    smooth = [Variant(label=f"μ={mu}", hyperparameters={"mu": mu}, **STCH) for mu in (0.1, 1.0)]
    found = compare("digits", ["static", *smooth], folder=tmp_path, seeds=2, steps=3, lr=0.5)
    settings = {label: runs[0].config for label, runs in found.runs.items()}
    assert list(settings) == ["static", "μ=0.1", "μ=1.0"]
    assert [config.lr for config in settings.values()] == [0.5, 1.0, 1.0]
    assert [config.hyperparameters.get("mu") for config in settings.values()] == [None, 0.1, 1.0]
    assert {d.method for d in differences(found)} == {"μ=0.1", "μ=1.0"}


def test_two_names_for_one_run_are_refused(tmp_path: Path) -> None:
    same = [Variant("static", "a", lr=1.0), Variant("static", "b", schedule="constant")]
    with pytest.raises(ValueError, match="found a and b, the same runs"):
        compare("digits", same, folder=tmp_path, seeds=1, steps=1, lr=1.0)
    assert not list(tmp_path.iterdir())


def test_lr_and_schedule_are_for_all_or_by_name(tmp_path: Path) -> None:
    given = {"lr": {"static": 0.25}, "schedule": {"modo": "cosine"}}
    found = compare("digits", ["static", "modo"], folder=tmp_path, seeds=1, steps=1, **given)
    (static,), (modo,) = found.runs.values()
    assert (static.config.lr, static.config.schedule) == (0.25, None)
    assert (modo.config.lr, modo.config.schedule) == (30.0, "cosine")


def test_numbers_by_objective_are_put_in_order() -> None:
    by_name = {"prefer": {"Huber": 0.2, "MSE": 0.3, "cross-entropy": 0.5}, "bounds": {"MSE": 1.0}}
    config = configure("digits", "preference", steps=1, hyperparameters=by_name)
    assert config.hyperparameters == {"prefer": [0.5, 0.3, 0.2], "bounds": {"MSE": 1.0}}
    with pytest.raises(ValueError, match=r"weights must be by the names .* found 'mse'"):
        configure("digits", "static", steps=1, hyperparameters={"weights": {"mse": 1.0}})
