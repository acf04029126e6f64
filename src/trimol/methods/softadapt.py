"""SoftAdapt: weights from the slope of each loss."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.methods._periodic import PeriodicMethod
from trimol.methods.base import Objectives, Range, StepOptions

Variant = Literal["original", "normalized", "loss weighted"]


def softadapt_weights(
    losses: Tensor, before: Tensor, beta: float | Tensor, variant: Variant = "original"
) -> Tensor:
    """softmax(β s) of the slopes s = L(t) − L(t−1), on tensors (batchable).

    Args:
        losses: L(t).
        before: L(t−1).
        beta: β.
        variant: ``"normalized"`` divides s by Σ|s|; ``"loss weighted"`` multiplies the exponentials
            by the losses, which must then not be negative.
    """
    slope = losses - before
    if variant == "normalized":
        total = slope.abs().sum(-1, keepdim=True)
        slope = slope / torch.where(total > 0, total, 1.0)
    info = torch.finfo(slope.dtype)
    tilt = (beta * slope).clamp(-info.max / 4, info.max / 4)
    if variant == "loss weighted":
        tilt = tilt + losses.clamp_min(info.tiny).log()
    return torch.softmax(tilt, -1)


class SoftAdapt(PeriodicMethod):
    r"""SoftAdapt: the softmax of the rates at which the losses change.

    .. math::
        \lambda_{t,m} = \frac{\exp(\beta s_m)}{\sum_k \exp(\beta s_k)}, \qquad
        s_m = L_m(t) - L_m(t - 1)

    with :math:`\beta` = ``beta`` and :math:`L_m(t)` the mean of loss m over the t-th ``period``
    steps. β > 0 puts more weight on what falls least. The slopes have the losses' unit: β is per
    such unit, unless ``variant="normalized"``, which divides them by :math:`\sum_k |s_k|`. With
    ``variant="loss weighted"`` the exponentials are multiplied by the losses,
    :math:`L_m(t) \exp(\beta s_m)`: small losses get little weight. λ sums to one. The steps before
    the end of the second period, which have nothing to compare with, move with λ0.

    One backward: plain training.

    Args:
        beta: β; below zero, more weight on what falls most.
        variant: ``"original"``, ``"normalized"`` or ``"loss weighted"``.
        period: Over how many steps a loss is averaged; 1, as the authors have it, for full batches.
        weights: λ0, on the simplex; uniform by default.
        every: Look at the losses every so many steps only.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> adapt = trimol.SoftAdapt([x], objectives=2, beta=2.0)
        >>> for value in (1.0, 0.5):
        ...     loss = adapt(torch.stack([x[0] * value, x[1]]))
        >>> adapt.weights
        tensor([0.2689, 0.7311], dtype=torch.float64)

    Reference:
        A. A. Heydari, C. A. Thompson, A. Mehmood, *SoftAdapt: Techniques for Adaptive Loss
        Weighting of Neural Networks with Multi-Part Loss Functions*, 2019, section 3.
    """

    summary: ClassVar[str] = "The softmax of the losses' slopes: more weight on what falls least."
    reference: ClassVar[str] = "heydari2019softadapt"
    shown: ClassVar[tuple[str, ...]] = ("beta", "variant", "period")
    search: ClassVar[Mapping[str, Range]] = {"beta": (0.1, 10.0)}

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        beta: float = 0.1,
        variant: Variant = "original",
        period: int = 1,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, period=period, weights=weights, **options)
        self.beta = checks.finite("beta", beta)
        checks.one_of("variant", variant, get_args(Variant))
        self.variant: Variant = variant

    def check(self, losses: Tensor) -> None:
        """Weights that are multiplied by losses must not be negative."""
        if self.variant == "loss weighted":
            checks.losses_at_least_zero(losses, "since they multiply the weights", self.names)

    def compared(self, last: Tensor, before: Tensor) -> Tensor:
        """softmax(β s)."""
        return softadapt_weights(last, before, self.beta, self.variant)
