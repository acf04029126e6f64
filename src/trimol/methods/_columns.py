"""What methods carry for every entry of the parameters: flat rows, a column for each entry."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trimol.gradients._params import common_dtype, width_of


class Columns:
    """The columns of the parameters that have gradients now, among those of all.

    A frozen parameter keeps its columns; gradients have none for it.

    Replicas start from a row of one column, zero, which stands for as many as there are.

    Args:
        params: All parameters, in order.

    Example:
        >>> first, second = torch.zeros(2), torch.zeros(3, requires_grad=True)
        >>> columns = Columns([first, second])
        >>> columns.of(torch.arange(5.0))
        tensor([2., 3., 4.])
        >>> columns.put(torch.zeros(5), torch.ones(3))
        tensor([0., 0., 1., 1., 1.])
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.live = torch.tensor([p.requires_grad for p in params])
        self.sizes = torch.tensor([width_of(p) for p in params])

    @staticmethod
    def empty(params: Sequence[Tensor], *rows: int) -> Tensor:
        """Zeros for all columns, at least in float32: small changes would be lost in less."""
        dtype = torch.promote_types(common_dtype(params), torch.float32)
        size = sum(map(width_of, params))
        return torch.zeros((), dtype=dtype, device=params[0].device).expand(*rows, size)

    def of(self, carried: Tensor) -> Tensor:
        """The columns of the parameters that have gradients."""
        return carried if self.live.all() else carried[..., self._mask(carried)]

    def put(self, carried: Tensor, moved: Tensor) -> Tensor:
        """All columns, of which those that have gradients are new."""
        if self.live.all():
            return moved
        result = carried.clone()
        result[..., self._mask(carried)] = moved.to(result)
        return result

    def spread(self, values: Tensor) -> Tensor:
        """A number for every parameter with a gradient, for each of its columns: 1 where alike."""
        if (values == values[..., :1]).all():
            return values[..., :1]
        return values.repeat_interleave(self.sizes[self.live].to(values.device), -1)

    def _mask(self, like: Tensor) -> Tensor:
        return self.live.repeat_interleave(self.sizes).to(like.device)
