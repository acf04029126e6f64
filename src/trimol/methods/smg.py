"""SMG: MGDA on batches that grow, so that its bias vanishes."""

from typing import ClassVar

from torch import Tensor

from trimol.methods._gramian import ShortestMethod
from trimol.methods.mgda import mgda_weights


class SMG(ShortestMethod):
    r"""Stochastic multi-gradient: MGDA without regularisation, on a batch that grows like O(t).

    .. math::
        \lambda_t = \arg\min_{\lambda \in \Delta^M} \|\nabla F_{Z_t}(x_t)\, \lambda\|^2, \qquad
        x_{t+1} = x_t - \alpha \nabla F_{Z_t}(x_t)\, \lambda_t, \qquad |Z_t| = O(t)

    The weights are those of MGDA with ρ = 0; what makes it SMG is the batch :math:`Z_t` whose
    losses it is given. :class:`trimol.data.GrowingBatches` draws such batches. Fed with batches
    of constant size, it is the naive, biased stochastic MGDA. One backward per objective.

    Example:
        >>> import torch, trimol
        >>> data = torch.linspace(-1, 1, 100)
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> smg, sgd = trimol.SMG([x], objectives=2), torch.optim.SGD([x], lr=0.1)
        >>> for [batch] in trimol.data.GrowingBatches(data, 4, growth=2, steps=40).sets():
        ...     z = data[batch]
        ...     smg(torch.stack([(x - z).square().mean(), (x - z - 1).square().mean()])).backward()
        ...     sgd.step(); sgd.zero_grad()
        >>> bool(-0.01 < x < 1.01)  # the Pareto set is [0, 1]
        True

    Reference:
        S. Liu, L. N. Vicente, *The stochastic multi-gradient algorithm for multi-objective
        optimization and its application to supervised machine learning*, 2021; Chen et al.,
        *Three-Way Trade-Off in Multi-Objective Learning*, 2023, Algorithm 3.
    """

    summary: ClassVar[str] = (
        "MGDA for batches that grow with the step (data.GrowingBatches): its bias vanishes."
    )
    reference: ClassVar[str] = "liu2021stochastic"
    growth: ClassVar[float] = 1.0  # samples a step; asked by `trimol.methods.growth`

    def solve(self, gramian: Tensor) -> Tensor:
        """The shortest combination of this batch's gradients."""
        return mgda_weights(gramian)
