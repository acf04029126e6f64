"""STCH: the smooth maximum of the losses, for any point of the Pareto front."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods._preferring import PreferringMethod, PreferringOptions
from trimol.methods.base import Needs, Objectives, Range


def stch_weights(losses: Tensor, prefer: Tensor, mu: float | Tensor) -> Tensor:
    """p softmax(p (f − z)/μ), given f − z: the gradient of the scalarization (batchable)."""
    high = prefer * losses
    return prefer * torch.softmax((high - high.amax(-1, keepdim=True)) / mu, -1)  # no overflow


class STCH(PreferringMethod):
    r"""Smooth Tchebycheff scalarization: descend on the worst loss, smoothly.

    .. math::
        g_\mu(x) = \mu \log \sum_m \exp\Big(\frac{p_m\, (f_m(x) - z_m)}{\mu}\Big), \qquad
        \nabla g_\mu(x) = \sum_m \lambda_m \nabla f_m(x), \quad
        \lambda = p \odot \operatorname{softmax}\Big(\frac{p \odot (f(x) - z)}{\mu}\Big)

    with :math:`\mu` = ``mu``, the preference :math:`p` = ``prefer`` and the ideal point :math:`z`
    = ``ideal`` (z* in the paper, less a small ε). :math:`g_\mu` is within μ log M above
    :math:`\max_m p_m (f_m - z_m)`: for small μ its minimiser is the Pareto point on the ray
    :math:`f_m - z_m \propto 1/p_m` where there is one, on non-convex fronts too. A minimiser for
    any μ, with p > 0, is Pareto optimal.

    One backward: plain training. On mini-batches λ is a function of the batch's noise.

    Args:
        mu: μ, the smoothing, in units of p·f: the smaller, the nearer to the maximum.
        prefer: p, all above zero; ones by default. The paper's sums to one: dividing ``prefer`` and
            ``mu`` both by M gives the same weights divided by M.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> stch = trimol.STCH([x], objectives=2, mu=1.0)
        >>> stch(x.square()).backward()
        >>> stch.weights
        tensor([0.0474, 0.9526], dtype=torch.float64)

    Reference:
        X. Lin, X. Zhang, Z. Yang, F. Liu, Z. Wang, Q. Zhang, *Smooth Tchebycheff Scalarization for
        Multi-Objective Optimization*, ICML 2024.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Descent on a smooth maximum of the losses: reaches any Pareto point, on non-convex fronts "
        "too."
    )
    reference: ClassVar[str] = "lin2024smooth"
    shown: ClassVar[tuple[str, ...]] = ("mu",)
    search: ClassVar[Mapping[str, Range]] = {"mu": (0.03, 1.0)}

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        mu: float = 0.1,
        **options: Unpack[PreferringOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.mu = checks.positive("mu", mu)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The gradient of g_μ with respect to the losses."""
        above, prefer = self.above_ideal(evidence), self.prefer.to(self.weights)
        return stch_weights(above, prefer, self.mu)
