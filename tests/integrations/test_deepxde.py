"""The lines for DeepXDE in docs/howto/pinn.md, run as they stand there."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import trimol

PAGE = Path(__file__).parents[2] / "docs/howto/pinn.md"


@pytest.fixture
def dde(monkeypatch):
    """DeepXDE with torch under it, in one of its own examples: Burgers' equation."""
    monkeypatch.setenv("DDE_BACKEND", "pytorch")
    return pytest.importorskip("deepxde", reason="DeepXDE is not installed: pip install deepxde")


def burgers(dde):
    """Data and network of the example, small."""

    def equation(x, u):
        u_x, u_t = (dde.grad.jacobian(u, x, i=0, j=j) for j in (0, 1))
        u_xx = dde.grad.hessian(u, x, i=0, j=0)
        return u_t + u * u_x - 0.01 / np.pi * u_xx

    dde.config.set_random_seed(0)
    area = dde.geometry.GeometryXTime(
        dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 0.99)
    )
    walls = dde.icbc.DirichletBC(area, lambda x: 0, lambda _, on_boundary: on_boundary)
    start = dde.icbc.IC(
        area, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on_initial: on_initial
    )
    data = dde.data.TimePDE(
        area, equation, [walls, start], num_domain=60, num_boundary=10, num_initial=20
    )
    return data, dde.nn.FNN([2, 10, 10, 1], "tanh", "Glorot normal")


def weighed(dde):
    """The class of the page; its last three lines are the tests' own."""
    (block,) = re.findall(r"```python\n(class Weighed.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names = {"dde": dde, "trimol": trimol}
    names["data"], names["net"] = burgers(dde)
    exec(block.replace("iterations=1000", "iterations=5, verbose=0"), names)
    return names


def trained(dde, make, steps=20):
    """The parameters and losses after some steps, with a schedule."""
    data, net = burgers(dde)
    model = make(data, net)
    model.compile("adam", lr=1e-2, decay=("step", 5, 0.5))
    history, _ = model.train(iterations=steps, display_every=steps, verbose=0)
    return torch.cat([p.detach().flatten() for p in net.parameters()]), history.loss_train


def test_the_block_of_the_page_runs_and_static_is_deepxdes_own_training(dde):
    names = weighed(dde)
    assert names["model"].method.info is not None

    def static(data, net):
        return names["Weighed"](data, net, trimol.Static(net.parameters(), 3, weights=[1.0] * 3))

    ours, _ = trained(dde, static)
    theirs, _ = trained(dde, dde.Model)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["config", "modo", "upgrad", "lra"])
def test_methods_train_in_deepxde(dde, name):
    options = {"draws": 1} if name == "modo" else {}

    def make(data, net):
        method = trimol.methods.get(name)(net.parameters(), 3, **options)
        return weighed(dde)["Weighed"](data, net, method)

    _, losses = trained(dde, make)
    assert sum(losses[-1]) < sum(losses[0])
