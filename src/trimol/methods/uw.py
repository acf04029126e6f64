"""UW: weights that are learned as the inverse of each loss's noise."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs, Objectives, StepOptions

# λ = ½ exp(−s) with |s| at most this: the best λ of losses from 1e-30 to 1e30, finite in float32.
_FARTHEST = 69.0


def uw_step(weights: Tensor, losses: Tensor, lr: float | Tensor) -> Tensor:
    """λ ← λ exp(η(½ − λℓ)): the gradient step on s, written for λ = ½ exp(−s) (batchable).

    No step takes λ below 1/(2ℓ), the best for this loss: from there on the objective would rise.
    """
    moved = weights * torch.exp(lr * (0.5 - weights * losses))
    best = 0.5 / losses.clamp_min(torch.finfo(losses.dtype).tiny)
    moved = torch.where(weights > best, torch.maximum(moved, best), moved)
    return moved.clamp(0.5 * math.exp(-_FARTHEST), 0.5 * math.exp(_FARTHEST))


class UW(Method):
    r"""Uncertainty weighting: each loss is divided by its learned variance.

    .. math::
        \min_{x, s} \sum_m \tfrac12 e^{-s_m} \ell_m(x) + \tfrac12 s_m, \qquad
        s_m = \log \sigma_m^2, \quad \lambda_m = \tfrac12 e^{-s_m}

    x moves along the weighted gradient, and at the same time s by its own gradient step

    .. math::
        s_{t+1,m} = s_{t,m} - \eta\, \big(\tfrac12 - \lambda_{t,m}\, \ell_m(x_t)\big)

    with :math:`\eta` = ``lr``. It is closed-form, so that nothing has to be given to the optimizer.
    It comes to λ_m = 1/(2 ℓ_m): the sum of the log-losses. λ does not sum to one: its size is part
    of the method, and so is its start: ½, as published (s = 0, σ = 1) for Gaussian losses; for
    cross-entropies the paper has twice that (``weights=[0.5, 1.0]``).

    One backward: plain training. Losses must not be negative: λ would grow without bound, and an
    error says which it was. A single huge loss takes λ_m to its best, 1/(2 ℓ_m), and no further,
    where a plain gradient step would take it to zero for good; from there it comes back by a factor
    of exp(η/2) a step. s stays within ±69: the best λ of losses from 1e-30 to 1e30.

    Args:
        lr: η, the step size of s.
        weights: λ0, all above zero; ½ each by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([3.0, 1.0], requires_grad=True)
        >>> uw = trimol.UW([x], objectives=2, lr=0.1)
        >>> for _ in range(200):
        ...     loss = uw(torch.stack([x[0], 2 * x[1]]))
        >>> uw.weights
        tensor([0.1667, 0.2500], dtype=torch.float64)

    Reference:
        A. Kendall, Y. Gal, R. Cipolla, *Multi-Task Learning Using Uncertainty to Weigh Losses for
        Scene Geometry and Semantics*, CVPR 2018, eq. (7) and (10).
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Each loss divided by its learned variance: in the end the sum of the log-losses."
    )
    reference: ClassVar[str] = "kendall2018multi"
    moved_by: ClassVar[str | None] = "lr"
    shown: ClassVar[tuple[str, ...]] = ("lr",)
    start: ClassVar[float] = 0.5  # of every weight

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        lr: float = 0.01,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        start = [self.start] * checks.number(objectives) if weights is None else weights
        super().__init__(params, objectives, weights=start, **options)
        self.lr = checks.nonnegative("lr", lr)
        checks.above_zero("weights", self.weights)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The weights after the gradient step on s."""
        losses = evidence.values().to(self.weights)
        why = f"since {type(self).__name__} learns the logarithm of their size"
        checks.losses_at_least_zero(losses, why, self.names)
        return self.moved(losses)

    def moved(self, losses: Tensor) -> Tensor:
        """½ exp(−s) after the gradient step on s."""
        return uw_step(self.weights, losses, self.lr)

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """One gradient step on (x, s): x moves with the old s."""
        return evidence.scalar(before)
