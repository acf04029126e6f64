"""GradNorm: weights trained so that all objectives learn at one pace."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs, Objectives, Range, State, StepOptions

_ROUNDING = 16 * torch.finfo(torch.float64).eps


def gradnorm_step(
    weights: Tensor,
    norms: Tensor,
    ratios: Tensor,
    alpha: float | Tensor,
    lr: float | Tensor,
) -> Tensor:
    """w ← w − η ∂L_grad/∂w, at least 0, rescaled to the sum M; on tensors (batchable)."""
    sizes = weights * norms
    # r_m, the inverse training rate; where all losses are zero the pace is the same.
    mean = ratios.mean(-1, keepdim=True)
    rate = torch.where(mean > 0, ratios / mean, 1.0)
    # ∂L_grad/∂w = sign(w n − target) n: no sign where sizes are on target to rounding.
    target = sizes.mean(-1, keepdim=True) * rate**alpha
    gap = sizes - target
    sign = torch.where(gap.abs() <= _ROUNDING * (sizes + target), 0.0, gap.sign())
    moved = (weights - lr * sign * norms).clamp_min(0)
    # Back to the sum M; a step that leaves no weight at all is not taken.
    total = moved.sum(-1, keepdim=True)
    return torch.where(total > 0, moved * (weights.shape[-1] / total), weights)


class GradNorm(Method):
    r"""Gradient normalisation: weights that are trained to balance the gradients' norms.

    .. math::
        L_{\text{grad}}(w) &= \sum_{m=1}^M \Big| w_m n_m - \overline{w n}\; r_m^\alpha \Big|, \qquad
            n_m = \|\nabla_W f_m(x_t)\|, \quad
            r_m = \frac{f_m(x_t) / f_m(x_0)}{\tfrac1M \sum_j f_j(x_t) / f_j(x_0)} \\
        w_{t+1} &= w_t - \eta\, \nabla_w L_{\text{grad}}(w_t)
            \ \text{ rescaled to the sum } M, \qquad
        x_{t+1} = x_t - \beta\, \nabla F_z(x_t)\, w_t

    with :math:`\alpha` = ``alpha``, :math:`\eta` = ``lr``, W = ``layer``, the target
    :math:`\overline{w n}\, r_m^\alpha` held constant: the gradient is
    :math:`\operatorname{sign}(w_m n_m - \overline{w n}\, r_m^\alpha)\, n_m`, in closed form. As
    published, x moves with the old weights, and weights sum to M: the scalar is worth
    :math:`w_t^\top F`, like the *sum* of the losses. Beyond the paper, which lets a long step make
    weights negative, they are kept at or above zero. One backward per objective.

    Args:
        objectives: M, the number of losses, none of them negative.
        alpha: α, how strongly objectives that learn slowly are favoured.
        lr: η, the step size of w; relative to 1/n, for w moves by η·n in one step.
        layer: W, the parameters whose gradients are balanced, such as the last shared layer's;
            all of ``params`` by default.
        initial: The losses f(x_0) to compare with; those of the first step by default.
        simultaneous: Move x with wₜ; otherwise with wₜ₊₁.
        weights: w at the start, rescaled to the sum M; ones by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 0.0], requires_grad=True)
        >>> gradnorm = trimol.GradNorm([x], objectives=2, lr=0.1)
        >>> gradnorm(torch.stack([x[0] + 1, 3 * x[1] + 1])).backward()
        >>> x.grad, gradnorm.weights  # w = (1 + 0.1·1, 1 − 0.1·3) · 2/1.8 for the next step
        (tensor([1., 3.]), tensor([1.2222, 0.7778], dtype=torch.float64))

    Reference:
        Z. Chen, V. Badrinarayanan, C.-Y. Lee, A. Rabinovich, *GradNorm: Gradient Normalization for
        Adaptive Loss Balancing in Deep Multitask Networks*, ICML 2018, Algorithm 1.
    """

    needs: ClassVar[Needs] = "gramian"
    summary: ClassVar[str] = (
        "Trains the weights so that weighted gradients are of one size and objectives of one pace."
    )
    reference: ClassVar[str] = "chen2018gradnorm"
    moved_by: ClassVar[str | None] = "lr"
    shown: ClassVar[tuple[str, ...]] = ("alpha", "lr")
    search: ClassVar[Mapping[str, Range]] = {"alpha": (0.3, 3.0)}
    initial: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        alpha: float = 1.5,
        lr: float = 0.025,
        layer: Iterable[Tensor] | None = None,
        initial: Tensor | Sequence[float] | None = None,
        simultaneous: bool = True,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        checked = checks.weights(weights, objectives)
        start = checked * len(checked) / checked.sum()
        super().__init__(params, objectives, weights=start, **options)
        self.alpha = checks.nonnegative("alpha", alpha)
        self.lr = checks.nonnegative("lr", lr)
        self.layer = None if layer is None else tuple(layer)
        self.simultaneous = checks.flag("simultaneous", simultaneous)
        first = torch.zeros_like(self.weights)  # zeros: not yet known
        if initial is not None:
            given = checks.vector("initial", initial, objectives)
            first = checks.above_zero("initial", given).to(first)
        self.carry(initial=first)

    def weigh(self, evidence: Evidence) -> State:
        """One gradient step of w on L_grad."""
        gramian = evidence.gramian(of=self.layer).to(self.weights)
        norms = gramian.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
        losses = evidence.values().to(self.weights)
        why = "since GradNorm compares their ratios"
        checks.losses_at_least_zero(losses, why, self.names)
        known = self.initial.any(-1, keepdim=True)
        first = torch.where(known, self.initial, losses)
        initial = checks.first_losses_above_zero(first, why, self.names)
        moved = gradnorm_step(self.weights, norms, losses / initial, self.alpha, self.lr)
        return {"weights": moved, "initial": initial}

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves with wₜ as published, or with wₜ₊₁."""
        return evidence.scalar(before if self.simultaneous else after)
