"""Configurations: checked in one line, the same after JSON, named by what decides the result."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from trimol import methods
from trimol.runs.config import (
    RunConfig,
    checked,
    configure,
    equal_steps,
    hyperparameters_of,
    steps_per_epoch,
)
from trimol.tasks import get, load

BASE: dict[str, Any] = {"task": "digits", "method": "modo", "lr": 1.0, "steps": 100}


def test_the_same_after_json() -> None:
    bounds = {"bounds": {1: 0.2}, "prefer": [0.5, 0.5, 0.0]}
    config = RunConfig(**BASE, hyperparameters=bounds, task_options={"hidden": 7})
    again = RunConfig.model_validate(json.loads(config.model_dump_json()))
    assert again == config
    assert again.key == config.key
    assert again.hyperparameters == bounds


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"checkpoint_every": 7}, True),
        ({"measure_every": 7}, False),
        ({"score_every": 7}, False),
        ({"watch_every": 7}, False),
        ({"watch_every": 7, "watch_full_every": 2}, False),
        ({"optimizer": "adam"}, False),
        ({"hyperparameters": {"gamma": 0.1}}, False),
        ({"task_options": {"hidden": 3}}, False),
        ({"rho": 0.1}, False),
        ({"precision": "bf16"}, False),
        ({"batch_size": 32}, False),
    ],
)
def test_the_key_names_what_decides_the_result(change: dict[str, Any], same: bool) -> None:
    one, other = RunConfig(**BASE), RunConfig(**(BASE | change))
    assert (one.key == other.key) is same
    assert one.differences(other) == ([] if same else list(change))


def test_runs_from_before_there_were_scores_keep_their_key() -> None:
    assert RunConfig(**BASE).key == "fb015c7fe6db"
    assert RunConfig(**BASE, score_every=0).key == "fb015c7fe6db"


def test_an_epoch_is_a_pass_through_the_data() -> None:
    assert steps_per_epoch("digits", 64) == -(-1437 // 64)
    assert steps_per_epoch("digits", 64, {"test": 1797 - 64}) == 1
    assert steps_per_epoch("digits", 63, {"test": 1797 - 64}) == 2


def test_the_key_of_a_users_task_is_that_of_its_content(tmp_path: Path) -> None:
    keys = []
    for folder in ("a", "b"):
        file = tmp_path / folder / "mine.py"
        file.parent.mkdir()
        file.write_text("from trimol.tasks.digits import Digits\n\nclass Mine(Digits): pass\n")
        keys.append(configure(f"{file}:Mine", "modo", steps=1).key)
    assert keys[0] == keys[1]
    file.write_text(file.read_text() + "# changed\n")
    assert configure(f"{file}:Mine", "modo", steps=1).key != keys[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0}, "lr: input should be greater than 0, found 0"),
        ({"lr": "much"}, "lr: input should be a valid number.*, found 'much'"),
        ({"lr": float("nan")}, "lr: input should be a finite number, found nan"),
        ({"steps": -1}, "steps: input should be greater than or equal to 0, found -1"),
        ({"steps": 1.5}, "steps: input should be a valid integer.*, found 1.5"),
        ({"batch_size": 0}, "batch_size: input should be greater than 0, found 0"),
        ({"precision": "fp8"}, "precision: input should be 'no', 'bf16' or 'fp16', found 'fp8'"),
        ({"colour": "red"}, "colour: extra inputs are not permitted, found 'red'"),
    ],
)
def test_bad_fields_are_named_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        checked(**(BASE | change))
    assert "\n" not in str(error.value)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        RunConfig(**BASE).lr = 2.0  # type: ignore[misc]


def test_what_is_said_goes_before_the_tasks_settings() -> None:
    settings = get("digits").settings["modo"]
    assert configure("digits", "modo", steps=1).lr == settings.lr
    found = configure("digits", "modo", steps=1, lr=0.5, hyperparameters={"gamma": 3.0})
    assert (found.lr, found.hyperparameters) == (0.5, {**settings.method, "gamma": 3.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digitz", "modo"), "task must be one of digits"),
        (("digits", "mod"), "method must be one of static, .*, found 'mod'"),
    ],
)
def test_bad_names(arguments: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure(*arguments, steps=1)


def test_every_methods_hyperparameters_are_known() -> None:
    for name in methods.names():
        assert "every" in hyperparameters_of(name), name
        assert "optimizer" not in hyperparameters_of(name), name


def test_names_of_runs_on_disk_stay() -> None:
    """Runs of earlier versions are found under the names that they were given."""
    plain = RunConfig(task="digits", method="modo", lr=1.0, steps=100)
    assert plain.key == "fb015c7fe6db"
    full = RunConfig(
        task="digits", method="modo", hyperparameters={"gamma": 0.5}, lr=0.1, steps=10, seed=3,
        batch_size=8, rho=0.1, measure_every=2, score_every=5, task_options={"hidden": 5},
    )  # fmt: skip
    assert full.key == "c662a62b88c9"
    for later in ({"measure_at": (5,)}, {"validation_only": True}):
        assert plain.model_copy(update=later).key != plain.key


@pytest.mark.parametrize("steps", [(5, 5), (5, 3)])
def test_steps_to_measure_at_rise(steps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="measure_at: must be rising numbers, found"):
        checked(task="digits", method="modo", lr=0.1, steps=9, measure_at=steps)
    with pytest.raises(ValueError, match=r"measure_at\.0: input should be greater than or equal"):
        checked(task="digits", method="modo", lr=0.1, steps=9, measure_at=(-1,))


def test_a_growing_method_takes_as_many_samples() -> None:
    steps = equal_steps("digits", "smg", 12, 16)
    assert steps < 12
    assert equal_steps("digits", "modo", 12, 16) == 12
    task, growth = load("digits"), methods.get("smg").growth
    sampler = task.sampler(task.data(), 16, growth=growth, seed=0)
    assert sampler.samples(steps) <= 12 * 16 < sampler.samples(steps + 1)


def test_a_copy_has_a_key_of_its_own() -> None:
    config = RunConfig(task="digits", method="modo", lr=1.0, steps=100)
    known = config.key
    changed = config.model_copy(update={"lr": 2.0})
    assert changed.key != known
    assert changed.key == RunConfig(task="digits", method="modo", lr=2.0, steps=100).key
    assert pickle.loads(pickle.dumps(changed)).key == changed.key
    assert config == RunConfig(task="digits", method="modo", lr=1.0, steps=100)


@pytest.mark.parametrize(
    ("optimizer", "lr"),
    [(None, 3.0), ("sgd", 3.0), ("momentum", 0.3), ("nesterov", 0.3), ("adam", 1e-3)],
)
def test_the_step_size_of_a_task_is_for_its_own_optimizer(optimizer, lr):
    assert configure("digits", "upgrad", steps=1, optimizer=optimizer).lr == pytest.approx(lr)
    assert configure("digits", "upgrad", steps=1, optimizer=optimizer, lr=0.7).lr == 0.7


def test_another_optimizer_leaves_the_random_numbers_alone():
    before = torch.random.get_rng_state()
    configure("digits", "upgrad", steps=1, optimizer="adam")
    assert torch.equal(before, torch.random.get_rng_state())
    with pytest.raises(ValueError, match="optimizer: input should be"):
        configure("digits", "upgrad", steps=1, optimizer="lion")
