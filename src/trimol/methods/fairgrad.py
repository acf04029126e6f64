"""FairGrad: α-fair shares of the improvement."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Unpack

from torch import Tensor

from trimol import _checks as checks
from trimol.maths.fairness import fair_weights
from trimol.methods._gramian import GramianOptions, RoundedMethod, each
from trimol.methods.base import Objectives, Range


class FairGrad(RoundedMethod):
    r"""Fair resource allocation: the direction that maximises the α-fair utility.

    .. math::
        d = \sum_i w_i g_i, \qquad (G w)_i = w_i^{-1/\alpha},\ w > 0, \qquad
        G_{ij} = g_i^\top g_j, \qquad x_{t+1} = x_t - \eta\, d

    with :math:`\alpha` = ``alpha``: d maximises :math:`\sum_i (g_i^\top d)^{1-\alpha}/(1-\alpha)`
    in a ball. α → 0 is the mean of the losses, α = 1 proportional fairness (Nash-MTL, not
    shortened), α = 2 minimum potential delay, α → ∞ max-min fairness (MGDA). d conflicts with no
    objective. Scaling all losses by c scales it by :math:`c^{(1-\alpha)/(1+\alpha)}` only: with
    α > 1 the step *grows* as the gradients shrink, so let the learning rate fall. The system is
    solved to rounding (Newton). At a Pareto stationary point there is no solution; the min-norm
    weights, whose direction is zero, take its place. One backward per objective.

    Args:
        alpha: α, what kind of fairness.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> fair = trimol.FairGrad([x], objectives=2, alpha=2.0)
        >>> fair(torch.stack([x[0], 8 * x[1]])).backward()
        >>> x.grad, fair.weights
        (tensor([1.0000, 0.5000]), tensor([1.0000, 0.0625], dtype=torch.float64))

    Reference:
        H. Ban, K. Ji, *Fair Resource Allocation in Multi-Task Learning*, ICML 2024, Algorithm 1.
    """

    summary: ClassVar[str] = "The α-fair direction, from proportional to max-min fairness."
    reference: ClassVar[str] = "ban2024fair"
    shown: ClassVar[tuple[str, ...]] = ("alpha",)
    search: ClassVar[Mapping[str, Range]] = {"alpha": (0.5, 4.0)}

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        alpha: float = 2.0,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.alpha = checks.positive("alpha", alpha)

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """The w of G w = w^(-1/α)."""
        return each(fair_weights, [gramian], self.alpha, rounding)
