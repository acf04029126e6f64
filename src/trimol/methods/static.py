"""Fixed weights: the baseline that every other method has to beat."""

from typing import ClassVar

from torch import Tensor

from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs


class Static(Method):
    r"""Static weighting: a fixed convex (or any non-negative) combination of the losses.

    .. math:: x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda

    with :math:`\lambda` = ``weights``, uniform (the mean of the losses) by default. Plain training:
    one forward, one backward.

    Args:
        weights: λ. Need not sum to one: ``[1.0] * M`` is the sum of the losses.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> static = trimol.Static([x], objectives=2)
        >>> static(torch.stack([x.sum(), x.prod()])).backward()
        >>> x.grad
        tensor([1.5000, 1.0000])
    """

    needs: ClassVar[Needs] = "nothing"
    summary: ClassVar[str] = "Fixed weights: plain training on a weighted sum of the losses."
    reference: ClassVar[str] = "chen2023three"
    prefers: ClassVar[str | None] = "weights"

    def weigh(self, evidence: Evidence) -> Tensor:
        """The same weights as before."""
        return self.weights
