"""A method of your own, complete: copy this file, rename, and change the mathematics.

    python examples/own_method.py        # holds it to what every method promises

What each part is for is told in docs/howto/adding-a-method.md.
"""

from collections.abc import Iterable
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import simplex
from trimol.gradients import Evidence
from trimol.methods import Method, checks
from trimol.methods.base import Needs, Objectives, Options, State
from trimol.testing import CHECKS, Row


def smooth_step(average: Tensor, gramian: Tensor, beta: float) -> Tensor:
    """H ← H + β(GᵀG − H), or GᵀG where nothing was seen yet, on tensors alone (batchable)."""
    fresh = ~average.flatten(-2).any(-1)[..., None, None]
    return torch.where(fresh, gramian, torch.lerp(average, gramian, beta))


class SmoothMGDA(Method):
    r"""MGDA on a moving average of the gradients' inner products.

    .. math::
        H_t &= (1 - \beta)\, H_{t-1} + \beta\, \nabla F_z(x_t)^\top \nabla F_z(x_t), \qquad
            H_0 = \nabla F_z(x_0)^\top \nabla F_z(x_0) \\
        \lambda_t &= \arg\min_{\lambda \in \Delta^M} \lambda^\top H_t\, \lambda, \qquad
        x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda_t

    with :math:`\beta` = ``beta``. β = 1 is MGDA. One backward per objective; state of M² numbers.

    Args:
        beta: β in [0, 1], the share of the new batch.
        weights: λ before the first step; matters only where that step's gradients are not finite.

    Example:
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> method = SmoothMGDA([x], objectives=2, beta=0.5)
        >>> method(torch.stack([(x - 1).square().sum(), (x + 1).square().sum()])).backward()
        >>> x.grad, method.weights
        (tensor([-1.,  1.]), tensor([0.7500, 0.2500], dtype=torch.float64))

    Reference:
        None: an illustration.
    """

    needs: ClassVar[Needs] = "gramian"
    summary: ClassVar[str] = "MGDA on a moving average of the Gramian."
    reference: ClassVar[str] = "desideri2012multiple"
    shown: ClassVar[tuple[str, ...]] = ("beta",)
    average: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        beta: float = 0.1,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.beta = checks.fraction("beta", beta)
        # Saved, loaded, moved and reset by the base class. Zeros: nothing seen yet.
        self.carry(average=self.weights.new_zeros(self.objectives, self.objectives))

    def weigh(self, evidence: Evidence) -> State:
        """The min-norm weights of the average, and the average."""
        average = smooth_step(self.average, evidence.gramian().to(self.average), self.beta)
        return {"weights": simplex.min_norm(average), "average": average}


# What it promises: a fresh one is MGDA, so its first direction conflicts with no gradient.
ROW = Row(SmoothMGDA, settings={"beta": 0.5}, conflict_free=True, stationary="weakly")

if __name__ == "__main__":
    for check in CHECKS:
        check(ROW)
    print(f"{len(CHECKS)} checks hold for {ROW.make.__name__}")
