"""CR-MOGM: MGDA whose weights have momentum."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

from torch import Tensor

from trimol import _checks as checks
from trimol.methods._gramian import ShortestMethod
from trimol.methods.base import Checked, Objectives, StepOptions
from trimol.methods.mgda import mgda_weights


def crmogm_step(weights: Tensor, fresh: Tensor, alpha: float | Tensor) -> Tensor:
    """λ ← αλ + (1 − α)λ̂, on tensors (batchable); stays on the simplex to rounding."""
    moved = alpha * weights + (1 - alpha) * fresh
    return moved / moved.sum(-1, keepdim=True)


class CRMOGM(ShortestMethod):
    r"""Correlation-reduced MGDA: an exponential moving average of the weights of the batches.

    .. math::
        \hat\lambda_t &= \arg\min_{\lambda \in \Delta^M} \|\nabla F_{z_t}(x_t)\, \lambda\|^2
            + \rho \|\lambda\|^2 \\
        \lambda_{t+1} &= \alpha\, \lambda_t + (1 - \alpha)\, \hat\lambda_t \\
        x_{t+1} &= x_t - \eta\, \nabla F_{z_t}(x_t)\, \lambda_{t+1}

    with :math:`\alpha` = ``alpha``, :math:`\rho` = ``rho`` and :math:`\lambda_0` = ``weights``. The
    average depends on the noise of this batch by a share of 1 − α only: that reduces the bias of
    MGDA on mini-batches. α = 0 is MGDA, α = 1 static weighting. The theory lets α rise to 1 while
    the learning rate η falls: set ``crmogm.alpha = 1 - eta / eta_0`` between the steps. One
    backward per objective.

    Args:
        alpha: α in [0, 1], the share of the old weights. May be changed between steps.
        rho: ρ, the regularisation of λ̂ towards uniform.
        weights: λ0, on the simplex; uniform by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> crmogm = trimol.CRMOGM([x], objectives=2, alpha=0.8)
        >>> crmogm(torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])).backward()
        >>> crmogm.weights  # 0.8 (½, ½) + 0.2 (¾, ¼)
        tensor([0.5500, 0.4500], dtype=torch.float64)

    Reference:
        S. Zhou, W. Zhang, J. Jiang, W. Zhong, J. Gu, W. Zhu, *On the Convergence of Stochastic
        Multi-Objective Gradient Manipulation and Beyond*, NeurIPS 2022, Algorithm 1 (with MGDA).
    """

    summary: ClassVar[str] = "MGDA with momentum on the weights, which reduces its bias."
    reference: ClassVar[str] = "zhou2022convergence"
    shown: ClassVar[tuple[str, ...]] = ("alpha", "rho")
    alpha = Checked(checks.fraction)

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        alpha: float = 0.9,
        rho: float = 0.0,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        chunk: int | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        start = checks.simplex(weights, objectives)
        super().__init__(params, objectives, weights=start, chunk=chunk, **options)
        self.alpha = alpha
        self.rho = checks.nonnegative("rho", rho)

    @property
    def due(self) -> bool:
        """As for every method; with α = 1 the weights never move."""
        return super().due and self.alpha < 1

    def solve(self, gramian: Tensor) -> Tensor:
        """The average of the old weights and those of this batch."""
        fresh = mgda_weights(gramian, self.rho).to(self.weights)
        return crmogm_step(self.weights, fresh, self.alpha)
