"""MGDA: the weights whose combined gradient is shortest."""

from collections.abc import Iterable
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.maths.min_norm import min_norm, min_norm_batched, min_norm_pairs_on_host
from trimol.methods._gramian import GramianMethod, GramianOptions


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
        rho: ρ, the regularisation of λ towards uniform.

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
    shown: ClassVar[tuple[str, ...]] = ("rho",)

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: int,
        *,
        rho: float = 0.0,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.rho = checks.nonnegative("rho", rho)

    def solve(self, gramian: Tensor) -> Tensor:
        """λ*_ρ of the batch."""
        return mgda_weights(gramian, self.rho)
