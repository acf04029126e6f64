"""Kovasznay's flow: a stationary solution of the Navier–Stokes equations."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trimol.tasks.pinn._field import Field
from trimol.tasks.pinn.equation import Equation, Points

REYNOLDS = 40.0
DECAY = REYNOLDS / 2 - math.sqrt(REYNOLDS**2 / 4 + 4 * math.pi**2)


def flow(points: Tensor) -> Tensor:
    """u, v and p, N × 3."""
    x, y = points[:, 0], points[:, 1]
    wake = torch.exp(DECAY * x)
    u = 1 - wake * torch.cos(2 * math.pi * y)
    v = DECAY / (2 * math.pi) * wake * torch.sin(2 * math.pi * y)
    return torch.stack([u, v, (1 - wake.square()) / 2], -1)


class Kovasznay(Equation):
    r"""Kovasznay's flow behind a grid, Re = 40: three losses of one network (u, v, p)(x, y).

    .. math::
        u u_x + v u_y + p_x &= \tfrac1{Re} (u_{xx} + u_{yy}), \qquad u_x + v_y = 0 \\
        u v_x + v v_y + p_y &= \tfrac1{Re} (v_{xx} + v_{yy}), \qquad
            (u, v, p) \text{ given on the border}

    on −½ < x < 1, −½ < y < 3/2. With :math:`\zeta = Re/2 - \sqrt{Re^2/4 + 4\pi^2}` the solution is
    :math:`u = 1 - e^{\zeta x} \cos 2\pi y`, :math:`v = \frac{\zeta}{2\pi} e^{\zeta x} \sin 2\pi y`,
    :math:`p = \frac12 (1 - e^{2\zeta x})`.

    Example:
        >>> Kovasznay().solution(np.array([[0.0, 0.5]])).round(6).tolist()
        [[2.0, -0.0, 0.0]]

    Reference:
        L. I. G. Kovasznay, *Laminar flow behind a two-dimensional grid*, Mathematical Proceedings
        of the Cambridge Philosophical Society 44, 1948.
    """

    name: ClassVar[str] = "kovasznay"
    objectives: tuple[str, ...] = ("momentum", "continuity", "boundary")
    low: ClassVar[tuple[float, float]] = (-0.5, -0.5)
    high: ClassVar[tuple[float, float]] = (1.0, 1.5)
    outputs: ClassVar[int] = 3
    within: ClassVar[int] = 2

    def solution(self, points: Points) -> Points:
        """In closed form."""
        return flow(torch.from_numpy(points)).numpy()

    def drawn(self, random: np.random.Generator, size: int) -> Sequence[Points]:
        """Inside, the same for both equations, and on the border."""
        inside = self.inside(random, size)
        return inside, inside, self.border(random, size)

    def left_over(self, model: Field, points: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of both momenta, of the continuity and of the border."""
        inside, _, border = points
        found = model.derivatives(inside)
        (u, v, _), in_x, in_y = (part.unbind(-1) for part in found[:3])
        spread = (found[3] + found[4]) / REYNOLDS
        along = u * in_x[0] + v * in_y[0] + in_x[2] - spread[:, 0]
        across = u * in_x[1] + v * in_y[1] + in_y[2] - spread[:, 1]
        continuity = (in_x[0] + in_y[1])[:, None]
        return torch.stack([along, across], -1), continuity, model(border) - flow(border)
