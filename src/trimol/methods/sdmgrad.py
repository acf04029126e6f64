"""SDMGrad: conflict avoided near a target direction, by double sampling."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.maths.projection import projected
from trimol.methods.base import Method, Needs, Objectives, Range, State, StepOptions


def sdmgrad_step(w: Tensor, product: Tensor, gamma: float | Tensor) -> Tensor:
    """w ← Π_Δ(w − γ G1ᵀ(G2(w + λ w̃))): the w update of Algorithm 1, on tensors (batchable)."""
    return projected(w - gamma * product)


def sdmgrad_normalised(cross: Tensor) -> Tensor:
    """G1ᵀG2 over the square of the mean length of a gradient, √|(G1ᵀG2)_mm| (batchable).

    Of independent batches a product of one objective's two gradients may be negative, where noise
    is larger than the gradient: its size is taken. Zero gradients stay as they are.
    """
    lengths = cross.diagonal(dim1=-2, dim2=-1).abs().sqrt().mean(-1)
    scale = torch.where(lengths > 0, lengths, 1.0)[..., None, None]
    return cross / scale / scale


def sdmgrad_mix(w: Tensor, prefer: Tensor, lam: float | Tensor) -> Tensor:
    """(w + λ w̃)/(1 + λ): the weights that x moves with."""
    return (w + lam * prefer) / (1 + lam)


class SDMGrad(Method):
    r"""Stochastic direction-oriented multi-objective gradient descent.

    .. math::
        w_{t+1} &= \Pi_{\Delta^M}\big(w_t - \gamma\, \nabla F_{z_1}(x_t)^\top
            \nabla F_{z_2}(x_t)\, (w_t + \lambda \tilde w)\big) \\
        x_{t+1} &= x_t - \alpha\, \nabla F_{z_3}(x_t)\,
            \frac{w_{t+1} + \lambda \tilde w}{1 + \lambda}

    with :math:`\gamma` = ``gamma`` (the paper's β), :math:`\lambda` = ``lam`` and
    :math:`\tilde w` = ``prefer``: unbiased steps on ½‖∇F(w + λw̃)‖², and three independent
    mini-batches, the losses of each one argument of the call. λ = 0 is MoDo with three draws; a
    large λ comes to static weighting by w̃. The paper's Algorithm 1 leaves out the division by
    1 + λ, which its experiments (and this file) have: it only scales the learning rate.

    This is Algorithm 1. The authors' experiments take more and larger steps on w for each on x,
    with momentum, on a product that does not depend on the losses' scale:
    ``SDMGrad(params, M, gamma=10, inner=20, momentum=0.5, normalize=True)``. Otherwise w hardly
    leaves its start where gradients are short: choose ``gamma`` for their size.

    The product costs one backward and one forward-mode pass, whatever M, for each step on w; with
    ``normalize``, or where there are more steps than objectives, M of them are taken in all.

    Args:
        gamma: γ, the step size of w.
        lam: λ, how strongly x is held to the target direction ∇F w̃.
        prefer: w̃, on the simplex; uniform by default.
        inner: S, the number of steps on w for each on x, all on the same two batches.
        momentum: Of the steps on w, from rest at every x: v ← momentum · v + product.
        normalize: Whether the product is divided by the square of the gradients' mean length, so
            that γ does not depend on the losses' scale.
        weights: w0, on the simplex; uniform by default.
        every: Compute new weights every so many steps; the steps between need one loss vector.

    Attributes:
        w: The w of the update; ``weights`` holds (w + λw̃)/(1 + λ).

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([2.0, 0.0], requires_grad=True)
        >>> def losses(z): return torch.stack([(x - z).square().sum(), (x + z).square().sum()])
        >>> sdmgrad = trimol.SDMGrad([x], objectives=2, gamma=0.01, lam=1.0)
        >>> sdmgrad(losses(1.0), losses(1.5), losses(2.0)).backward()
        >>> sdmgrad.weights
        tensor([0.5800, 0.4200], dtype=torch.float64)

    Reference:
        P. Xiao, H. Ban, K. Ji, *Direction-oriented Multi-objective Learning: Simple and Provable
        Stochastic Algorithms*, NeurIPS 2023, Algorithm 1.
    """

    needs: ClassVar[Needs] = "product"
    summary: ClassVar[str] = (
        "Unbiased steps towards conflict avoidance near a target direction; cost flat in M."
    )
    reference: ClassVar[str] = "xiao2023direction"
    moved_by: ClassVar[str | None] = "gamma"
    shown: ClassVar[tuple[str, ...]] = (
        "gamma",
        "lam",
        "inner",
        "momentum",
        "normalize",
    )
    search: ClassVar[Mapping[str, Range]] = {"lam": (0.03, 3.0)}
    draws: int = 3
    w: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        gamma: float = 0.01,
        lam: float = 0.3,
        prefer: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        inner: int = 1,
        momentum: float = 0.0,
        normalize: bool = False,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        start = checks.simplex(weights, objectives)
        target = checks.simplex(prefer, objectives, "prefer")
        mixed = sdmgrad_mix(start, target, checks.nonnegative("lam", lam))
        super().__init__(params, objectives, weights=mixed, **options)
        self.gamma = checks.nonnegative("gamma", gamma)
        self.lam, self.inner = float(lam), checks.count("inner", inner)
        self.momentum = checks.fraction("momentum", momentum)
        self.normalize = checks.flag("normalize", normalize)
        self.prefer = target
        self.carry(w=start.to(self.weights.device))

    def weigh(self, evidence: Evidence) -> State:
        """(w + λw̃)/(1 + λ) after the steps on w, from the first two draws."""
        w, prefer = self.w, self.prefer.to(self.w)
        product, velocity = self._product(evidence), torch.zeros_like(w)
        for _ in range(self.inner):
            velocity = self.momentum * velocity + product(w + self.lam * prefer)
            w = sdmgrad_step(w, velocity, self.gamma)
        return {"weights": sdmgrad_mix(w, prefer, self.lam), "w": w}

    def _product(self, evidence: Evidence) -> Callable[[Tensor], Tensor]:
        """λ ↦ G1ᵀ(G2 λ): asked for each λ, or by G1ᵀG2 where that is cheaper or is normalised."""
        if not self.normalize and self.inner <= self.objectives:
            return lambda weights: evidence.product(weights).to(weights)
        cross = evidence.cross(self.w)
        if self.normalize:
            cross = sdmgrad_normalised(cross)
        return lambda weights: (cross @ weights[..., None])[..., 0]

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves on the third draw alone."""
        return evidence.scalar(after, slice(2, None))
