"""A model that is nothing but a point: for problems that are formulas."""

from torch import Tensor, nn


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
