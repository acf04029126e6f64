"""Nash-MTL: the objectives bargain for the direction."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from torch import Tensor
from torch.optim import Optimizer

from trimol.gradients._delivery import Heads, Length
from trimol.maths.fairness import fair_weights
from trimol.methods._gramian import RoundedMethod, each
from trimol.methods.base import Metric, Objectives


def nashmtl_weights(gramian: Tensor, rounding: float = 0.0) -> Tensor:
    """The a > 0 with G a = 1/a, in float64."""
    # α-fairness with α = 1; its step has length ‖Jᵀa‖ = √(aᵀGa) = √M.
    return fair_weights(gramian, 1.0, rounding)


class NashMTL(RoundedMethod):
    r"""Multi-task learning as a bargaining game: its Nash solution, the proportionally fair step.

    .. math::
        d = \sum_i a_i g_i, \qquad (G a)_i = 1 / a_i,\ a > 0, \qquad G_{ij} = g_i^\top g_j, \qquad
        x_{t+1} = x_t - \alpha\, d \cdot \min(1, c / \|d\|)

    with c = ``max_norm``. d maximises :math:`\sum_i \log g_i^\top d` in a ball; it conflicts with
    no objective, and does not change when a single loss is scaled. Its length is always
    :math:`\sqrt M`, so that with the default c = 1 every step has length α: let the learning rate
    fall, or clip and schedule as for normalised gradients. The system is solved to rounding
    (Newton), not by a few convex programs. At a Pareto stationary point there is no solution; the
    min-norm weights, whose direction is zero, take its place. One backward per objective.

    Args:
        max_norm: c, the largest length of d, as in the authors' code; ``None``: :math:`\sqrt M`.
            ``weights`` holds a, which it leaves alone; ``length`` holds up to c only.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> nash = trimol.NashMTL([x], objectives=2, max_norm=None)
        >>> nash(torch.stack([x[0], 4 * x[1]])).backward()
        >>> x.grad, nash.weights
        (tensor([1., 1.]), tensor([1.0000, 0.2500], dtype=torch.float64))

    Reference:
        A. Navon, A. Shamsian, I. Achituve, H. Maron, K. Kawaguchi, G. Chechik, E. Fetaya,
        *Multi-Task Learning as a Bargaining Game*, ICML 2022, Algorithm 1.
    """

    summary: ClassVar[str] = (
        "The Nash bargaining solution: proportionally fair, blind to the losses' scales."
    )
    reference: ClassVar[str] = "navon2022multi"
    shown: ClassVar[tuple[str, ...]] = ("max_norm",)

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        max_norm: float | None = 1.0,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        chunk: int | None = None,
        every: int = 1,
        length: Length = "own",
        heads: Heads = "plain",
        optimizer: Optimizer | None = None,
        metric: Metric = "step",
        guard: bool = False,
    ) -> None:
        super().__init__(
            params,
            objectives,
            weights=weights,
            chunk=chunk,
            every=every,
            length=length,
            max_norm=max_norm,
            heads=heads,
            optimizer=optimizer,
            metric=metric,
            guard=guard,
        )

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """The a of G a = 1/a."""
        return each(nashmtl_weights, [gramian], rounding)
