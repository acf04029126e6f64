"""GradVac: gradients turned until their cosines are what they usually are."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import GramianOptions, each
from trimol.methods.base import Objectives, Range, State
from trimol.methods.pcgrad import PCGrad

# A gradient that is to have a cosine of one with another would need an infinite share of it.
_LEAST_SINE = 1e-8


def gradvac_step(
    gramian: Tensor, targets: Tensor, order: npt.NDArray[np.int64], beta: float
) -> Tensor:
    """The weights of the sum of the turned gradients, above the new targets: (M + 1) × M, float64.

    Args:
        gramian: The M×M inner products of the gradients.
        targets: φ̂: row i holds the cosines that gᵢ has had with the others, on average.
        order: Row i holds all objectives, in the order in which gᵢ is turned towards them.
        beta: β, the step size of φ̂.
    """
    G, goal = checked_gramian(gramian), targets.cpu().numpy().copy()
    norms, rows = np.sqrt(G.diagonal()), np.arange(len(G))
    weights, inner = np.eye(len(G)), G.copy()  # of each turned gᵢ: weights, products with every gⱼ
    for others in order.T:
        length = np.sqrt(np.maximum((weights * inner).sum(1), 0))
        both = length * norms[others]
        met = (others != rows) & (both > 0)  # a zero gradient has no angle
        cosine = np.clip(inner[rows, others] / np.where(met, both, 1), -1, 1)
        wanted = goal[rows, others]
        sines = np.sqrt(1 - cosine**2), np.maximum(np.sqrt(1 - wanted**2), _LEAST_SINE)
        turn = length * (wanted * sines[0] - cosine * sines[1])
        added = np.where(met & (cosine < wanted), turn, 0) / np.where(met, norms[others], 1)
        added = added / sines[1]
        weights[rows, others] += added
        inner += added[:, None] * G[others]
        goal[rows, others] += np.where(met, beta * (cosine - wanted), 0)
    return torch.from_numpy(np.vstack([weights.sum(0), goal]))


class GradVac(PCGrad):
    r"""Gradient vaccine: each gradient is turned until its cosines are not below the usual ones.

    .. math::
        g_i \leftarrow g_i + \frac{\|g_i\| \big(\hat\phi_{ij} \sqrt{1 - \phi_{ij}^2}
            - \phi_{ij} \sqrt{1 - \hat\phi_{ij}^2}\big)}{\|g_j\| \sqrt{1 - \hat\phi_{ij}^2}}\, g_j
            \quad \text{where } \phi_{ij} < \hat\phi_{ij}, \qquad
        \hat\phi_{ij} \leftarrow (1 - \beta)\, \hat\phi_{ij} + \beta\, \phi_{ij}

    for all j ≠ i in random order, :math:`\phi_{ij}` the cosine between the :math:`g_i` reached so
    far and the original :math:`g_j`; x moves along the sum. :math:`\beta` = ``beta``, and
    :math:`\hat\phi` = ``targets`` starts at zero: with β = 0 it stays there, and this is `PCGrad`.
    The orders are drawn from (``seed``, step). One backward per objective.

    The nearer :math:`\hat\phi` comes to one, the more of the other gradient it takes; sines below
    1e-8 count as that.

    Args:
        beta: β in [0, 1], the step size of the targets.
        seed: Of the random orders.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> gradvac = trimol.GradVac([x], objectives=2)
        >>> for slope in (1.0, 0.0):
        ...     x.grad = None
        ...     gradvac(torch.stack([x[0], slope * x[0] + x[1]])).backward()
        >>> gradvac.weights
        tensor([1.3780, 1.3780], dtype=torch.float64)

    Reference:
        Z. Wang, Y. Tsvetkov, O. Firat, Y. Cao, *Gradient Vaccine: Investigating and Improving
        Multi-task Optimization in Massively Multilingual Models*, ICLR 2021, Algorithm 1.
    """

    summary: ClassVar[str] = (
        "Each gradient turned towards the others until its cosines are not below the usual ones."
    )
    reference: ClassVar[str] = "wang2021gradient"
    shown: ClassVar[tuple[str, ...]] = ("beta", "seed")
    search: ClassVar[Mapping[str, Range]] = {}
    targets: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        beta: float = 0.5,
        seed: int = 0,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, seed=seed, **options)
        self.beta = checks.fraction("beta", beta)
        self.carry(targets=self.weights.new_zeros(self.objectives, self.objectives))

    def weigh(self, evidence: Evidence) -> State:
        """The weights of this batch's Gramian, and the targets after it."""
        gramian = evidence.gramian(chunk=self.chunk)
        found = each(
            lambda one, targets, seed, beta: gradvac_step(one, targets, self.order(seed), beta),
            [gramian, self.targets],
            self.seed,
            self.beta,
        ).to(self.weights)
        return {"weights": found[..., 0, :], "targets": found[..., 1:, :]}
