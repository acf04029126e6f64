"""MGDA: the weights whose combined gradient is shortest."""

from collections.abc import Iterable
from typing import ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths._by_products import Approach, approach, min_norm_gap
from trimol.maths._numerics import Array, float64
from trimol.maths.min_norm import min_norm, min_norm_batched, min_norm_pairs_on_host
from trimol.methods._gramian import GramianMethod, GramianOptions, of_steps
from trimol.methods.base import Objectives, State


def mgda_weights(gramian: Tensor, rho: float | Tensor = 0.0) -> Tensor:
    """λ*_ρ in float64, whatever the dtype of the Gramian, (…, M, M); ρ is a number, or (…, 1)."""
    if isinstance(rho, Tensor):
        gramian = gramian + rho[..., None] * torch.eye(gramian.shape[-1]).to(gramian)
        rho = 0.0
    if gramian.dim() == 2:
        weights = min_norm(gramian, rho).double()
        return weights / weights.sum()  # to one in float64
    if gramian.shape[1:] == (2, 2) and gramian.device.type == "cpu":
        pairs = gramian.detach().double().numpy()
        return torch.from_numpy(min_norm_pairs_on_host(pairs, rho))
    return min_norm_batched(gramian, rho)


Normalize = Literal["none", "l2", "loss", "loss+"]
Solver = Literal["exact", "products"]
# Where products were dearer than all gradients, how many steps to wait before they are tried again.
_LONGEST_WAIT = 63


def normalised(gramian: Tensor, evidence: Evidence, normalize: Normalize) -> Tensor:
    """The Gramian of ∇f_m / n_m, n_m = ‖∇f_m‖ (``"l2"``), f_m (``"loss"``) or both (``"loss+"``).

    A gradient of zero is left as it is. With an optimizer's momentum it is that of its steps.
    """
    momentum = evidence.momentum
    if normalize == "none":
        return of_steps(gramian, momentum)
    sizes = torch.ones_like(gramian[..., 0], dtype=torch.float64)
    if normalize in ("l2", "loss+"):
        norms = gramian.double().diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
        sizes = torch.where(norms > 0, norms, 1.0)
    if normalize in ("loss", "loss+"):
        sizes = sizes * _positive(evidence.values(), normalize).to(sizes)
    # One side after the other: the product of two sizes may be too large or too small a number.
    divided = gramian.double() / sizes[..., None] / sizes[..., None, :]
    if momentum is not None:
        momentum = momentum._replace(pull=momentum.pull.to(sizes) / sizes)
    return of_steps(divided, momentum)


def _positive(losses: Tensor, normalize: Normalize) -> Tensor:
    if (losses <= 0).any():
        raise BadValue(
            f"losses must be above 0 with normalize={normalize!r}, found {losses.min().item():g}"
        )
    return losses


