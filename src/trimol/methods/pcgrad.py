"""PCGrad: gradient surgery, in a random order."""

from collections.abc import Iterable
from typing import ClassVar, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import GramianMethod, GramianOptions, each
from trimol.methods.base import Objectives, State


def pcgrad_weights(
    gramian: Tensor, order: npt.NDArray[np.int64], pull: Tensor | None = None
) -> Tensor:
    """The weights of the sum of the projected gradients, in float64.

    Args:
        gramian: The M×M inner products of the gradients.
        order: Row i holds all objectives, in the order in which the conflicts of gᵢ are removed.
        pull: Gᵀk, where a step has a part k that is decided before: each gradient has 1/M of it.
    """
    G = checked_gramian(gramian)
    share = 0.0 if pull is None else pull.cpu().numpy() / len(G)
    squared = G.diagonal() + (G.diagonal() == 0)  # a zero gradient conflicts with none
    rows = np.arange(len(G))
    weights, inner = np.eye(len(G)), G + share  # of gᵢ^PC: its weights, its product with every gⱼ
    for others in order.T:
        removed = np.where(others == rows, 0.0, inner[rows, others].clip(max=0)) / squared[others]
        weights[rows, others] -= removed
        inner -= removed[:, None] * G[others]
    return torch.from_numpy(weights.sum(0))


class PCGrad(GramianMethod):
    r"""Projecting conflicting gradients: each gradient loses what opposes the others.

    .. math::
        g_i^{PC} \leftarrow g_i^{PC} - \frac{\min(0,\, g_j^\top g_i^{PC})}{\|g_j\|^2}\, g_j
        \quad \text{for all } j \ne i \text{ in random order, from } g_i^{PC} = g_i, \qquad
        x_{t+1} = x_t - \alpha \sum_i g_i^{PC}

    Where nothing conflicts this is the sum of the losses (not their mean). With more than two
    objectives a later projection may bring back an earlier conflict: the direction does not
    promise to be free of it. The orders are drawn from (``seed``, step), so that a run that is
    resumed, or spread over processes, sees the same ones. One backward per objective.

    Args:
        seed: Of the random orders.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> pcgrad = trimol.PCGrad([x], objectives=2)
        >>> pcgrad(torch.stack([x[0], x[1] - x[0]])).backward()
        >>> x.grad, pcgrad.weights
        (tensor([0.5000, 1.5000]), tensor([2.0000, 1.5000], dtype=torch.float64))

    Reference:
        T. Yu, S. Kumar, A. Gupta, S. Levine, K. Hausman, C. Finn, *Gradient Surgery for Multi-Task
        Learning*, NeurIPS 2020, Algorithm 1.
    """

    summary: ClassVar[str] = (
        "The sum of the gradients, each projected off those it conflicts with, in random order."
    )
    reference: ClassVar[str] = "yu2020gradient"
    shown: ClassVar[tuple[str, ...]] = ("seed",)

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        seed: int = 0,
        **options: Unpack[GramianOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.seed = checks.seed(seed)

    def order(self, seed: int | None = None) -> npt.NDArray[np.int64]:
        """The orders of this step: a function of the seed and the step alone."""
        own = self.seed if seed is None else seed
        generator = np.random.default_rng((own, int(self.step)))
        each = np.tile(np.arange(self.objectives), (self.objectives, 1))
        return generator.permuted(each, axis=1)

    def weigh(self, evidence: Evidence) -> Tensor | State:
        """The weights of this batch's Gramian; of the optimizer's steps, where there is one."""
        gramian, momentum = evidence.gramian(chunk=self.chunk), evidence.momentum
        if momentum is None:
            return self.solve(gramian).to(self.weights)
        return pcgrad_weights(gramian, self.order(), momentum.pull).to(self.weights)

    def solve(self, gramian: Tensor) -> Tensor:
        """The weights of Σᵢ gᵢ^PC."""
        return each(lambda one, seed: pcgrad_weights(one, self.order(seed)), [gramian], self.seed)
