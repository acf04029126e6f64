r"""The classic two-objective toy: two valleys that trap, and a front behind them.

.. math::
    f_1 &= s\, \big(c_1 (\log \max(|\tfrac12(-x_1 - 7) - \tanh(-x_2)|,\ 5 \cdot 10^{-6}) + 6)
        + c_2\, q_1\big), \qquad
    q_{1,2} = \tfrac1{10} \big((-x_1 \pm 7)^2 + \tfrac1{10} (-x_2 - 8)^2\big) - 20 \\
    f_2 &= c_1 (\log \max(|\tfrac12(-x_1 + 3) + \tanh(-x_2) + 2|,\ 5 \cdot 10^{-6}) + 6)
        + c_2\, q_2, \qquad c_{1,2} = \max(\tanh(\pm \tfrac12 x_2),\ 0)

with s = 0.1. Above :math:`x_2 = 0` each loss has a narrow valley, whose floor is not the front;
below are two paraboloids, whose front runs from (7, −8.4) to (−7, −8.4).
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from trimol._failures import BadValue
from trimol.tasks._point import Formula, Point
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings

STARTS = ((-8.5, 7.5), (0.0, 0.0), (9.0, 9.0), (-7.5, -0.5), (9.0, -1.0))
_LEAST = 5e-6


class ClassicToy(Formula):
    r"""The toy of CAGrad, Nash-MTL, FAMO and ConFIG: who reaches the front, from five starts?

    On the front :math:`x_1 = 7(2w - 1)` for w in [0, 1], and :math:`x_2` is where
    :math:`c_2 (19.6\, w (1 - w) + \frac1{100}(x_2 + 8)^2 - 20)` is least. All samples are alike.

    Args:
        start: Which of the five starts, from 0.
        scale: s, what the first loss is multiplied by; 0.1, as these papers have it.

    Example:
        >>> task = ClassicToy()
        >>> front = task.true_front(task.data().train, points=3)
        >>> front.round(decimals=2).tolist()
        [[-0.04, -19.99], [-1.51, -15.09], [-2.0, -0.4]]

    Reference:
        B. Liu, X. Liu, X. Jin, P. Stone, Q. Liu, *Conflict-Averse Gradient Descent for Multi-task
        Learning*, NeurIPS 2021, appendix; first loss × 0.1 as in A. Navon et al., *Multi-Task
        Learning as a Bargaining Game*, ICML 2022.
    """

    name: ClassVar[str] = "classic-toy"
    objectives: tuple[str, ...] = ("f1", "f2")
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "classic-toy")

    def __init__(self, *, start: int = 0, scale: float = 0.1) -> None:
        if start not in range(len(STARTS)):
            raise BadValue(f"start must be from 0 to {len(STARTS) - 1}, found {start!r}")
        self.start, self.scale = STARTS[start], scale

    def model(self) -> nn.Module:
        """The initial point."""
        return Point(torch.tensor(self.start))

    def data(self) -> Data:
        """Samples that change nothing."""
        alike = torch.zeros(64, 1, dtype=torch.float64)
        return Data(train=(alike,), test=(alike[:1],))

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x), of shape (..., 2); z changes nothing."""
        first, second = x.unbind(-1)
        valleys = torch.stack(self._depths(first, second), -1).abs().clamp_min(_LEAST).log() + 6
        up, down = (torch.tanh(second / 2 * sign).clamp_min(0)[..., None] for sign in (1, -1))
        return self._unit(x) * (up * valleys + down * self._bowls(first, second))

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x), of shape (..., 2, 2); at the kink x₂ = 0 of both sides, as autograd has it."""
        first, second = x.unbind(-1)
        depths = torch.stack(self._depths(first, second), -1)
        inside = depths.abs() > _LEAST
        slope = torch.where(inside, 1 / torch.where(inside, depths, 1.0), 0.0)
        flat = 1 - torch.tanh(second).square()
        across = torch.stack([flat, -flat], -1)  # ∂/∂x₂ of −tanh(−x₂) and of tanh(−x₂)
        valleys = depths.abs().clamp_min(_LEAST).log() + 6
        steep = torch.tanh(second / 2)
        up, down = steep.clamp_min(0)[..., None], (-steep).clamp_min(0)[..., None]
        bend = (1 - steep.square())[..., None] / 2
        bowls = self._bowls(first, second)
        centres = torch.tensor([7.0, -7.0]).to(x)
        on_first = -up * slope / 2 + down * (first[..., None] - centres) / 5
        on_second = (
            up * slope * across
            + (second >= 0)[..., None] * bend * valleys
            + down * (second[..., None] + 8) / 50
            - (second <= 0)[..., None] * bend * bowls
        )
        return self._unit(x)[..., None] * torch.stack([on_first, on_second], -1)

    def _depths(self, first: Tensor, second: Tensor) -> list[Tensor]:
        """What vanishes on the floors of the valleys."""
        return [
            (-first - 7) / 2 - torch.tanh(-second),
            (-first + 3) / 2 + torch.tanh(-second) + 2,
        ]

    def _bowls(self, first: Tensor, second: Tensor) -> Tensor:
        """The paraboloids below x₂ = 0."""
        away = torch.stack([first - 7, first + 7], -1).square()
        return (away + (second + 8).square()[..., None] / 10) / 10 - 20

    def _unit(self, x: Tensor) -> Tensor:
        return x.new_tensor([self.scale, 1.0])

    def on_front(self, share: Tensor) -> Tensor:
        """The Pareto points for w in [0, 1], of shape (..., 2): x₂ by Newton's method."""
        lift = 19.6 * share * (1 - share) - 20
        second = torch.full_like(share, -8.4)
        for _ in range(50):
            steep = torch.tanh(-second / 2)
            bend, bowl = (1 - steep.square()) / 2, lift + (second + 8).square() / 100
            slope = -bend * bowl + steep * (second + 8) / 50
            curve = -steep * bend * bowl - bend * (second + 8) / 25 + steep / 50
            second = second - slope / curve
        return torch.stack([7 * (2 * share - 1), second], -1)

    def true_front(self, batch: Batch, points: int) -> Tensor:
        """F from one end of the front to the other."""
        share = torch.linspace(0, 1, points, dtype=torch.float64)
        return self.values(self.on_front(share), batch[0])

    def distance(self, x: Tensor) -> Tensor:
        """How far points are from the nearest of the front, among 2001 of them."""
        share = torch.linspace(0, 1, 2001, dtype=torch.float64)
        apart = x.double()[..., None, :] - self.on_front(share)
        least: Tensor = apart.square().sum(-1).sqrt().amin(-1)
        return torch.where(x.isfinite().all(-1), least, math.inf)
