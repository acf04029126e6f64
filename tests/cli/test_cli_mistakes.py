"""Mistakes in a task of one's own: one line each, with the method and its file, never a traceback.

The table goes through all that a task is asked for, and through the file it is in.
"""

import os
from pathlib import Path

import pytest

from trimol import tasks
from trimol.cli import main

LINE = '''\
import torch
from torch import nn
from trimol.data import IndependentDraws
from trimol.tasks import Data, Settings, Task


class Line(Task):
    """A line through points that a second loss wants to be flat."""

    name = "line"
    objectives = ("fit", "slope")

    def __init__(self, *, slope: float = 3.0) -> None:
        self.slope = slope

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), model.weight.square().sum()]

    def data(self):
        x = torch.linspace(-1, 1, 200)[:, None]
        y = self.slope * x
        return Data(train=(x[::2], y[::2]), test=(x[1::2], y[1::2]))
'''
MORE = len(LINE.splitlines()) + 2  # where a method stands that is added
GIVEN = {
    "model": "",
    "data": "",
    "losses": ", model, batch",
    "metrics": ", model, batch",
    "tally": ", model, batch",
    "conclude": ", sums",
    "counts": ", batch",
    "shared": ", model",
    "representation": ", model",
    "optimizer": ", params, lr",
    "sampler": ", data, batch_size, *, growth, seed",
}
DATA = "x = torch.ones(100, 1); return Data"
LOSSES = "a = model(batch[0]).mean(); b = model.weight.sum(); return"


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(
    text: str | bytes, capsys: pytest.CaptureFixture[str], *flags: str, name: str = "line.py:Line"
) -> str:
    """The one line that a run of this file ends with."""
    Path("line.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["run", name, "--steps", "2", "--out", "run", "--quiet", *flags]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line.removeprefix("trimol: ")


def answers(*kinds: str) -> list[tuple[str, str, str]]:
    """Every method of a task with answers of the wrong kind."""
    methods = [method for method in GIVEN if method != "representation"]
    return [(method, f"return {kind}", "must ") for kind in kinds for method in methods]


WRONG = [
    *(case for case in answers("None") if case[0] != "counts"),
    *answers("3", "{'a': {'b': 1}}"),
    ("model", "return nn.ReLU()", "must return a module with parameters, found ReLU"),
    ("model", "return nn.Linear(1, 1, device='meta')", "must return parameters in memory"),
    ("losses", f"{LOSSES} [a]", "must return 2 losses, one for each of fit, slope, found 1"),
    ("losses", f"{LOSSES} [a, b, a]", "must return 2 losses, one for each of fit, slope, found 3"),
    ("losses", f"{LOSSES} [a, 3.0]", "losses[1] must be a scalar tensor, found float"),
    ("losses", f"{LOSSES} [a, model(batch[0])]", "losses[1] must be a scalar, found shape"),
    ("losses", f"{LOSSES} torch.stack([a, b]).long()", "must be floating point, found torch.int64"),
    ("losses", f"{LOSSES} torch.stack([a, b]).to(torch.complex64)", "found torch.complex64"),
    ("losses", f"{LOSSES} torch.stack([a, b]).detach()", "losses must require grad"),
    ("losses", f"{LOSSES} [a, b.detach()]", "objective 'slope' reaches none of the given"),
    ("losses", f"{LOSSES} {{'fit': a, 'slope': b}}", "found a mapping"),
    ("metrics", "return {1: 0.5}", "must return values by name (text on one line), found 1"),
    ("metrics", "return {'a\\nb': 0.5}", "must return values by name"),
    ("metrics", "return {'a': 'high'}", "must return one real number for 'a', found str"),
    ("metrics", "return {'a': None}", "must return one real number for 'a', found NoneType"),
    ("metrics", "return {'a': 1j}", "must return one real number for 'a', found complex"),
    ("metrics", "return {'a': torch.ones(2)}", "for 'a', found a tensor of shape (2,)"),
    ("metrics", "return {'fit': 0.5}", "must not call a metric 'fit': another number is called so"),
    ("metrics", "return {'R_opt': 0.5}", "must not call a metric 'R_opt'"),
    ("metrics", "return {'samples of the means': 1}", "must not call a metric 'samples of the m"),
    ("tally", "return {'a': 1.0}", "must return tensors, found float for 'a'"),
    ("tally", "return {'a': torch.ones(2)}", "must come with a conclude() that makes a metric of"),
    ("conclude", "return {'a': 'x'}", "must return one real number for 'a', found str"),
    ("counts", "return torch.ones(3)", "must return a tensor of 2 numbers, one for each of fit, s"),
    ("counts", "return torch.tensor([-1.0, 1.0])", "must return numbers of at least 0, found [-1"),
    ("shared", "return iter(())", "params must hold at least one tensor, found none"),
    ("shared", "return model", "params must be an iterable of tensors, found a module"),
    ("optimizer", "return torch.optim.SGD", "must return an optimizer, found type"),
    ("optimizer", "return torch.optim.LBFGS(params)", "must return one that steps without a clos"),
    (
        "optimizer",
        "return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr)",
        "must return one of the given parameters, found one of others",
    ),
    ("sampler", "return IndependentDraws(100, 8)", "must return one with k=1, found k=2"),
    ("sampler", "return IndependentDraws(101, 8, k=1)", "must return one over the 100 samples of"),
]


@pytest.mark.parametrize(
    ("method", "body", "said"),
    WRONG,
)
def test_a_wrong_answer_names_the_method_and_its_place(
    method: str, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{LINE}\n    def {method}(self{GIVEN[method]}):\n        {body}\n"
    line = told(text, capsys)
    assert line.startswith(f"line.py, line {MORE}: {method}() of Line")
    assert said in line


def test_what_a_method_may_ask_for_is_checked_where_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"{LINE}\n    def representation(self, model):\n        return 3\n"
    line = told(text, capsys, "--method", "mgdaub")
    assert line.endswith("representation() of Line must return a module or None, found int")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("(train=(x[:0],), test=(x,))", "train must hold at least one sample, found none"),
        ("(train=(x,), test=(x[:0],))", "test must hold at least one sample, found none"),
        ("(train=(x,), test=(x,), validation=(x[:0],))", "validation must hold at least one samp"),
        ("(train=(x, x[:5]), test=(x, x))", "train must hold tensors with as many samples each"),
        ("(train=(x, x), test=(x,))", "test must hold as many tensors as train, 2, found 1"),
        ("(train=(x, None), test=(x, x))", "train[1] must be a tensor with one sample a row, fou"),
        ("(train=([1, 2],), test=(x,))", "train[0] must be a tensor with one sample a row, found"),
        ("(train=(x.numpy(),), test=(x,))", "train[0] must be a tensor with one sample a row, fou"),
        ("(train=(x.to_sparse(),), test=(x,))", "train[0] must be a tensor with one"),
        ("(train=(x.sum(),), test=(x,))", "train[0] must be a tensor with one sample a row"),
        ("(train=x, test=x)", "train must be a tuple of tensors"),
        ("(train=('ab',), test=(x,))", "train[0] must be a tensor with one sample a row, found s"),
    ],
)
def test_data_that_will_not_do(made: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{LINE}\n    def data(self):\n        {DATA}{made}\n"
    line = told(text, capsys)
    assert line.startswith(f"line.py, line {MORE + 1}: {said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('("fit", "slope")', "(1, 2)", "objectives must be a tuple of different names (text)"),
        ('("fit", "slope")', '("a", "a")', "objectives must be a tuple of different names"),
        ('("fit", "slope")', "3", "objectives must be a tuple of different names (text), found 3"),
        ('("fit", "slope")', '{"fit", "slope"}', "objectives must be a tuple of different names"),
        ('("fit", "slope")', '[["a"], ["b"]]', "objectives must be a tuple of different names"),
        ('("fit", "slope")', '("a\\nb", "c")', "objectives must be a tuple of different names"),
        ('= "line"', "= 3", "name must be text that can name a folder, found 3"),
        ('= "line"', '= "../line"', "name must be text that can name a folder, found '../line'"),
        ('= "line"', '= "a\\0b"', "name must be text that can name a folder"),
        ('= "line"', '= "line"; goals = {"fit": "lower"}', "goals must be metrics by objective"),
        ('= "line"', '= "line"; goals = {"fit": {"a": "best"}}', "goals must be metrics by"),
        ('= "line"', '= "line"; settings = {"modo": {"lr": 1}}', "settings must be a trimol.tasks"),
        ('= "line"', '= "line"; settings = 3', "settings must be a trimol.tasks.Settings by met"),
        ('= "line"', '= "line"; settings = {"modo": Settings(lr=-1)}', "lr must be a finite num"),
        (
            '= "line"',
            '= "line"; settings = {"modo": Settings(lr=1, method={"gama": 1})}',
            "line.py:Line: settings: modo has no hyper-parameter 'gama': it has gamma, rho",
        ),
        ('= "line"', '= "line"; at_once = 0', "at_once must be a whole number of at least 1"),
        ("def losses(self, model, batch)", "def losses(self, model)", "losses() of Line cannot be"),
        ("def model(self)", "def model()", "model() of Line cannot be called"),
        ("def data(self)", "data = 3\n\n    def more(self)", "data() of Line cannot be called"),
        ("self, *, slope: float = 3.0", "self, slope, /", "the class Line cannot be made"),
        ("self.slope = slope", "return 3", "the class Line cannot be made"),
        ("self.slope = slope", "raise ValueError('no')", "line 14: ValueError: no"),
        ("self.slope = slope", "raise SystemExit(0)", "line 14: SystemExit: 0"),
        ("        x, y = batch", "        raise SystemExit", "line 20: SystemExit"),
        ("import torch\n", "import torch\nexit(3)\n", "line 2: SystemExit: 3"),
        ("import torch\n", "import torch\n\0", "null bytes"),
        ("import torch\n", "# coding: nix\nimport torch\n", "encoding"),
        ("import torch\n", "import torch, nowhere\n", "line 1: ModuleNotFoundError"),
        ("import torch\n", "import (torch\n", "line 1: SyntaxError"),
        ("class Line(Task)", "class Line(dict)", "found no task 'Line'; it defines no class"),
        ("class Line(Task)", "class Lines(Task)", "found no task 'Line'; its tasks are Lines"),
    ],
)
def test_a_file_with_a_mistake_is_one_line(
    old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in LINE
    line = told(LINE.replace(old, new, 1), capsys)
    assert said in line
    assert line.startswith("line.py")
    assert not Path("run/summary.json").exists()


def test_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder.py").mkdir()
    said = told(LINE, capsys, name="folder.py:Line")
    assert said == "cannot read the task file folder.py: Is a directory"
    assert "it defines no class" in told(b"", capsys)
    assert "SyntaxError" in told(b"\xff\xfe\x00", capsys)
    with pytest.raises(tasks.TaskError, match="cannot read the task file li"):
        tasks.load("li\0ne.py:Line")
    if os.geteuid():  # nothing is closed to root
        Path("closed.py").write_text(LINE)
        Path("closed.py").chmod(0)
        said = told(LINE, capsys, name="closed.py:Line")
        assert said == "cannot read the task file closed.py: Permission denied"


def test_batches_must_be_told_alike(capsys: pytest.CaptureFixture[str]) -> None:
    text = LINE.replace('= "line"', '= "line"; at_once = 30')
    body = "return {'a' if (batch[0] > 0).all() else 'b': 1.0}"
    line = told(f"{text}\n    def metrics(self, model, batch):\n        {body}\n", capsys)
    assert "must return the same names and shapes for every batch, found b, samples" in line


def test_a_metric_without_a_value_is_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    """NaN says that there is none; nothing can be said about how methods differ in it."""
    Path("line.py").write_text(
        f"{LINE}\n    def metrics(self, model, batch):\n        return {{'a': float('nan')}}\n"
    )
    arguments = ["--methods", "static,modo", "--seeds", "5", "--steps", "2", "--jobs", "1"]
    assert main(["compare", "line.py", *arguments, "--quiet"]) == 0
    assert "Differences" in capsys.readouterr().out
