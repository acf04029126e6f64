"""UPGrad: every gradient freed of its conflicts, then averaged."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trimol.gradients._stepping import Momentum
from trimol.maths import cone
from trimol.maths._numerics import Array, without_conflict
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import RoundedMethod, each

OPPOSITE = 0.999  # cos² above this: all but opposite


def upgrad_weights(gramian: Tensor, rounding: float = 0.0) -> Tensor:
    """The weights of the mean of the gradients' projections onto the dual cone, in float64.

    The cone is that of gradients that are rounded to ``rounding`` (`without_conflict`).
    """
    return torch.from_numpy(without_conflict(_mean_of_pushed, checked_gramian(gramian), rounding))


def _of_many(gramian: Tensor, rounding: float) -> Tensor:
    """`upgrad_weights` of every Gramian of a batch; a solver is called where a formula will not do.

    Without conflict the mean is the direction. Of two gradients, each only has to lose what it has
    against the other: vᵢⱼ = −gᵢᵀgⱼ/‖gⱼ‖², unless they are all but opposite.
    """
    count, squares = gramian.shape[-1], gramian.diagonal(dim1=-2, dim2=-1)
    weights = torch.full_like(squares, 1 / count)
    hard = (gramian < 0).flatten(1).any(1) | ~gramian.isfinite().flatten(1).all(1)
    if count == 2:
        across = (gramian[:, 0, 1] + gramian[:, 1, 0]) / 2
        easy = hard & (across.square() < OPPOSITE * squares.prod(-1))
        pushed = (1 - across[:, None] / squares) / 2
        weights, hard = torch.where(easy[:, None], pushed, weights), hard & ~easy
    if hard.any():
        weights[hard] = each(upgrad_weights, [gramian[hard]], rounding)
    return weights


def upgrad_step_weights(gramian: Tensor, pull: Tensor) -> Tensor:
    """The weights of the mean of the M steps k + S gᵢ, each projected onto the dual cone.

    Along step i the losses change by the gramian's row i and ``pull``, Gᵀk.
    """
    G, pulled = checked_gramian(gramian), pull.cpu().numpy()
    return torch.from_numpy(np.asarray((1 + cone.pushes_from(G, G + pulled).sum(0)) / len(G)))


def _mean_of_pushed(gramian: Array) -> Array:
    """(1 + Σᵢ vᵢ) / M."""
    return np.asarray((1 + cone.pushes(gramian).sum(0)) / len(gramian))


class UPGrad(RoundedMethod):
    r"""Unconflicting projection of gradients: what every objective wants that harms no other.

    .. math::
        x_{t+1} = x_t - \alpha\, \frac1M \sum_i \Pi(g_i), \qquad
        \Pi(g) = \arg\min_{d} \|d - g\|^2 \ \text{ s.t. }\ g_j^\top d \ge 0 \ \text{ for all } j

    with :math:`g_i = \nabla f_{z,i}(x_t)`. :math:`\Pi(g_i) = g_i + \sum_j v_{ij} g_j` with
    :math:`v_i \ge 0`, so the weights are :math:`\lambda_j = \frac1M (1 + \sum_i v_{ij})`: they sum
    to one only where nothing conflicts, and then the step is plain training. Each of the M small
    quadratic problems is solved exactly (:mod:`trimol.maths.cone`). One backward per objective.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> upgrad = trimol.UPGrad([x], objectives=2)
        >>> upgrad(torch.stack([x[0], x[1] - x[0]])).backward()
        >>> x.grad, upgrad.weights
        (tensor([0.2500, 0.7500]), tensor([1.0000, 0.7500], dtype=torch.float64))

    Reference:
        P. Quinton, V. Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024.
    """

    summary: ClassVar[str] = (
        "The mean of the gradients, each projected to where it conflicts with none."
    )
    reference: ClassVar[str] = "quinton2024jacobian"

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """(1 + Σᵢ vᵢ) / M."""
        if gramian.dim() == 3:
            return _of_many(gramian, rounding)
        return each(upgrad_weights, [gramian], rounding)

    def solve_moving(self, gramian: Tensor, momentum: Momentum, rounding: float) -> Tensor:
        """The same of the optimizer's steps, each with all of its momentum."""
        return upgrad_step_weights(gramian, momentum.pull)
