"""Helmholtz' equation, with a solution that was chosen first."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trimol.tasks.pinn._field import Field
from trimol.tasks.pinn.equation import Equation, Points


class Helmholtz(Equation):
    r"""Helmholtz' equation on a square: two losses of one network u(x, y).

    .. math:: u_{xx} + u_{yy} + k^2 u = q \ \text{ for } |x|, |y| < 1, \qquad
              u = 0 \text{ on the border}

    with k = 1 and q such that :math:`u = \sin(\pi x) \sin(4 \pi y)`. Where the residual of the
    equation, whose fourth derivatives are large, takes the training over, the border is not met:
    the example that learning-rate annealing was made with.

    Example:
        >>> task = Helmholtz()
        >>> task.solution(np.array([[0.5, 0.125]])).round(6).tolist()
        [[1.0]]

    Reference:
        S. Wang, Y. Teng, P. Perdikaris, *Understanding and Mitigating Gradient Flow Pathologies in
        Physics-Informed Neural Networks*, 2021, section 3.1.
    """

    name: ClassVar[str] = "helmholtz"
    objectives: tuple[str, ...] = ("equation", "boundary")
    low: ClassVar[tuple[float, float]] = (-1.0, -1.0)
    high: ClassVar[tuple[float, float]] = (1.0, 1.0)
    squared_number: ClassVar[float] = 1.0  # k²
    waves: ClassVar[tuple[float, float]] = (1.0, 4.0)  # half waves per unit, in x and in y
    shift: ClassVar[float] = 0.0  # of the phase in x: what the border has to be

    def solution(self, points: Points) -> Points:
        """The one that was chosen."""
        return self.wave(torch.from_numpy(points)).numpy()

    def wave(self, points: Tensor) -> Tensor:
        """sin(a₁πx + shift) sin(a₂πy), N × 1."""
        x, y = points[:, :1], points[:, 1:]
        first, second = (math.pi * number for number in self.waves)
        return torch.sin(first * x + self.shift) * torch.sin(second * y)

    def drawn(self, random: np.random.Generator, size: int) -> Sequence[Points]:
        """Inside, and on the border."""
        return self.inside(random, size), self.border(random, size)

    def left_over(self, model: Field, points: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of the equation and of the border."""
        inside, border = points
        u, _, _, u_xx, u_yy = model.derivatives(inside)
        bend = math.pi**2 * sum(number**2 for number in self.waves)
        source = (self.squared_number - bend) * self.wave(inside)
        return u_xx + u_yy + self.squared_number * u - source, model(border) - self.wave(border)
