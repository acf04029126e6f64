"""Some samples of a tensor, named by their numbers and looked up when they are asked for."""

from typing import Any

from torch import Tensor


class Rows:
    """Samples of a tensor in an order of their own, without a copy of them.

    Many splits of one data set are so held as one data set and a table of numbers for each.

    Args:
        tensor: All samples.
        order: The numbers of those that are meant; more dimensions are more such tables.

    Example:
        >>> import torch
        >>> rows = Rows(torch.tensor([10, 11, 12, 13]), torch.tensor([3, 0, 2]))
        >>> len(rows), rows[1:], rows[torch.tensor([2, 2])]
        (3, tensor([10, 12]), tensor([12, 12]))
    """

    def __init__(self, tensor: Tensor, order: Tensor) -> None:
        self.tensor, self.order = tensor, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, places: Any) -> Tensor:
        return self.tensor[self.order[places]]
