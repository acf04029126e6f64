r"""Two losses whose front bends the wrong way: no weighted sum reaches its middle.

.. math:: f_{1,2}(x) = 1 - \exp(-\|x \mp c\|^2), \qquad c = (1, \dots, 1)/\sqrt d

The Pareto optimal points are the segment from c to −c, :math:`x = s\,c` with
:math:`-1 \le s \le 1`, where :math:`f_{1,2} = 1 - \exp(-(s \mp 1)^2)`, whatever d.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from trimol._checks import whole_number
from trimol.tasks._point import Formula, Point
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings


class Concave(Formula):
    """The problem of Fonseca and Fleming, without noise: all samples are alike.

    The seed of a run decides its start, near the middle of the segment. Descent on a weighted sum
    leaves it for one of the ends.

    Args:
        dimension: d.

    Example:
        >>> task = Concave(dimension=2)
        >>> front = task.true_front(task.data().train, points=3)
        >>> front.round(decimals=3).tolist()
        [[0.0, 0.982], [0.632, 0.632], [0.982, 0.0]]

    Reference:
        C. M. Fonseca, P. J. Fleming, *An overview of evolutionary algorithms in multiobjective
        optimization*, Evolutionary Computation 3, 1995.
    """

    name: ClassVar[str] = "concave"
    objectives: tuple[str, ...] = ("f1", "f2")
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "concave")
    spread: ClassVar[float] = 0.1  # of the start, in every coordinate

    def __init__(self, *, dimension: int = 2) -> None:
        self.dimension = whole_number("dimension", dimension, least=1)
        self.start = torch.zeros(self.dimension, dtype=torch.float64)
        middle = torch.full((self.dimension,), self.dimension**-0.5, dtype=torch.float64)
        self.centres = torch.stack([middle, -middle])

    def model(self) -> nn.Module:
        """A point near the middle, drawn."""
        return Point(self.spread * torch.randn(self.dimension, dtype=torch.float64))

    def data(self) -> Data:
        """Samples that change nothing."""
        alike = torch.zeros(64, 1, dtype=torch.float64)
        return Data(train=(alike,), test=(alike[:1],))

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x), of shape (..., 2); z changes nothing."""
        return -torch.expm1(-(x[..., None, :] - self.centres).square().sum(-1))

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x), of shape (..., 2, d)."""
        apart = x[..., None, :] - self.centres
        return 2 * apart * torch.exp(-apart.square().sum(-1, keepdim=True))

    def true_front(self, batch: Batch, points: int) -> Tensor:
        """F along the segment from c to −c."""
        along = torch.linspace(1, -1, points, dtype=torch.float64)
        return self.values(along[:, None] * self.centres[0], batch[0])
