"""GLS: the geometric mean of the losses."""

from typing import ClassVar

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs

# A loss of zero has no logarithm: it counts as this, relative to the largest loss.
_EPSILON = 1e-8


def gls_weights(losses: Tensor) -> Tensor:
    """The gradient of (Π ℓ_m)^{1/M} with respect to ℓ, on tensors (batchable); losses ≥ 0."""
    largest = losses.amax(-1, keepdim=True).clamp_min(torch.finfo(losses.dtype).tiny)
    logs = losses.clamp_min(_EPSILON * largest).log()
    return (logs.mean(-1, keepdim=True) - logs).exp() / losses.shape[-1]


class GLS(Method):
    r"""Geometric loss strategy: descent on the geometric mean of the losses.

    .. math::
        x_{t+1} = x_t - \alpha\, \nabla \Big(\prod_m \ell_m(x_t)\Big)^{1/M}, \qquad
        \lambda_m = \frac{1}{M\, \ell_m} \Big(\prod_k \ell_k\Big)^{1/M}

    λᵀF is the geometric mean itself. Up to the length of the step it is the sum of the log-losses,
    which is blind to the unit of each: a loss in another unit changes the length alone. The smaller
    a loss, the larger its weight: one that comes to zero takes the step over, and holds the mean at
    zero whatever the others are. Losses must not be negative; one of zero counts as 1e-8 of the
    largest. One backward: plain training.

    Args:
        weights: λ before the first step; matters only where that step's losses are not finite.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([4.0, 1.0], requires_grad=True)
        >>> gls = trimol.GLS([x], objectives=2)
        >>> gls(torch.stack([x[0], x[1]])).item()
        2.0
        >>> gls.weights
        tensor([0.2500, 1.0000], dtype=torch.float64)

    Reference:
        S. Chennupati, G. Sistu, S. Yogamani, S. A. Rawashdeh, *MultiNet++: Multi-Stream Feature
        Aggregation and Geometric Loss Strategy for Multi-Task Learning*, CVPR Workshops 2019.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Descent on the geometric mean of the losses, which is blind to their units."
    )
    reference: ClassVar[str] = "chennupati2019multinet"

    def weigh(self, evidence: Evidence) -> Tensor:
        """The gradient of the geometric mean."""
        losses = evidence.values().to(self.weights)
        why = "since GLS takes their logarithm"
        checks.losses_at_least_zero(losses, why, self.names)
        return gls_weights(losses)
