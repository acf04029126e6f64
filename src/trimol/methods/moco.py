"""MoCo: weights from a moving average of the gradients."""

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence, NonFinite
from trimol.gradients._rows import gram
from trimol.maths.projection import projected
from trimol.methods.base import Method, Needs
from trimol.methods.mgda import mgda_weights, mgda_weights_of_all

if TYPE_CHECKING:
    from trimol.methods._replicated import Replicated, ReplicatedEvidence


def moco_step(
    weights: Tensor, gramian: Tensor, gamma: float | Tensor | None, rho: float | Tensor = 0.0
) -> Tensor:
    """λ from YᵀY: Π_Δ(λ − γ(YᵀY + ρI)λ), or the minimiser of ‖Yλ‖² + ρ‖λ‖² for γ = ``None``.

    Batchable: with R × M weights γ and ρ may be R × 1.
    """
    if gamma is None and gramian.dim() > 2:
        return mgda_weights_of_all(gramian, rho)
    if gamma is None:
        return mgda_weights(gramian, float(rho)).to(weights)
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
    is the paper's exact λ, a number the projected step of its authors' code (as is
    ``zero_start``). The direction is Yλ, not a combination of this batch's gradients; the scalar is
    worth λᵀF all the same. β = 1 is MGDA. A step whose gradients are not finite leaves Y and λ as
    they are and hands these gradients on, for a ``GradScaler`` to see. One backward per objective,
    none for ``backward()``; memory for M gradients, kept in ``state_dict()``.

    Args:
        params: The parameters that the method weighs. One that is frozen keeps its part of Y.
        objectives: M, the number of losses.
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
    tracker: Tensor
    seen: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: int,
        *,
        beta: float = 0.5,
        gamma: float | None = None,
        rho: float = 0.0,
        zero_start: bool = False,
        weights: Tensor | Sequence[float] | None = None,
        every: int = 1,
    ) -> None:
        super().__init__(
            params, objectives, weights=checks.simplex(weights, objectives), every=every
        )
        self.beta = beta
        self.gamma = None if gamma is None else checks.nonnegative("gamma", gamma)
        self.rho = checks.nonnegative("rho", rho)
        self.zero_start = zero_start
        self._along: Tensor | None = None
        # At least in float32: small β(g − Y) would be lost in less.
        dtype = functools.reduce(torch.promote_types, (p.dtype for p in self.params), torch.float32)
        size, device = sum(p.numel() for p in self.params), self.params[0].device
        empty = torch.zeros(objectives, size, dtype=dtype, device=device)
        self.register_buffer("tracker", empty)
        self.register_buffer("seen", torch.full((len(self.params),), zero_start))

    @property
    def beta(self) -> float:
        """β, the step size of the tracker."""
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta = checks.fraction("beta", value)

    def weigh(self, evidence: Evidence) -> Tensor:
        """Track the gradients; λ of what is tracked. Nothing changes if something is not finite."""
        rows = evidence.jacobian()
        live = torch.tensor([p.requires_grad for p in self.params])
        tracker, moved = self._tracked(rows, live)
        gramian = gram(moved)
        if not gramian.isfinite().all():
            raise NonFinite
        weights = moco_step(self.weights, gramian, self.gamma, self.rho)
        self.tracker, self.seen = tracker, self.seen | live
        self._along = (weights.to(moved) @ moved).to(rows)
        return weights

    def scalar(self, evidence: Evidence, weights: Tensor) -> Tensor:
        """x moves along Yλ where this step tracked, along this batch's gradients elsewhere."""
        along, self._along = self._along, None
        if along is None:
            return evidence.scalar(weights)
        return evidence.scalar_along(weights, along)

    @classmethod
    def weigh_replicas(cls, replicas: "Replicated", evidence: "ReplicatedEvidence") -> Tensor:
        """Track the gradients of all replicas at once; λ of what is tracked."""
        tracker = _tracked_by_all(replicas, evidence.jacobian())
        wide = tracker.double()
        gramians = replicas.finite(wide @ wide.mT)
        replicas.keep(tracker=tracker, seen=torch.ones(replicas.replicas, dtype=torch.bool))
        gamma, rho = replicas.value("gamma"), replicas.value("rho")
        return moco_step(replicas.weights, gramians, gamma, rho)

    @classmethod
    def move_replicas(
        cls, replicas: "Replicated", evidence: "ReplicatedEvidence", weights: Tensor
    ) -> Tensor:
        """Along Yλ, or this batch's gradients where these were not finite and not tracked."""
        rows = replicas.state["tracker"]
        if replicas.broken is not None:
            rows = torch.where(replicas.broken[:, None, None], evidence.jacobian().to(rows), rows)
        return (weights.to(rows)[:, None] @ rows)[:, 0]

    def reset(self) -> Self:
        """Back to the state of a new instance."""
        self.tracker = torch.zeros_like(self.tracker)
        self.seen = torch.full_like(self.seen, self.zero_start)
        return super().reset()

    def extra_repr(self) -> str:
        """What ``print(method)`` shows in the brackets."""
        return f"{super().extra_repr()}, beta={self.beta:g}, gamma={self.gamma}, rho={self.rho:g}"

    def _tracked(self, rows: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
        """The new Y, and those of its columns that x moves along: no frozen parameters."""
        tracker = self.tracker.clone()
        sizes = [p.numel() for p in self.params]
        blocks = tracker.split(sizes, dim=1)
        places = live.nonzero()[:, 0].tolist()
        arrived = rows.to(tracker).split([sizes[i] for i in places], dim=1)
        for i, gradient in zip(places, arrived, strict=True):
            blocks[i].lerp_(gradient, self.beta if self.seen[i] else 1.0)
        if live.all():
            return tracker, tracker
        return tracker, torch.cat([blocks[i] for i in places], dim=1)


def _tracked_by_all(replicas: "Replicated", rows: Tensor) -> Tensor:
    """The new Y of every replica, R × M × d, at least in float32."""
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    if not replicas.state:
        start = torch.full((replicas.replicas,), replicas.value("zero_start"))
        replicas.state |= {"tracker": torch.zeros_like(rows), "seen": start}
    beta = torch.as_tensor(replicas.value("beta"), dtype=torch.float64).to(rows)
    share = torch.where(replicas.state["seen"][:, None], beta, 1.0)
    return replicas.state["tracker"].lerp(rows, share[..., None])
