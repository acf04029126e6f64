"""A model that is nothing but a point: for problems that are formulas."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trimol.tasks.task import Batch, Task


class Point(nn.Module):
    """x itself as a model, in float64.

    >>> Point(Tensor([1.0, 2.0]))().tolist()
    [1.0, 2.0]
    """

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start.detach().clone().double())

    def forward(self) -> Tensor:
        """x."""
        return self.x


class Formula(Task):
    """A task whose model is a point x, and whose F and ∇F are known.

    F is linear in the samples z, so that a batch is its mean z. Leading dimensions of x and z are a
    batch of points.
    """

    start: Tensor | Sequence[float]

    @abstractmethod
    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x) at a mean z, of shape (..., M)."""

    @abstractmethod
    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x) at a mean z, of shape (..., M, d)."""

    def model(self) -> nn.Module:
        """The initial point."""
        return Point(torch.as_tensor(self.start))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """F at the batch's mean z."""
        (z,) = batch
        return self.values(model(), z.mean(0))
