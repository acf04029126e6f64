"""DWA: more weight on the losses that fall least from epoch to epoch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods._periodic import PeriodicMethod
from trimol.methods.base import Objectives, Range, StepOptions


def dwa_weights(last: Tensor, before: Tensor, temperature: float | Tensor) -> Tensor:
    """softmax(r/T) of the rates r = L(t−1)/L(t−2), on tensors (batchable)."""
    info = torch.finfo(last.dtype)
    # A loss that stays where it is has rate 1, at zero too; one that leaves zero the largest.
    rate = torch.where(before == 0, info.max, last / torch.where(before == 0, 1, before))
    rate = torch.where(last == before, 1, rate)
    return torch.softmax((rate / temperature).clamp(-info.max, info.max), -1)


class DWA(PeriodicMethod):
    r"""Dynamic weight average: weights from the rate at which each loss falls.

    .. math::
        \lambda_{t,m} = \frac{\exp(r_{t-1,m} / T)}{\sum_k \exp(r_{t-1,k} / T)}, \qquad
        r_{t-1,m} = \frac{L_m(t-1)}{L_m(t-2)}

    with :math:`T` = ``temperature`` and :math:`L_m(t)` the mean of loss m over epoch t, where an
    epoch is ``period`` steps. The first two epochs are trained with ``weights``. Here λ sums to
    one; the paper's sums to M, a factor that the learning rate takes.

    One backward: plain training. Losses must not be negative.

    Args:
        temperature: T; the larger, the nearer to uniform.
        period: The steps of an epoch: ``len(loader)``, as in the paper, or as many as average the
            noise of the batches out.
        weights: λ in the first two epochs; uniform by default.
        every: Look at the losses every so many steps only; an epoch is then ``every * period``
            steps.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> dwa = trimol.DWA([x], objectives=2, period=1)
        >>> for value in (1.0, 0.5):
        ...     loss = dwa(torch.stack([x[0] * value, x[1]]))
        >>> dwa.weights  # for the next step
        tensor([0.4378, 0.5622], dtype=torch.float64)

    Reference:
        S. Liu, E. Johns, A. J. Davison, *End-to-End Multi-Task Learning with Attention*, CVPR
        2019.
    """

    summary: ClassVar[str] = (
        "More weight on the losses that fall least from epoch to epoch: the cost of plain training."
    )
    reference: ClassVar[str] = "liu2019end"
    shown: ClassVar[tuple[str, ...]] = ("temperature", "period")
    search: ClassVar[Mapping[str, Range]] = {"temperature": (0.5, 8.0)}

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        temperature: float = 2.0,
        period: int = 100,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, period=period, weights=weights, **options)
        self.temperature = checks.positive("temperature", temperature)

    def check(self, losses: Tensor) -> None:
        """Ratios of losses of either sign mean nothing."""
        checks.losses_at_least_zero(losses, "since DWA compares their ratios", self.names)

    def compared(self, last: Tensor, before: Tensor) -> Tensor:
        """softmax(r/T), for the next epoch."""
        return dwa_weights(last, before, self.temperature)

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """The last step of an epoch still moves with that epoch's weights."""
        return evidence.scalar(before)
