"""Burgers' equation as a task: a network that is to satisfy an equation, a start and two walls.

    trimol run benchmarks/burgers.py:Burgers --method upgrad

The network u(x, t) is trained on points alone (physics-informed): on the equation
u_t + u u_x = ν u_xx inside, on u = −sin(πx) at t = 0 and on u = 0 at x = ±1. With ν = 0.01/π a
shock forms at x = 0. The exact solution is known, by the Cole–Hopf transformation, and judges it.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from trimol.tasks import Batch, Data, Task

VISCOSITY = 0.01 / math.pi
_NODES = 120  # of the quadrature: the solution is then exact to about 1e-6


def solution(x: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""u(x, t) for t > 0, by Gauss–Hermite quadrature of the Cole–Hopf solution.

    .. math:: u = -\frac{\int \sin(\pi y) f(y) e^{-z^2} dz}{\int f(y) e^{-z^2} dz}, \qquad
              y = x - 2\sqrt{\nu t}\, z, \qquad f(y) = e^{-\cos(\pi y) / (2\pi\nu)}

    Example:
        >>> solution(np.array([-0.5, 0.5]), np.array([0.5, 0.5])).round(4).tolist()
        [0.5928, -0.5928]
    """
    nodes, shares = np.polynomial.hermite.hermgauss(_NODES)
    y = x[:, None] - 2 * np.sqrt(VISCOSITY * t)[:, None] * nodes
    # Largest exponent zero: f is e^50 and more otherwise.
    f = np.exp(-(1 + np.cos(np.pi * y)) / (2 * np.pi * VISCOSITY)) * shares
    return np.asarray(-(np.sin(np.pi * y) * f).sum(1) / f.sum(1))


class Field(nn.Module):
    """A network of (x, t) with tanh, and its derivatives in one pass.

    They are carried from layer to layer beside the values, by the chain rule: exact, and the graph
    is that of an ordinary forward pass.

    Args:
        width: Of the hidden layers.
        depth: How many there are.
    """

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [2, *[width] * depth]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.last = nn.Linear(width, 1)

    def forward(self, points: Tensor) -> Tensor:
        """u at N points (x, t)."""
        for layer in self.hidden:
            points = torch.tanh(layer(points))
        u: Tensor = self.last(points)[:, 0]
        return u

    def derivatives(self, points: Tensor) -> Tensor:
        """u, u_x, u_t and u_xx at N points, 4 × N."""
        along = torch.eye(2).to(points)
        streams = torch.stack(
            [points, *(d.expand_as(points) for d in along), torch.zeros_like(points)]
        )
        for layer in self.hidden:
            streams = _bent(_linear(layer, streams))
        return _linear(self.last, streams)[..., 0]


def _linear(layer: nn.Module, streams: Tensor) -> Tensor:
    """A linear layer on values and derivatives: these have no bias."""
    assert isinstance(layer, nn.Linear)
    moved = F.linear(streams, layer.weight)
    return torch.cat([moved[:1] + layer.bias, moved[1:]])


def _bent(streams: Tensor) -> Tensor:
    """tanh of a value and of its derivatives in x, in t, and twice in x."""
    value, in_x, in_t, twice = streams
    bent = torch.tanh(value)
    slope = 1 - bent.square()
    curved = slope * (twice - 2 * bent * in_x.square())
    return torch.stack([bent, slope * in_x, slope * in_t, curved])


class Burgers(Task):
    """Three losses of one network: the equation, the initial values, the boundary values.

    A sample is a point inside, one at t = 0, one at a wall, and the exact solution inside, which
    only the metric sees.

    Args:
        width: Of the network's hidden layers.
        depth: How many there are.
        points: How many samples to train on.
        held_out: How many to choose settings on, and as many to test on.
        seed: Names the points.
    """

    name: ClassVar[str] = "burgers"
    objectives: tuple[str, ...] = ("equation", "initial", "boundary")

    def __init__(
        self,
        *,
        width: int = 20,
        depth: int = 3,
        points: int = 2000,
        held_out: int = 2000,
        seed: int = 0,
    ) -> None:
        self.width, self.depth = width, depth
        self.points, self.held_out, self.seed = points, held_out, seed

    def model(self) -> nn.Module:
        """The network."""
        return Field(self.width, self.depth)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean squares of what the equation, the start and the walls leave over."""
        assert isinstance(model, Field)
        inside, start, wall, _ = batch
        u, u_x, u_t, u_xx = model.derivatives(inside)
        at_start = model(start) + torch.sin(math.pi * start[:, 0])
        left_over = (u_t + u * u_x - VISCOSITY * u_xx, at_start, model(wall))
        return torch.stack([part.square().mean() for part in left_over])

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The mean squared distance from the exact solution."""
        return {"MSE": (model(batch[0]) - batch[3]).square().mean()}

    def data(self) -> Data:
        """Points drawn uniformly."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        sizes = (self.points, self.held_out, self.held_out)
        train, validation, test = (self._drawn(part, size) for part, size in enumerate(sizes))
        return Data(train=train, validation=validation, test=test)

    def _drawn(self, part: int, size: int) -> Batch:
        random = np.random.default_rng((self.seed, part))
        x, t = random.uniform(-1, 1, size), random.uniform(0, 1, size)
        start = np.stack([random.uniform(-1, 1, size), np.zeros(size)], 1)
        wall = np.stack([random.choice([-1.0, 1.0], size), random.uniform(0, 1, size)], 1)
        arrays = (np.stack([x, t], 1), start, wall, solution(x, t))
        return tuple(torch.from_numpy(array).float() for array in arrays)
