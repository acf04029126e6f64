"""Burgers' equation: a smooth wave that steepens into a shock."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol.tasks.pinn._field import Field
from trimol.tasks.pinn.equation import Equation, Points

VISCOSITY = 0.01 / math.pi
# Of the quadrature: z from −25 to 25 in steps of 0.02, which leaves rounding errors only.
_NODES = np.linspace(-25, 25, 2501)
_AT_ONCE = 500


def solution(x: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""u(x, t), by the trapezoidal rule for the Cole–Hopf solution.

    .. math:: u = -\frac{\int \sin(\pi y) f(y) e^{-z^2} dz}{\int f(y) e^{-z^2} dz}, \qquad
              y = x - 2\sqrt{\nu t}\, z, \qquad f(y) = e^{-\cos(\pi y) / (2\pi\nu)}

    Example:
        >>> solution(np.array([-0.5, 0.5]), np.array([0.5, 0.5])).round(4).tolist()
        [0.5928, -0.5928]
    """
    if len(x) > _AT_ONCE:
        parts = [(x[i : i + _AT_ONCE], t[i : i + _AT_ONCE]) for i in range(0, len(x), _AT_ONCE)]
        return np.concatenate([solution(*part) for part in parts])
    y = x[:, None] - 2 * np.sqrt(VISCOSITY * t)[:, None] * _NODES
    power = -np.cos(np.pi * y) / (2 * np.pi * VISCOSITY) - _NODES**2
    f = np.exp(power - power.max(1, keepdims=True))  # the largest is one: e^50 and more otherwise
    return np.asarray(-(np.sin(np.pi * y) * f).sum(1) / f.sum(1))


class Burgers(Equation):
    r"""Burgers' equation with ν = 0.01/π: three losses of one network u(x, t).

    .. math:: u_t + u\, u_x = \nu\, u_{xx} \ \text{ for } |x| < 1,\ 0 < t < 1, \qquad
              u(x, 0) = -\sin(\pi x), \qquad u(\pm 1, t) = 0

    A shock forms at x = 0. The exact solution is that of Cole and Hopf, to rounding.

    Example:
        >>> task = Burgers(points=100)
        >>> task.objectives, task.data().train[0].shape
        (('equation', 'initial', 'boundary'), torch.Size([100, 2]))
    """

    name: ClassVar[str] = "burgers"
    objectives: tuple[str, ...] = ("equation", "initial", "boundary")
    low: ClassVar[tuple[float, float]] = (-1.0, 0.0)
    high: ClassVar[tuple[float, float]] = (1.0, 1.0)
    twice: ClassVar[tuple[int, ...]] = (0,)

    def solution(self, points: Points) -> Points:
        """By Cole and Hopf."""
        return solution(points[:, 0], points[:, 1])[:, None]

    def drawn(self, random: np.random.Generator, size: int) -> Sequence[Points]:
        """Inside, at t = 0, and at the walls."""
        start = self.inside(random, size) * [1.0, 0.0]
        return self.inside(random, size), start, self.border(random, size, [0])

    def left_over(self, model: Field, points: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of the equation, the initial values and the walls."""
        inside, start, wall = points
        u, u_x, u_t, u_xx = model.derivatives(inside)
        initial = model(start) + torch.sin(math.pi * start[:, :1])
        return u_t + u * u_x - VISCOSITY * u_xx, initial, model(wall)
