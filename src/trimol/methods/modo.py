"""MoDo: unbiased steps on the weights, by double sampling."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths.projection import projected, projected_on_host
from trimol.methods.base import Method, Needs, Objectives, Range, State, StepOptions

Gamma = float | Literal["auto"]
# With γ = "auto": how far λ goes at most in its first step, how the running mean forgets, and the
# least that it may be, relative to the largest it was (where gradients vanish, γ must not grow).
_FIRST, _MEMORY, _FLOOR = 0.3, 0.99, 1e-3
_REMEMBERED = ("scale", "largest", "updates")


def modo_step(
    weights: Tensor,
    product: Tensor,
    gamma: float | Tensor,
    rho: float | Tensor = 0.0,
    project: Callable[[Tensor], Tensor] = projected,
) -> Tensor:
    """λ ← Π_Δ(λ − γ(G1ᵀ(G2 λ) + ρλ)): the λ update of Algorithm 2, on tensors (batchable)."""
    return project(weights - gamma * (product + rho * weights))


def _automatic(scale: Tensor, largest: Tensor, updates: Tensor) -> Tensor:
    """γ_t = c / (√t ŝ_t): from what the steps before t saw, so that the step stays unbiased.

    Args:
        scale: The running mean of the products' lengths, as `_remembered` keeps it.
        largest: The largest that its unbiased value ŝ was.
        updates: How many steps made it; with none, γ is zero.
    """
    size = torch.maximum(_unbiased(scale, updates), _FLOOR * largest)
    gamma = _FIRST / (updates.clamp_min(1).sqrt() * size)
    return torch.where(size > 0, gamma, 0.0)


def _remembered(
    scale: Tensor, largest: Tensor, updates: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return these three after one more step, whose slope G1ᵀ(G2 λ) + ρλ is given (batchable).

    The whole length counts, not only the part along the simplex that moves λ: where the products
    of all objectives are nearly equal, what tells them apart is noise, and λ then moves little.
    """
    seen = torch.linalg.vector_norm(slope, dim=-1)
    scale, updates = _MEMORY * scale + (1 - _MEMORY) * seen, updates + 1
    return scale, torch.maximum(largest, _unbiased(scale, updates)), updates


def _unbiased(scale: Tensor, updates: Tensor) -> Tensor:
    """A running mean that began at zero, without the share that the zero still has."""
    return scale / (1 - _MEMORY ** updates.clamp_min(1))


