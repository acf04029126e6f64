"""LRA: losses whose gradients are of one size, by a moving average of the ratios."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs, Objectives, StepOptions

Against = Literal["max", "mean"]


def lra_step(
    weights: Tensor, means: Tensor, size: Tensor, residual: int, alpha: float | Tensor
) -> Tensor:
    """(1 − α)λ + α · size/mean|∇f|, on tensors (batchable); 1 for the residual.

    A loss without a gradient keeps its weight.

    Args:
        weights: λ.
        means: mean|∇f| of every loss.
        size: max|∇f_r| (or the mean), (…, 1).
        residual: r.
        alpha: α.
    """
    there = (means > 0) & (size > 0)
    ratio = (size / torch.where(there, means, 1.0)).clamp_max(1e30)  # finite in float32
    moved = torch.where(there, weights + alpha * (ratio - weights), weights)
    return moved.index_fill(-1, torch.tensor([residual], device=moved.device), 1.0)


class LRA(Method):
    r"""Learning-rate annealing: the other losses are scaled to the gradient of the residual.

    .. math::
        \lambda_m \leftarrow (1 - \alpha)\, \lambda_m + \alpha\,
            \frac{\max_k |\partial_k f_r|}{\operatorname{mean}_k |\partial_k f_m|}
            \quad (m \ne r), \qquad \lambda_r = 1

    with :math:`\alpha` = ``alpha``, r = ``residual`` and k over the given parameters. Made for
    physics-informed networks, where the residual of the equation has large gradients and the
    boundary terms vanish beside it. Weights do not sum to one. One backward per objective; the
    authors compute them every ten steps: ``every=10``.

    Args:
        residual: r, the loss that the others are scaled to, by its place or its name.
        alpha: α in [0, 1], how fast λ follows.
        against: The ``"max"`` of \|∂f_r\|, as published, or its ``"mean"``, as in PhysicsNeMo.
        weights: λ0; ones by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> lra = trimol.LRA([x], objectives=["pde", "boundary"], residual="pde")
        >>> lra({"pde": 8 * x[0] + 4 * x[1], "boundary": x[0]}).backward()
        >>> lra.weights
        tensor([1.0000, 2.5000], dtype=torch.float64)

    Reference:
        S. Wang, Y. Teng, P. Perdikaris, *Understanding and Mitigating Gradient Flow Pathologies in
        Physics-Informed Neural Networks*, SIAM Journal on Scientific Computing 2021, Algorithm 1.
    """

    needs: ClassVar[Needs] = "jacobian"
    summary: ClassVar[str] = (
        "Scales every loss to the largest entry of one's gradient, by a moving average: for PINNs."
    )
    reference: ClassVar[str] = "wang2021understanding"
    shown: ClassVar[tuple[str, ...]] = ("residual", "alpha", "against")
    no_metric: ClassVar[str] = "whose weights compare single entries of gradients"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        residual: int | str = 0,
        alpha: float = 0.1,
        against: Against = "max",
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        start = [1.0] * checks.number(objectives) if weights is None else weights
        super().__init__(params, objectives, weights=start, **options)
        if residual not in {*self.names, *range(self.objectives)} or isinstance(residual, bool):
            known = ", ".join(map(repr, self.names))
            raise BadValue(f"residual must be one of {known}, found {residual!r}")
        self.residual = residual
        self.alpha = checks.fraction("alpha", alpha)
        checks.one_of("against", against, get_args(Against))
        self.against: Against = against

    def weigh(self, evidence: Evidence) -> Tensor:
        """λ after its step towards this batch's ratios."""
        sizes = evidence.jacobian().abs().to(self.weights.device)
        means = evidence.finite(sizes.mean(-1, dtype=torch.float64))
        known = self.residual in self.names
        place = self.names.index(self.residual) if known else int(self.residual)
        own = sizes[..., place, :].amax(-1) if self.against == "max" else means[..., place]
        size = evidence.finite(own[..., None].to(means))
        return lra_step(self.weights, means.to(self.weights), size, place, self.alpha)
