"""Where a warning points: at the line of the user's that led to it."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import trimol
from trimol._warnings import hearing, warn
from trimol.cli import main

SILENT = """
import torch
from trimol.tasks import Data, Task

class Silent(Task):
    objectives = ("loud", "silent")
    name = "silent"

    def model(self):
        return torch.nn.Linear(2, 1)

    def data(self):
        x = torch.arange(16.0).reshape(8, 2) / 16
        return Data(train=(x,), test=(x,))

    def losses(self, model, batch):
        loud = model(batch[0]).square().mean()
        return torch.stack([loud, 0 * loud])

    def counts(self, batch):
        return torch.full((2,), len(batch[0]))
"""


def test_a_warning_points_at_the_users_line():
    x = torch.ones(2, requires_grad=True)
    method = trimol.MGDA([x], 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        method(torch.stack([x.sum(), x.sum() * torch.nan]))
        method.eval()
        method(torch.stack([x.sum(), x.prod()])).backward()  # the second one comes from here
    assert [one.filename for one in caught] == [__file__, __file__]
    assert caught[0].lineno < caught[1].lineno
    assert all(one.category is RuntimeWarning for one in caught)


def test_who_hears_warnings_is_the_last_to_listen():
    heard: list[str] = []
    with hearing(lambda text: heard.append("far " + text)):
        with hearing(heard.append):
            warn("a")
        warn("b")
        with pytest.raises(KeyError), hearing(heard.append):
            raise KeyError
        warn("c")
    assert heard == ["a", "far b", "far c"]
    with pytest.warns(RuntimeWarning, match="d"):
        warn("d")


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_command_says_a_warning_in_one_line_and_once(
    jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of six runs of two methods, in this process and in others: a line for the first of them."""
    file = tmp_path / "silent.py"
    file.write_text(SILENT)
    asked = f"compare {file}:Silent --methods static,mgda,upgrad --seeds 3 --steps 2 --jobs {jobs}"
    assert main([*asked.split(), "--batch-size", "4", "--out", str(tmp_path / "out")]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "warning:" in line.lower()]
    (line,) = said
    assert re.match("trimol: warning: (MGDA|UPGrad): the loss of objective ", line)
