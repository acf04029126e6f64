"""A setting by its content, with options of the task."""

from dataclasses import replace
from pathlib import Path

from trimol.search import Setting, TaskProblem, Training

PLAIN = Setting("static", 0.3, {"weights": [0.7, 0.3]})
WITH = replace(PLAIN, task_options={"hidden": 8})


def test_options_of_the_task_are_part_of_a_setting() -> None:
    assert PLAIN.key == '["static", 0.3, {"weights": [0.7, 0.3]}, null]'  # stored by this name
    assert WITH.key != PLAIN.key
    assert WITH.values == {"lr": 0.3, "weights": [0.7, 0.3], "hidden": 8}
    assert str(WITH) == "static, weights (0.7, 0.3), hidden 8, learning rate 0.3"
    assert WITH.command("digits").endswith("--lr 0.3 --weights 0.7,0.3 --hidden 8")
    assert WITH.with_value("hidden", 16).task_options == {"hidden": 16}


def test_a_run_has_the_options_of_its_setting(tmp_path: Path) -> None:
    problem = TaskProblem("digits", tmp_path, steps=2, options={"hidden": 4, "validation": 100})
    config = problem.config(Training(WITH, seed=0))
    assert (config.task_options["hidden"], config.task_options["validation"]) == (8, 100)
