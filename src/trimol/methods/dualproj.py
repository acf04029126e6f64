"""DualProj: the mean gradient, projected to where it conflicts with none."""

from typing import ClassVar

import torch
from torch import Tensor

from trimol.gradients._stepping import Momentum
from trimol.maths import cone
from trimol.maths._numerics import without_conflict
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import PreferenceMethod


def dualproj_weights(gramian: Tensor, preference: Tensor, rounding: float = 0.0) -> Tensor:
    """u + v with u = ``preference`` and v ≥ 0 what takes Jᵀu to the dual cone, in float64.

    The cone is that of gradients that are rounded to ``rounding`` (`without_conflict`).
    """
    u = preference.double().numpy()
    G = checked_gramian(gramian)
    return torch.from_numpy(
        without_conflict(lambda raised: u + cone.push(raised, -(raised @ u)), G, rounding)
    )


def dualproj_step_weights(gramian: Tensor, preference: Tensor, pull: Tensor) -> Tensor:
    """The weights of the step k + S Jᵀu, projected onto the dual cone; ``pull`` is Gᵀk."""
    G, u = checked_gramian(gramian), preference.double().numpy()
    return torch.from_numpy(u + cone.push(G, -(G @ u + pull.cpu().numpy())))


class DualProj(PreferenceMethod):
    r"""Dual projection: the nearest direction to the mean gradient along which no loss rises.

    .. math::
        x_{t+1} = x_t - \alpha\, d, \qquad
        d = \arg\min_d \Big\|d - \sum_m u_m g_m\Big\|^2 \ \text{ s.t. }\ g_m^\top d \ge 0
            \ \text{ for all } m

    with u = ``preference``. :math:`d = \sum_m (u_m + v_m)\, g_m` with :math:`v \ge 0` from a small
    quadratic problem, solved exactly (:mod:`trimol.maths.cone`): the weights sum to that of u only
    where nothing conflicts, and then the step is plain training. `UPGrad` projects every gradient
    by itself, so that none is outvoted; here a long gradient decides what is projected. It is
    gradient episodic memory with the losses in the place of old tasks. One backward per objective.

    Args:
        preference: u, at least 0; 1/M each by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> dualproj = trimol.DualProj([x], objectives=2)
        >>> dualproj(torch.stack([x[0], x[1] - 3 * x[0]])).backward()
        >>> x.grad, dualproj.weights
        (tensor([0.0000, 0.5000]), tensor([1.5000, 0.5000], dtype=torch.float64))

    Reference:
        D. Lopez-Paz, M. Ranzato, *Gradient Episodic Memory for Continual Learning*, NeurIPS 2017,
        eq. (11).
    """

    summary: ClassVar[str] = "The mean gradient, projected to where it conflicts with none."
    reference: ClassVar[str] = "lopezpaz2017gradient"

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """u + v."""
        return self.solve_each(dualproj_weights, gramian, rounding)

    def solve_moving(self, gramian: Tensor, momentum: Momentum, rounding: float) -> Tensor:
        """The same of the optimizer's step, with its momentum."""
        return dualproj_step_weights(gramian, self.preference, momentum.pull)
