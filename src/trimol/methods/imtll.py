"""IMTL-L: losses that are learned to weigh alike."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from trimol.methods.base import Range
from trimol.methods.uw import UW, uw_step


def imtll_step(weights: Tensor, losses: Tensor, lr: float | Tensor) -> Tensor:
    """λ ← λ exp(η(1 − λℓ)): the gradient step on s, written for λ = exp(s) (batchable).

    It is that of UW with half the weights and twice the step, bounds included (`uw_step`).
    """
    return 2 * uw_step(weights / 2, losses, 2 * lr)


class IMTLL(UW):
    r"""Impartial multi-task learning, its loss balance: scales that make all losses alike.

    .. math::
        \min_{x, s} \sum_m e^{s_m} \ell_m(x) - s_m, \qquad \lambda_m = e^{s_m}, \qquad
        s_{t+1,m} = s_{t,m} - \eta\, \big(\lambda_{t,m}\, \ell_m(x_t) - 1\big)

    with :math:`\eta` = ``lr``. The step on s is closed-form, so that nothing has to be given to the
    optimizer; x moves at the same time, with the old s. It comes to λ_m = 1/ℓ_m: every weighted
    loss is then 1, and x follows the sum of the log-losses. It is `UW` but for a factor of two.
    λ does not sum to one: its size is part of the method. The published method is this on the heads
    together with `IMTLG` on the shared parameters.

    One backward: plain training. Losses must not be negative. A step never takes λ_m below its
    best, 1/ℓ_m, and s stays within ±69, as in `UW`.

    Args:
        lr: η, the step size of s.
        weights: λ0, all above zero; ones by default (s = 0), the sum of the losses.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([4.0, 1.0], requires_grad=True)
        >>> imtll = trimol.IMTLL([x], objectives=2, lr=0.1)
        >>> for _ in range(200):
        ...     loss = imtll(torch.stack([x[0], 2 * x[1]]))
        >>> imtll.weights
        tensor([0.2500, 0.5000], dtype=torch.float64)

    Reference:
        L. Liu, Y. Li, Z. Kuang, J.-H. Xue, Y. Chen, W. Yang, Q. Liao, W. Zhang, *Towards Impartial
        Multi-task Learning*, ICLR 2021.
    """

    summary: ClassVar[str] = (
        "Each loss times a learned scale that makes all of them alike: UW but for a factor of two."
    )
    reference: ClassVar[str] = "liu2021towards"
    moved_by: ClassVar[str | None] = "lr"
    start: ClassVar[float] = 1.0
    search: ClassVar[Mapping[str, Range]] = {"lr": (1e-3, 0.1)}

    def moved(self, losses: Tensor) -> Tensor:
        """exp(s) after the gradient step on s."""
        return imtll_step(self.weights, losses, self.lr)
