"""MoCo: weights from a moving average of the gradients."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.gradients._autocast import no_autocast
from trimol.maths.projection import projected
from trimol.methods._columns import Columns
from trimol.methods._gramian import of_steps
from trimol.methods.base import Checked, Method, Needs, Objectives, State, StepOptions
from trimol.methods.mgda import mgda_weights


def moco_step(
    weights: Tensor, gramian: Tensor, gamma: float | Tensor | None, rho: float | Tensor = 0.0
) -> Tensor:
    """λ from YᵀY: Π_Δ(λ − γ(YᵀY + ρI)λ), or the minimiser of ‖Yλ‖² + ρ‖λ‖² for γ = ``None``.

    Batchable: with (…, M) weights γ and ρ may be (…, 1).
    """
    if gamma is None:
        return mgda_weights(gramian, rho).to(weights)
    product = (gramian.to(weights) @ weights[..., None])[..., 0]
    return projected(weights - gamma * (product + rho * weights))


class MoCo(Method):
    r"""Multi-objective gradient correction: a tracker Y of the gradients takes the noise's bias.

    .. math::
        Y_{t+1} &= Y_t - \beta\, (Y_t - \nabla F_{z_t}(x_t)), \qquad Y_0 = \nabla F_{z_0}(x_0) \\
        \lambda_{t+1} &= \arg\min_{\lambda \in \Delta^M} \|Y_{t+1} \lambda\|^2 + \rho \|\lambda\|^2
            \quad\text{or}\quad
            \Pi_{\Delta^M}\big(\lambda_t - \gamma (Y_{t+1}^\top Y_{t+1} + \rho I) \lambda_t\big) \\
        x_{t+1} &= x_t - \alpha\, Y_{t+1} \lambda_{t+1}

    with :math:`\beta` = ``beta``, :math:`\rho` = ``rho`` and :math:`\gamma` = ``gamma``: ``None``
    is the exact minimiser, as it is stated below; a number is the projected step that both of its
    authors' repositories take (with ``zero_start``). The direction is Yλ, not a combination of this
    batch's gradients; the scalar is worth λᵀF all the same. β = 1 is MGDA. A step whose gradients
    are not finite leaves Y and λ as they are and hands these gradients on, for a ``GradScaler`` to
    see. One backward per objective, none for ``backward()``; memory for M gradients, kept in
    ``state_dict()``.

    Args:
        params: The parameters that the method weighs. One that is frozen keeps its part of Y.
        beta: β in [0, 1], the step size of the tracker. May be changed between steps.
        gamma: γ, the step size of λ; ``None`` for the exact minimiser.
        rho: ρ, the regularisation of λ towards uniform.
        zero_start: Y_0 = 0 instead of the first gradient.
        weights: λ0, on the simplex; uniform by default.
        every: Compute Y and λ every so many steps; the steps between move along this batch's
            gradients with the kept λ, for one backward.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().sum(), (x + z).square().sum()])
        >>> moco = trimol.MoCo([x], objectives=2, beta=0.5)
        >>> for z in (1.0, 3.0):
        ...     x.grad = None
        ...     moco(losses(z)).backward()
        >>> moco.tracker, x.grad
        (tensor([[-4., -2.],
                [ 4.,  6.]]), tensor([-1.,  1.]))

    Reference:
        H. Fernando, H. Shen, M. Liu, S. Chaudhury, K. Murugesan, T. Chen, *Mitigating Gradient
        Bias in Multi-objective Learning: A Provably Convergent Approach*, ICLR 2023; as stated in
        Chen et al., *Three-Way Trade-Off in Multi-Objective Learning*, 2023, Algorithm 4.
    """

    needs: ClassVar[Needs] = "jacobian"
    summary: ClassVar[str] = (
        "MGDA on a moving average of the gradients: little bias, memory for M gradients."
    )
    reference: ClassVar[str] = "fernando2023mitigating"
    shown: ClassVar[tuple[str, ...]] = ("beta", "gamma", "rho")
    beta = Checked(checks.fraction)
    tracker: Tensor
    seen: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        beta: float = 0.5,
        gamma: float | None = None,
        rho: float = 0.0,
        zero_start: bool = False,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=checks.simplex(weights, objectives), **options)
        self.beta = beta
        self.gamma = None if gamma is None else checks.nonnegative("gamma", gamma)
        self.rho = checks.nonnegative("rho", rho)
        self.zero_start = checks.flag("zero_start", zero_start)
        self.carry(
            tracker=Columns.empty(self.params, self.objectives),
            seen=torch.full((len(self.params),), zero_start),
        )

    def weigh(self, evidence: Evidence) -> State:
        """Track the gradients; λ of what is tracked."""
        rows = evidence.jacobian()
        columns = Columns(self.params)
        moved = self._moved(rows, columns)
        gramian = of_steps(evidence.finite(evidence.gram(moved)), evidence.momentum)
        return {
            "weights": moco_step(self.weights, gramian, self.gamma, self.rho),
            "tracker": columns.put(self.tracker, moved),
            "seen": self.seen | columns.live,
        }

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves along Yλ where this step tracked, along this batch's gradients elsewhere."""
        if after is before:
            return evidence.scalar(after)
        rows = Columns(self.params).of(self.tracker)
        with no_autocast():
            direction = (after.to(rows)[..., None, :] @ rows)[..., 0, :]
        return evidence.scalar_along(after, direction)

    def _moved(self, rows: Tensor, columns: Columns) -> Tensor:
        """Y + β(g − Y) in the columns that have gradients; g where it is the first."""
        tracker = columns.of(self.tracker)
        tracker = tracker.to(torch.promote_types(tracker.dtype, rows.dtype))
        beta = torch.as_tensor(self.beta, dtype=torch.float64)
        share = torch.where(self.seen, beta, 1.0)[..., columns.live].to(tracker)
        return tracker.lerp(rows.to(tracker), columns.spread(share)[..., None, :])
