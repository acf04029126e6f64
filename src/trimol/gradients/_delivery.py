"""How long a direction is when it is handed on, and what the parameters get that are not weighed.

The same for every method: what it computes is its own affair, what becomes of the result is decided
here, for one run and for many at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Length = Literal["own", "mean gradient"]
Heads = Literal["plain", "weighted"]

# A direction that is so many roundings of the mean gradient long, or less, has no direction. Half
# precision rounds coarsely: beyond a hundredth of the mean gradient it has one all the same.
_NOISE, _MOST = 16, 0.01


@dataclass(frozen=True)
class Delivery:
    """How a direction is handed on. `trimol.methods.Method` says what the options mean.

    Attributes:
        length: The direction's own, or that of the mean of the gradients.
        max_norm: The largest length, a number (or one for each of many runs, R × 1).
        heads: Whether the parameters that are not weighed get the plain sum of the gradients.
    """

    length: Length = "own"
    max_norm: float | Tensor | None = None
    heads: Heads = "plain"

    @property
    def rescales(self) -> bool:
        """Whether the direction's length has to be known."""
        return self.length != "own" or self.max_norm is not None

    def factor(self, norm: Tensor, mean: Tensor | None, rounding: float) -> Tensor:
        """What a direction is multiplied by; batchable.

        Args:
            norm: Its length ‖d‖.
            mean: ‖g₀‖ of the mean gradient, where `length` asks for it.
            rounding: The relative rounding error of the gradients.

        Example:
            >>> delivery = Delivery("mean gradient", max_norm=2.0)
            >>> delivery.factor(torch.tensor([1.0, 4.0, 0.0]), torch.tensor([3.0, 1.0, 1.0]), 1e-7)
            tensor([2.0000, 0.2500, 1.0000])
        """
        wanted = norm
        if mean is not None:
            wanted = torch.where(norm <= min(_NOISE * rounding, _MOST) * mean, norm, mean)
        if self.max_norm is not None:
            most = torch.as_tensor(self.max_norm, dtype=torch.float64).to(wanted)
            wanted = torch.minimum(wanted, most.view(wanted.shape) if most.dim() else most)
        # A zero stays one; what is not finite stays visible (∞ · 0 is NaN).
        return torch.where(norm > 0, wanted / norm, 1.0)


AS_IT_IS = Delivery()


def lengths(parts: Tensor | Sequence[Tensor]) -> Tensor:
    """‖d‖ of each of R directions: R × d, or one R × shape tensor for every parameter."""
    each = [parts] if isinstance(parts, Tensor) else parts
    double = torch.float64
    norms = [torch.linalg.vector_norm(p.detach().flatten(1), dim=1, dtype=double) for p in each]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return total
