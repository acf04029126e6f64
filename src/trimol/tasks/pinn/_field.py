"""A network of two variables with its derivatives in one forward pass."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Streams = list[Tensor]
Carried = tuple[Tensor, Streams, Streams]  # a value, its first and its second derivatives


class Field(nn.Module):
    """A network with tanh from two variables, and its derivatives beside its values.

    They are carried from layer to layer by the chain rule: exact, and the graph is that of an
    ordinary forward pass, so that a method's gradients need no second derivative of autograd.

    Args:
        width: Of the hidden layers.
        depth: How many there are.
        outputs: How many functions it is.
        twice: The variables in which second derivatives are wanted.

    Example:
        >>> field = Field(8, 2, twice=(0, 1))
        >>> field(torch.rand(5, 2)).shape, field.derivatives(torch.rand(5, 2)).shape
        (torch.Size([5, 1]), torch.Size([5, 5, 1]))
    """

    def __init__(
        self, width: int, depth: int, outputs: int = 1, twice: Sequence[int] = (0,)
    ) -> None:
        super().__init__()
        sizes = [2, *[width] * depth]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.last = nn.Linear(width, outputs)
        self.twice = list(twice)

    def forward(self, points: Tensor) -> Tensor:
        """The values at N points, N × outputs."""
        for layer in self.hidden:
            points = torch.tanh(layer(points))
        values: Tensor = self.last(points)
        return values

    def derivatives(self, points: Tensor) -> Tensor:
        """Values, both first derivatives, then the second ones: (3 + those) × N × outputs."""
        first = [one.expand_as(points) for one in torch.eye(2).to(points)]
        second = [torch.zeros_like(points)] * len(self.twice)
        value = points
        for layer in self.hidden:
            value, first, second = self._bent(*_linear(layer, value, first, second))
        value, first, second = _linear(self.last, value, first, second)
        return torch.stack([value, *first, *second])

    def _bent(self, value: Tensor, first: Streams, second: Streams) -> Carried:
        """tanh of a value, of its first and of its second derivatives."""
        bent = torch.tanh(value)
        slope, twice_bent = 1 - bent.square(), 2 * bent
        curved = [
            slope * (bend - twice_bent * first[variable].square())
            for variable, bend in zip(self.twice, second, strict=True)
        ]
        return bent, [slope * one for one in first], curved


def _linear(layer: nn.Module, value: Tensor, first: Streams, second: Streams) -> Carried:
    """A linear layer on values and derivatives: these have no bias."""
    assert isinstance(layer, nn.Linear)
    moved = [[F.linear(one, layer.weight) for one in streams] for streams in (first, second)]
    return layer(value), moved[0], moved[1]