class MGDA(GramianMethod):
    r"""(Regularised) multiple-gradient descent: the conflict-avoidant direction of this batch.

    .. math::
        \lambda^*_\rho(x) = \arg\min_{\lambda \in \Delta^M}
            \|\nabla F_z(x)\, \lambda\|^2 + \rho \|\lambda\|^2, \qquad
        x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda^*_\rho(x_t)

    The quadratic problem is solved exactly (:func:`trimol.simplex.min_norm`). On mini-batches this
    is the naive stochastic MGDA: the weights are a function of the same noise as the gradients, so
    that the direction is biased. One backward per objective.

    With ``solver="products"`` it is solved to a gap that is known, by products :math:`G\lambda`
    with :math:`G = \nabla F_z^\top \nabla F_z`: a backward and a forward-mode pass each, whatever
    M. It starts at what the steps before have told of G. With :math:`d = \nabla F_z\, \lambda` and
    ρ = 0, the gap is

    .. math::
        \text{gap} = 1 - \frac{\min_m (G \lambda)_m}{\lambda^\top G \lambda},
        \quad\text{so that}\quad
        \langle \nabla f_m, d \rangle \ge (1 - \text{gap})\, \|d\|^2, \quad
        \|d - d^*\|^2 \le \text{gap}\, \|d\|^2 :

    a gap below 1 conflicts with no objective, and gap 0 is MGDA. (With ρ, G is G + ρI.)
    ``info.gap`` is that of every step, ``info.products`` counts them. The first step, and each
    step in which products would cost more than M backwards, or where rounding would hide the gap
    (half precision, all but stationary points), is solved exactly; ``info.reason`` says so.

    Args:
        rho: ρ, the regularisation of λ towards uniform.
        solver: ``"exact"``, from all gradients, or ``"products"``, without them: cheaper from about
            a dozen objectives on.
        gap: With ``solver="products"``: the largest gap, above 0, at most 1.
        normalize: What the gradients are divided by where λ is computed (and nowhere else), as in
            the code of Sener and Koltun: ``"l2"`` their norms, ``"loss"`` the losses, ``"loss+"``
            both. The direction is then no longer the shortest, and may conflict.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> mgda = trimol.MGDA([x], objectives=2)
        >>> mgda(torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])).backward()
        >>> x.grad, mgda.weights
        (tensor([-1.,  1.]), tensor([0.7500, 0.2500], dtype=torch.float64))

    Reference:
        J.-A. Désidéri, *Multiple-gradient descent algorithm (MGDA) for multiobjective
        optimization*, 2012; ρ: Chen et al., *Three-Way Trade-Off in Multi-Objective Learning*,
        2023, Algorithm 1.
    """

    summary: ClassVar[str] = (
        "The shortest convex combination of the gradients: avoids conflict, biased on mini-batches."
    )
    reference: ClassVar[str] = "desideri2012multiple"
    shown: ClassVar[tuple[str, ...]] = ("rho", "normalize", "solver")
    guess: Tensor
    wait: Tensor
    pause: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        rho: float = 0.0,
        normalize: Normalize = "none",
        solver: Solver = "exact",
        gap: float = 0.1,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.rho = checks.nonnegative("rho", rho)
        checks.one_of("normalize", normalize, get_args(Normalize))
        self.normalize: Normalize = normalize
        checks.one_of("solver", solver, get_args(Solver))
        self.solver: Solver = solver
        self.gap = checks.fraction("gap", checks.positive("gap", gap))
        if solver == "products":
            self._check_products()
            size, never = self.objectives, torch.zeros((), dtype=torch.int64)
            self.carry(guess=self.weights.new_zeros(size, size), wait=never, pause=never)

    def _check_products(self) -> None:
        """Products of gradients are no products of anything else."""
        why = ""
        if self.normalize != "none":
            why = f"normalize={self.normalize!r}, which needs the gradients themselves"
        elif self.steps is not None and self.metric == "step":
            why = "an optimizer's metric: set metric='gradient' and guard=True, or no optimizer"
        elif self.weights.dim() > 1:
            why = "replicas, which have all gradients at hand"
        if why:
            raise BadValue(f"solver must be 'exact' with {why}, found 'products'")

    def weigh(self, evidence: Evidence) -> Tensor | State:
        """The weights of this batch's Gramian, of normalised gradients where that is asked for."""
        if self.solver == "exact":
            return self._exact(evidence)
        self._check_products()  # the optimizer may have been set since
        if reason := self._why_exact(evidence):
            return self._remembered(evidence, reason, pause=max(int(self.pause) - 1, 0))
        found = self._approached(evidence)
        evidence.findings["products"] = found.products
        if found.reached:
            return self._taken(evidence, found)
        del evidence.findings["product"]  # not that of the weights
        wait = min(2 * int(self.wait) + 1, _LONGEST_WAIT)
        reason = f"gap {self.gap:g} was not reached by {found.products} products"
        return self._remembered(evidence, reason, pause=wait, wait=wait)

    def _exact(self, evidence: Evidence) -> Tensor:
        """From all gradients."""
        gramian = normalised(evidence.gramian(chunk=self.chunk), evidence, self.normalize)
        weights = self.solve(gramian)
        if gramian.dim() == 2:
            evidence.findings["gap"] = min_norm_gap(_host(gramian), _host(weights), self.rho)
        return weights.to(self.weights)

    def _why_exact(self, evidence: Evidence) -> str:
        """Why this step is not solved by products; empty if it is."""
        if not self._pays(evidence, 1):
            return f"products cost no less than {self.objectives} backwards"
        if self.pause > 0:
            return f"products were dearer than {self.objectives} backwards of late"
        return "" if self.guess.any() else "no step yet that products could start from"

    def _pays(self, evidence: Evidence, products: int) -> bool:
        """Whether so many products cost less than all gradients."""
        return products * evidence.product_cost < self.objectives

    def _approached(self, evidence: Evidence) -> Approach:
        """The min-norm point, as far as products lead."""

        def product(weights: Array) -> Array:
            given = torch.from_numpy(weights).to(self.weights)
            return _host(evidence.product(given, keep_gradient=True))

        return approach(
            product,
            _host(self.guess),
            rho=self.rho,
            gap=self.gap,
            more=lambda count: self._pays(evidence, count + 1),
            rounding=lambda: evidence.coarsest,
        )

    def _taken(self, evidence: Evidence, found: Approach) -> State:
        """What a step is left with that products solved: try them again, and rather sooner."""
        evidence.findings["gap"] = found.gap
        return {
            "weights": torch.from_numpy(found.weights).to(self.weights),
            "guess": torch.from_numpy(found.surrogate.remembered()).to(self.guess),
            "wait": self.wait // 2,
        }

    def _remembered(
        self, evidence: Evidence, reason: str, *, pause: int, wait: int | None = None
    ) -> State:
        """What a step is left with that was solved exactly, and when to try products again."""
        weights, evidence.reason = self._exact(evidence), reason
        return {
            "weights": weights,
            "guess": evidence.findings["gramian"].to(self.guess),
            "wait": self.wait if wait is None else torch.full_like(self.wait, wait),
            "pause": torch.full_like(self.pause, pause),
        }

    def solve(self, gramian: Tensor) -> Tensor:
        """λ*_ρ of the batch."""
        return mgda_weights(gramian, self.rho)


def _host(tensor: Tensor) -> Array:
    array: Array = float64(tensor).cpu().numpy()
    return array