class MoDo(Method):
    r"""Stochastic multi-objective gradient with double sampling.

    .. math::
        \lambda_{t+1} &= \Pi_{\Delta^M}\big(\lambda_t - \gamma\,
            (\nabla F_{z_1}(x_t)^\top \nabla F_{z_2}(x_t) + \rho I)\, \lambda_t\big) \\
        x_{t+1} &= x_t - \alpha\, \tfrac12 \big(\nabla F_{z_1}(x_t) + \nabla F_{z_2}(x_t)\big)\,
            \lambda_{t+1}

    with :math:`\gamma` = ``gamma``, :math:`\rho` = ``rho``, :math:`\lambda_0` = ``weights``, and
    two independent mini-batches z1, z2: the losses of each are one argument of the call. α is the
    optimizer's learning rate. γ = 0 is static weighting; a large γ comes close to MGDA.

    The product costs one backward and one forward-mode pass, whatever M: no Jacobian is formed.

    Args:
        gamma: γ, the step size of λ. ``"auto"`` needs no tuning and no unit: λ's path is the same
            whatever all losses are multiplied by (for ρ = 0). Then
            :math:`\gamma_t = 0.3 / (\sqrt t\, \hat s_t)` with :math:`\hat s_t` a running mean, over
            the steps before, of the length of :math:`\nabla F_{z_1}^\top \nabla F_{z_2} \lambda`: λ
            goes at most about 0.3/√t in step t. The first step leaves λ as it is, to learn the
            scale. A number, as in the paper, may be changed between steps (``modo.gamma = …``); it
            has the unit of one over a squared loss: losses a hundred times larger take a γ ten
            thousand times smaller.
        rho: ρ, the regularisation of λ towards uniform.
        weights: λ0, on the simplex; uniform by default.
        draws: 2, or 3: then x moves on a third independent batch alone, the variant that the
            paper's proofs analyse. Or 1, for full-batch training: one loss vector, one forward, and
            the product is :math:`\nabla F^\top \nabla F\, \lambda` of that batch. On
            mini-batches that is *biased*: by :math:`E[N^\top N] \lambda`, N the noise of the
            gradients, which adds to each objective's entry as much as its own gradient is noisy.
        simultaneous: Move x with λₜ while λₜ₊₁ is computed. The backward that the product
            needs is then that of the x step too: ``backward()`` has only the first draw left.
        every: Compute new weights every so many steps; the steps between need one loss vector.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().sum(), (x + z).square().sum()])
        >>> modo = trimol.MoDo([x], objectives=2, gamma=0.01)
        >>> modo(losses(1.0), losses(1.5)).backward()
        >>> modo.weights
        tensor([0.5800, 0.4200], dtype=torch.float64)

    Reference:
        L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
        Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, Algorithm 2.
    """

    needs: ClassVar[Needs] = "product"
    summary: ClassVar[str] = (
        "Unbiased steps on the weights by double sampling, at a cost that does not grow with M."
    )
    reference: ClassVar[str] = "chen2023three"
    moved_by: ClassVar[str | None] = "gamma"
    shown: ClassVar[tuple[str, ...]] = ("gamma", "rho")
    search: ClassVar[Mapping[str, Range]] = {"gamma": (1e-3, 10.0)}
    draws: int = 2
    scale: Tensor
    largest: Tensor
    updates: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        gamma: Gamma = "auto",
        rho: float = 0.0,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        draws: int = 2,
        simultaneous: bool = False,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=checks.simplex(weights, objectives), **options)
        if draws not in (1, 2, 3):
            raise BadValue(f"draws must be 1, 2 or 3, found {draws!r}")
        if checks.flag("simultaneous", simultaneous) and draws == 3:
            raise BadValue(
                "simultaneous must be False with draws=3: x moves on the third batch, whose "
                "gradient the product does not give"
            )
        self.draws = draws
        self.simultaneous = simultaneous
        if gamma == "auto":
            self.carry(**{name: self.weights.new_zeros(()) for name in _REMEMBERED})
        self.gamma = gamma
        self.rho = checks.nonnegative("rho", rho)

    @property
    def gamma(self) -> Gamma:
        """γ as it was given."""
        given: Gamma = vars(self)["gamma"]
        return given

    @gamma.setter
    def gamma(self, value: Gamma) -> None:
        if isinstance(value, str):
            if value != "auto":
                raise BadValue(f"gamma must be 'auto' or a number, found {value!r}")
            if "scale" not in self._buffers:
                raise BadValue("gamma must be 'auto' from the start, found it set afterwards")
            vars(self)["gamma"] = value
        else:
            vars(self)["gamma"] = checks.nonnegative("gamma", value)

    @property
    def due(self) -> bool:
        """As for every method; with γ = 0 the weights never move."""
        return super().due and (isinstance(self.gamma, str) or self.gamma > 0)

    @property
    def rate(self) -> float | Tensor:
        """γ of the next step: what was given, or what ``"auto"`` has come to."""
        if not isinstance(self.gamma, str):
            return self.gamma
        return _automatic(self.scale, self.largest, self.updates)[..., None]

    def weigh(self, evidence: Evidence) -> Tensor | State:
        """λₜ₊₁, from the first two draws, or twice the only one."""
        product = evidence.product(self.weights, keep_gradient=self.simultaneous).to(self.weights)
        weights = modo_step(self.weights, product, self.rate, self.rho, projected_on_host)
        if not isinstance(self.gamma, str):
            return weights
        slope = product + self.rho * self.weights
        seen = _remembered(self.scale, self.largest, self.updates, slope)
        return {"weights": weights, **dict(zip(_REMEMBERED, seen, strict=True))}

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves on the mean of both draws, on the third one alone, or on the only one."""
        used = slice(2, None) if self.draws > 2 else slice(None)
        return evidence.scalar(before if self.simultaneous else after, used)
