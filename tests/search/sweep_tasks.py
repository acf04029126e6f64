"""A task of three numbers, in a file as a user has it: two losses, validation data, quick."""

from pathlib import Path

CURVES = '''
import torch
from torch import nn
from trimol.tasks import Data, Task


class Curves(Task):
    """A line that fits points, against a slope that wants to be flat."""

    name = "curves"
    objectives = ("fit", "slope")

    def __init__(self, poison: bool = False, held_out: bool = True) -> None:
        self.poison, self.held_out = poison, held_out

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), (model.weight - 1).square().sum() + 0 * y.mean()]

    def data(self):
        x = torch.linspace(-1, 1, 300)[:, None]
        y = 3 * x + 0.1 * torch.sin(40 * x)
        test = (x[2::3], y[2::3] * float("nan") if self.poison else y[2::3])
        held_out = (x[1::3], y[1::3]) if self.held_out else None
        return Data(train=(x[::3], y[::3]), test=test, validation=held_out)
'''
GOALS = '''

class Judged(Curves):
    """Judged by one metric."""

    name = "judged"
    goals = {"fit": {"error": "lower"}}

    def metrics(self, model, batch):
        x, y = batch
        return {"error": (model(x) - y).abs().mean()}
'''


def write(folder: Path) -> str:
    """The task's name, once its file is there."""
    (folder / "curves.py").write_text(CURVES + GOALS)
    return f"{folder / 'curves.py'}:Curves"
