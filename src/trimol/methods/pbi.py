"""PBI: down along a ray, with a penalty for being off it."""

from collections.abc import Iterable
from typing import ClassVar, Unpack

from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods._preferring import PreferringMethod, PreferringOptions, off_the_ray
from trimol.methods.base import Needs, Objectives


def pbi_weights(above: Tensor, prefer: Tensor, theta: float | Tensor) -> Tensor:
    """u + θ (y − (uᵀy)u)/d₂ of y = f − z: the gradient of d₁ + θ d₂ (batchable)."""
    ray, _, towards = off_the_ray(above, prefer)
    return ray + theta * towards


class PBI(PreferringMethod):
    r"""Penalty boundary intersection: how far along a ray, plus θ times how far from it.

    .. math::
        g(x) = d_1 + \theta\, d_2, \qquad d_1 = u^\top (f(x) - z), \qquad
        d_2 = \| f(x) - z - d_1 u \|, \qquad u \propto 1/p,\ \|u\| = 1

    with :math:`\theta` = ``theta``, the preference :math:`p` = ``prefer`` and the ideal point
    :math:`z` = ``ideal``. The paper's direction is u itself; here it is given by p as for the
    other methods, so that the ray is :math:`f_m - z_m \propto 1/p_m`.

    The larger θ, the nearer to the ray ends x. On a front that the ray crosses the minimiser is
    that crossing once θ is large enough for the front's slope there; with a small θ it lies off the
    ray. A minimiser need not be Pareto optimal: weights :math:`\lambda = \partial g/\partial f` may
    be negative, which raises a loss that is too low for its ray. One backward: plain training.

    Args:
        theta: θ, the price of a unit of distance from the ray; 5 in the paper.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> pbi = trimol.PBI([x], objectives=2, theta=2.0)
        >>> pbi(x.square()).backward()
        >>> pbi.weights  # (1, 1)/√2 + θ (−1, 1)/√2
        tensor([-0.7071,  2.1213], dtype=torch.float64)

    Reference:
        Q. Zhang, H. Li, *MOEA/D: A Multiobjective Evolutionary Algorithm Based on Decomposition*,
        IEEE Transactions on Evolutionary Computation 11, 2007.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Descent along a ray with a price for leaving it: near the preferred point of any front."
    )
    reference: ClassVar[str] = "zhang2007moead"
    shown: ClassVar[tuple[str, ...]] = ("theta",)
    prefers: ClassVar[str | None] = "prefer"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        theta: float = 5.0,
        **options: Unpack[PreferringOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.theta = checks.nonnegative("theta", theta)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The gradient of d₁ + θ d₂ with respect to the losses."""
        above, prefer = self.above_ideal(evidence), self.prefer.to(self.weights)
        return pbi_weights(above, prefer, self.theta)
