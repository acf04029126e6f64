"""MGDA: the weights whose combined gradient is shortest."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.maths.min_norm import min_norm, min_norm_batched, min_norm_pairs_on_host
from trimol.methods._gramian import GramianMethod

if TYPE_CHECKING:
    from trimol.methods._replicated import Replicated, ReplicatedEvidence


def mgda_weights(gramian: Tensor, rho: float = 0.0) -> Tensor:
    """λ*_ρ of a Gramian, in float64 whatever its dtype, summing to one in float64."""
    found = min_norm(gramian, rho).double()
    return found / found.sum()


def mgda_weights_of_all(gramians: Tensor, rho: float | Tensor = 0.0) -> Tensor:
    """λ*_ρ of R Gramians at once, unchecked; ρ is one number, or R × 1."""
    if isinstance(rho, Tensor):
        gramians = gramians + rho[..., None] * torch.eye(gramians.shape[-1]).to(gramians)
        rho = 0.0
    if gramians.shape[-1] == 2 and gramians.device.type == "cpu":
        pairs = gramians.detach().double().numpy()
        return torch.from_numpy(min_norm_pairs_on_host(pairs, rho))
    return min_norm_batched(gramians, rho)


class MGDA(GramianMethod):
    r"""(Regularised) multiple-gradient descent: the conflict-avoidant direction of this batch.

    .. math::
        \lambda^*_\rho(x) = \arg\min_{\lambda \in \Delta^M}
            \|\nabla F_z(x)\, \lambda\|^2 + \rho \|\lambda\|^2, \qquad
        x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda^*_\rho(x_t)

    The quadratic problem is solved exactly (:func:`trimol.simplex.min_norm`). On mini-batches this
    is the naive stochastic MGDA: the weights are a function of the same noise as the gradients, so
    that the direction is biased. One backward per objective.

    Args:
        params: The parameters that the method weighs.
        objectives: M, the number of losses.
        rho: ρ, the regularisation of λ towards uniform.
        weights: λ before the first step; matters only where that step's gradients are not finite.
        every: Compute new weights every so many steps.
        chunk: How many gradients to hold at once; see :func:`trimol.gradients.gramian`.

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

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: int,
        *,
        rho: float = 0.0,
        weights: Tensor | Sequence[float] | None = None,
        every: int = 1,
        chunk: int | None = None,
    ) -> None:
        super().__init__(params, objectives, weights=weights, every=every, chunk=chunk)
        self.rho = checks.nonnegative("rho", rho)

    def solve(self, gramian: Tensor) -> Tensor:
        """λ*_ρ of the batch."""
        return mgda_weights(gramian, self.rho)

    @classmethod
    def weigh_replicas(cls, replicas: "Replicated", evidence: "ReplicatedEvidence") -> Tensor:
        """λ*_ρ of every replica, all at once."""
        return mgda_weights_of_all(replicas.finite(evidence.gramian()), replicas.value("rho"))

    def extra_repr(self) -> str:
        """What ``print(method)`` shows in the brackets."""
        return f"{super().extra_repr()}, rho={self.rho:g}"
