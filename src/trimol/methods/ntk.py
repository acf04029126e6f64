"""NTK weighting: losses that train at the same speed, by their tangent kernels."""

from typing import ClassVar

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods._gramian import GramianMethod


def ntk_weights(weights: Tensor, squared: Tensor, losses: Tensor) -> Tensor:
    """Σ_k κ_k / κ_m with κ = ‖∇f‖²/(4f), on tensors (batchable).

    A loss without a gradient has no speed: it keeps the weight that it had, and the sum is over the
    others.

    Args:
        weights: λ of before.
        squared: ‖∇f‖².
        losses: f, at least 0.
    """
    tiny = torch.finfo(losses.dtype).tiny
    trains = (squared > tiny) & (losses > 0)
    logs = torch.where(trains, squared.clamp_min(tiny).log() - losses.clamp_min(tiny).log(), -1e4)
    total = torch.logsumexp(logs, -1, keepdim=True)
    # No weight is beyond 1e30, finite in float32.
    return torch.where(trains, (total - logs).clamp_max(69.0).exp(), weights)


class NTK(GramianMethod):
    r"""NTK weighting: each loss times the inverse of the speed at which gradient descent lowers it.

    .. math::
        \lambda_m = \frac{\sum_k \kappa_k}{\kappa_m}, \qquad
        \kappa_m = \Big\|\nabla \sqrt{f_m}\Big\|^2 = \frac{\|\nabla f_m\|^2}{4 f_m}
            = \frac{1}{N_m} \frac{r_m^\top K_{mm}\, r_m}{r_m^\top r_m}

    for :math:`f_m = \frac{1}{N_m} \|r_m\|^2`, a mean of squared residuals, whose tangent kernel is
    :math:`K_{mm} = \frac{\partial r_m}{\partial x} \frac{\partial r_m}{\partial x}^\top`. The paper
    has :math:`\operatorname{Tr} K_{mm}` for :math:`N_m \kappa_m`: the mean speed over all residuals
    there could be, which takes the gradient of every single one. κ is the speed along the residual
    that there is, from the losses alone; it is exact, but it is not the trace. (PhysicsNeMo has the
    root of κ.)

    Weights are at least 1 and do not sum to one: the slowest loss gets the largest, and with M
    losses of one speed all are M. Losses must not be negative. One backward per objective; the
    paper computes weights now and then only: ``every=100``.

    Args:
        weights: λ before the first step, and of losses that have no gradient; uniform by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> ntk = trimol.NTK([x], objectives=2)
        >>> ntk(torch.stack([x[0] ** 2, (3 * x[1]) ** 2])).backward()
        >>> ntk.weights
        tensor([10.0000,  1.1111], dtype=torch.float64)

    Reference:
        S. Wang, X. Yu, P. Perdikaris, *When and Why PINNs Fail to Train: A Neural Tangent Kernel
        Perspective*, Journal of Computational Physics 2022, Algorithm 1.
    """

    summary: ClassVar[str] = (
        "Each loss divided by the speed at which gradient descent lowers it, by its tangent kernel."
    )
    reference: ClassVar[str] = "wang2022when"

    def solve(self, gramian: Tensor) -> Tensor:
        """Not by the Gramian alone."""
        raise NotImplementedError("NTK weights need the losses, too")

    def weigh(self, evidence: Evidence) -> Tensor:
        """Σ κ / κ_m."""
        losses = evidence.values().to(self.weights)
        checks.losses_at_least_zero(losses, "being sums of squares", self.names)
        squared = evidence.gramian(chunk=self.chunk).to(self.weights)
        return ntk_weights(self.weights, squared.diagonal(dim1=-2, dim2=-1), losses)
