"""Optimizers by name: torch's own, with torch's defaults."""

import pytest
import torch
from torch import nn, optim

from trimol.training._optimizers import NAMES, named

MADE = {
    "sgd": lambda p: optim.SGD(p, lr=0.01),
    "momentum": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
    "nesterov": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01),
}


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_those_of_torch(name: str) -> None:
    ends = []
    for make in (MADE[name], lambda p: named(name, p, 0.01)):
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        optimizer = make(model.parameters())
        for x in torch.randn(4, 5, 3):
            model(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.equal(*ends)


def test_another_name_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"optimizer must be 'sgd' or .*, found 'adamax'"):
        named("adamax", [torch.zeros(1, requires_grad=True)], 0.1)
