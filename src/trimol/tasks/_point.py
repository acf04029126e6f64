"""A model that is nothing but a point: for problems that are formulas."""

import torch
from torch import Tensor, nn

from trimol._failures import BadValue


class Point(nn.Module):
    """x itself as a model, in float64.

    Args:
        start: x_0.

    Example:
        >>> Point(torch.tensor([1.0, 2.0]))().tolist()
        [1.0, 2.0]
    """

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start.detach().clone().double())

    def forward(self) -> Tensor:
        """x."""
        return self.x


def row_of_numbers(name: str, value: object, *, length: int | None = None) -> Tensor:
    """Finite numbers in one dimension as float64, or one line that names the argument.

    >>> row_of_numbers("b1", [1, 2])
    tensor([1., 2.], dtype=torch.float64)
    """
    found = torch.as_tensor(value, dtype=torch.float64)
    if found.dim() != 1 or not len(found) or not found.isfinite().all():
        raise BadValue(f"{name} must be finite numbers in one dimension, found {value!r}")
    if length not in (None, len(found)):
        raise BadValue(f"{name} must have {length} entries, found {len(found)}")
    return found
