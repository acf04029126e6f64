"""RGW: random weights, drawn anew at every step."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import scipy  # its submodules load when first used, which keeps the import short
import torch
from torch import Tensor
from torch.optim import Optimizer

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.gradients._delivery import Heads, Length
from trimol.maths._streams import stream
from trimol.methods.base import Method, Metric, Needs, Objectives


def rgw_weights(objectives: int, seed: int, step: int) -> Tensor:
    """softmax(ξ) with ξ ~ N(0, I_M), a pure function of (seed, step): the same on every process.

    The raw stream of Philox, whose key and counter these are, is promised for all versions of
    NumPy. Samplers (`trimol.data`) take the key (seed, 0): the same seed is independent of them.
    """
    source = stream(seed, step, purpose=1)
    uniform = ((source.random_raw(objectives) >> np.uint64(11)) + 0.5) * 2.0**-53  # never 0 or 1
    return torch.from_numpy(scipy.special.ndtri(uniform)).softmax(-1)


class RGW(Method):
    r"""Random gradient weighting: the softmax of Gaussian noise, drawn anew at every step.

    .. math::
        \lambda_t = \operatorname{softmax}(\xi_t), \quad \xi_t \sim N(0, I_M), \qquad
        x_{t+1} = x_t - \alpha \nabla F_z(x_t)\, \lambda_t

    On average this is the mean of the losses; the noise of the weights is said to help as that of
    mini-batches does. A baseline that others have to beat. Parameters that the method was not given
    get their plain gradient, so that given the shared ones it weighs gradients (RGW), given all it
    weighs losses (RLW). Plain training: one forward, one backward.

    Args:
        seed: Names the sequence of weights; saved in ``state_dict()`` with the step.
        every: Draw new weights every so many steps.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> rgw = trimol.RGW([x], objectives=2, seed=1)
        >>> for _ in range(2):
        ...     rgw(torch.stack([x.sum(), x.prod()])).backward()
        ...     print(rgw.weights)
        tensor([0.0272, 0.9728], dtype=torch.float64)
        tensor([0.1940, 0.8060], dtype=torch.float64)

    Reference:
        B. Lin, F. Ye, Y. Zhang, I. W. Tsang, *Reasonable Effectiveness of Random Weighting: A
        Litmus Test for Multi-Task Learning*, TMLR 2022, Algorithm 2.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = "Random weights at every step: the baseline of plain noise."
    reference: ClassVar[str] = "lin2022reasonable"
    shown: ClassVar[tuple[str, ...]] = ("seed",)
    seed: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        seed: int = 0,
        every: int = 1,
        length: Length = "own",
        max_norm: float | None = None,
        heads: Heads = "plain",
        optimizer: Optimizer | None = None,
        metric: Metric = "step",
        guard: bool = False,
    ) -> None:
        super().__init__(
            params,
            objectives,
            every=every,
            length=length,
            max_norm=max_norm,
            heads=heads,
            optimizer=optimizer,
            metric=metric,
            guard=guard,
        )
        if checks.seed(seed) >= 2**63:
            raise BadValue(f"seed must be below 2**63, found {seed}")
        self.carry(seed=torch.tensor(seed))

    def weigh(self, evidence: Evidence) -> Tensor:
        """Weights of this step, whatever the losses; the old ones where these are not finite."""
        evidence.values()
        seeds, step = self.seed.flatten().tolist(), int(self.step)
        drawn = torch.stack([rgw_weights(self.objectives, seed, step) for seed in seeds])
        return drawn.view(self.weights.shape).to(self.weights)
