"""MoDo: unbiased steps on the weights, by double sampling."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Unpack

from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths.projection import projected, projected_on_host
from trimol.methods.base import Checked, Method, Needs, Objectives, StepOptions


def modo_step(
    weights: Tensor, product: Tensor, gamma: float | Tensor, rho: float | Tensor = 0.0
) -> Tensor:
    """λ ← Π_Δ(λ − γ(G1ᵀ(G2 λ) + ρλ)): the λ update of Algorithm 2, on tensors (batchable)."""
    moved = weights - gamma * (product + rho * weights)
    return projected_on_host(moved) if moved.dim() == 2 else projected(moved)


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
        gamma: γ, the step size of λ. May be changed between steps (``modo.gamma = …``).
        rho: ρ, the regularisation of λ towards uniform.
        weights: λ0, on the simplex; uniform by default.
        draws: 2, or 3: then x moves on a third independent batch alone, the variant that the
            paper's proofs analyse. Or 1, for full-batch training: one loss vector, one forward, and
            the product is :math:`\nabla F^\top \nabla F\, \lambda` of that batch. On
            mini-batches that is *biased*: by :math:`E[N^\top N] \lambda`, N the noise of the
            gradients, which adds to each objective's entry as much as its own gradient is noisy.
        simultaneous: Move x with λ_t while λ_{t+1} is computed. The backward that the product
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
    shown: ClassVar[tuple[str, ...]] = ("gamma", "rho")
    gamma = Checked(checks.nonnegative)
    draws: int = 2

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        gamma: float = 0.01,
        rho: float = 0.0,
        weights: Tensor | Sequence[float] | None = None,
        draws: int = 2,
        simultaneous: bool = False,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=checks.simplex(weights, objectives), **options)
        if draws not in (1, 2, 3):
            raise BadValue(f"draws must be 1, 2 or 3, found {draws!r}")
        if simultaneous and draws == 3:
            raise BadValue(
                "simultaneous must be False with draws=3: x moves on the third batch, whose "
                "gradient the product does not give"
            )
        self.draws = draws
        self.simultaneous = simultaneous
        self.gamma = gamma
        self.rho = checks.nonnegative("rho", rho)

    @property
    def due(self) -> bool:
        """As for every method; with γ = 0 the weights never move."""
        return super().due and self.gamma > 0

    def weigh(self, evidence: Evidence) -> Tensor:
        """λ_{t+1}, from the first two draws, or twice the only one."""
        product = evidence.product(self.weights, keep_gradient=self.simultaneous)
        return modo_step(self.weights, product.to(self.weights), self.gamma, self.rho)

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves on the mean of both draws, on the third one alone, or on the only one."""
        used = slice(2, None) if self.draws > 2 else slice(None)
        return evidence.scalar(before if self.simultaneous else after, used)
