"""Tchebycheff: the largest of the weighted losses, for any point of the Pareto front."""

from typing import ClassVar

from torch import Tensor

from trimol.gradients import Evidence
from trimol.methods._preferring import PreferringMethod
from trimol.methods.base import Needs


def tchebycheff_weights(above: Tensor, prefer: Tensor) -> Tensor:
    """The subgradient of max p (f − z), given f − z: p on the largest, shared where several are."""
    terms = prefer * above
    worst = (terms == terms.amax(-1, keepdim=True)).to(prefer)
    return prefer * worst / worst.sum(-1, keepdim=True)


class Tchebycheff(PreferringMethod):
    r"""Tchebycheff scalarization: descend on the worst of the weighted losses, and only on it.

    .. math::
        g(x) = \max_m p_m (f_m(x) - z_m), \qquad
        \lambda_k = p_k \text{ for } k = \arg\max_m p_m (f_m(x) - z_m), \quad
        \lambda_m = 0 \text{ elsewhere}

    with :math:`p` = ``prefer`` and the ideal point :math:`z` = ``ideal``. Every Pareto optimal
    point minimises g for some p, on non-convex fronts too: the one on the ray
    :math:`f_m - z_m \propto 1/p_m`, where the front crosses that ray. A minimiser is weakly Pareto
    optimal at least.

    g has kinks exactly where it is least, so that steps of one size end up going to and fro across
    the ray: let the learning rate fall, or take `STCH`, which is smooth. Losses that tie share
    their weight. One backward: plain training.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> tchebycheff = trimol.Tchebycheff([x], objectives=2, prefer=[0.9, 0.1])
        >>> tchebycheff(x.square()).backward()
        >>> tchebycheff.weights
        tensor([0.9000, 0.0000], dtype=torch.float64)

    Reference:
        K. Miettinen, *Nonlinear Multiobjective Optimization*, Kluwer 1999, section 3.4.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Descent on the largest weighted loss: reaches any Pareto point, as its step size falls."
    )
    reference: ClassVar[str] = "miettinen1999nonlinear"
    prefers: ClassVar[str | None] = "prefer"

    def weigh(self, evidence: Evidence) -> Tensor:
        """p of the worst loss."""
        return tchebycheff_weights(self.above_ideal(evidence), self.prefer.to(self.weights))
