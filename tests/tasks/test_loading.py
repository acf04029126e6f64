"""Tasks by path: a class in a file of the user's, and one clear line for all that can go wrong."""

import os
import sys
from pathlib import Path

import pytest

from trimol import tasks
from trimol.tasks import TaskError
from trimol.tasks.loading import blaming, source
from trimol.training import start, train

LINE = """
import torch
from torch import nn
from trimol.tasks import Data, Task

class Line(Task):
    name = "line"
    objectives = ("fit", "slope")

    def __init__(self, *, slope: float = 3.0, samples: int = 200) -> None:
        self.slope, self.samples = slope, samples

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), model.weight.square().sum()]

    def data(self):
        x = torch.linspace(-1, 1, self.samples)[:, None]
        return Data(train=(x[::2], self.slope * x[::2]), test=(x[1::2], self.slope * x[1::2]))
"""


@pytest.fixture
def line(tmp_path: Path) -> Path:
    file = tmp_path / "line.py"
    file.write_text(LINE)
    return file


def test_a_users_task_is_one_class_in_one_file(line: Path) -> None:
    task = tasks.load(f"{line}:Line", {"slope": 2.0})
    run = train(start(task, "static", seed=1), steps=100)
    # The mean of the losses is least between the slope 2 of the data and 0: ⅓·2/(1 + ⅓) = ½.
    assert run.model.weight.item() == pytest.approx(0.5, abs=0.05)


def test_the_class_may_be_left_out_if_there_is_one(line: Path) -> None:
    assert tasks.load(str(line)).name == "line"
    line.write_text(LINE + "\nclass Other(Line):\n    name = 'other'\n")
    assert tasks.load(f"{line}:Other").name == "other"
    with pytest.raises(TaskError, match="name the class after a colon; its tasks are Line, Other"):
        tasks.load(str(line))


def test_a_changed_file_is_read_again(line: Path) -> None:
    first = source(f"{line}:Line")
    assert tasks.load(f"{line}:Line").objectives == ("fit", "slope")
    line.write_text(LINE.replace('"slope")', '"flat")'))
    assert tasks.load(f"{line}:Line").objectives == ("fit", "flat")
    assert source(f"{line}:Line") != first


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nothing", {}, "task must be one of digits.* or path/to/file.py:Class, found 'nothing'"),
        ("{folder}/none.py:Line", {}, "cannot read the task file .*none.py: No such file"),
        ("{folder}/line.py:Curve", {}, "line.py: found no task 'Curve'; its tasks are Line$"),
        ("{folder}/line.py:nn", {}, "found no task 'nn'"),
        ("{folder}/line.py:Line", {"width": 3}, "has no option 'width': it has slope, samples$"),
        ("{folder}/line.py:Line", {"self": 3}, "has no option 'self'"),
        ("digits", {"test": 0}, "test must be a whole number of at least 1, found 0"),
        ("digits", {"test": 1500, "validation": 297}, "below 1797.*found 1797"),
    ],
)
def test_bad_names_and_options(
    line: Path, name: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        tasks.load(name.format(folder=line.parent), options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("import torch\n", "import torch, nowhere\n", "line 2: ModuleNotFoundError: No module"),
        ("objectives = (", "objectives = ((", "line [0-9]+: SyntaxError: '.*' was never closed$"),
        ("= slope, samples", "= slope, 1 / 0", "line 11: ZeroDivisionError: division by zero"),
        ('name = "line"', 'name = ""', "the class Line must set name"),
        ('"fit", "slope"', '"fit", "fit"', "must be a tuple of different names"),
        ('("fit", "slope")', '"fit"', "must be a tuple of different names"),
        ("class Line(Task)", "class Line", "defines no class derived from Task"),
        ("slope: float = 3.0", "slope: float", "needs the option 'slope'"),
        ("def model", "def modell", "the class Line must define model$"),
    ],
)
def test_a_file_with_a_mistake(line: Path, old: str, new: str, message: str) -> None:
    line.write_text(LINE.replace(old, new))
    with pytest.raises(TaskError, match=message) as error:
        tasks.load(f"{line}:Line")
    assert "\n" not in str(error.value)
    assert "line.py" in str(error.value)


def test_errors_in_the_losses_name_the_line(line: Path) -> None:
    line.write_text(LINE.replace("(model(x) - y)", "(model(x) - z)"))
    name = f"{line}:Line"
    with pytest.raises(TaskError, match=r"line.py, line 18: NameError: name 'z'"), blaming(name):
        train(start(tasks.load(name), "static"), steps=1)


def test_a_mistake_is_told_by_the_path_from_here_and_in_our_words(
    line: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.write_text(LINE.replace("train=(x[::2], self.slope * x[::2])", "train=(x[::2], x)"))
    monkeypatch.chdir(line.parent)
    name = f"{line}:Line"
    with pytest.raises(TaskError, match=r"^line\.py, line 22: train must hold"), blaming(name):
        tasks.load(name).data()


def test_errors_elsewhere_are_left_as_they_are(line: Path) -> None:
    with pytest.raises(ZeroDivisionError), blaming(f"{line}:Line"):
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), blaming("digits"):
        _ = 1 / 0


def test_a_file_changed_within_a_second_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as before, and of the same second: Python's own cache would not notice."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for digit in "345":
        file.write_text(
            f"from trimol.tasks.digits import Digits\nclass Mine(Digits):\n    width = {digit}\n"
        )
        os.utime(file, (10**9, 10**9))
        assert tasks.load(f"{file}").width == int(digit)  # type: ignore[attr-defined]
