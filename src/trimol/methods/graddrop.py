"""GradDrop: every parameter moves for the losses of one sign, which is drawn."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths._streams import stream
from trimol.methods.base import Method, Needs, Objectives, Options


def drawn(size: int, seed: int, step: int) -> Tensor:
    """Uniform numbers above 0 and below 1, one a column, a pure function of (seed, step)."""
    words = stream(seed, step, purpose=3).random_raw(size)
    return torch.from_numpy(((words >> np.uint64(11)) + 0.5) * 2.0**-53)


def masks(rows: Tensor, uniform: Tensor, leak: Tensor) -> Tensor:
    """How much of every entry of the gradients is kept, (…, M, d), on tensors (batchable).

    Args:
        rows: The gradients, (…, M, d).
        uniform: U, (…, d).
        leak: How much of what is dropped is kept all the same, (…, M).
    """
    total, size = rows.sum(-2).double(), rows.abs().sum(-2).double()
    purity = (1 + total / torch.where(size > 0, size, 1.0)) / 2
    up = (purity > uniform)[..., None, :]
    kept = torch.where(up, rows > 0, rows < 0).to(rows)
    let = leak.to(rows)[..., None]
    return let + (1 - let) * kept


class GradDrop(Method):
    r"""Gradient sign dropout: where gradients disagree on a sign, one is drawn, the other dropped.

    .. math::
        x_{t+1} = x_t - \alpha \sum_m \big(\ell_m + (1 - \ell_m)\, \mathbb 1_m\big) \odot g_m,
        \qquad \mathbb 1_m = \begin{cases} g_m > 0 & P > U \\ g_m < 0 & P \le U \end{cases},
        \qquad P = \tfrac12 \Big(1 + \frac{\sum_m g_m}{\sum_m |g_m|}\Big)

    entry by entry, with :math:`\ell` = ``leak`` and U uniform, drawn from (``seed``, step): the
    same on every process, and after a resume. Where all gradients agree nothing is dropped: then it
    is the sum of the losses. The direction is no combination of the gradients; λ_m tells how much
    of gradient m was kept (the share of its absolute values), and the scalar is worth λᵀF. The
    paper does this to the gradients of a shared layer's activations; this is to the parameters.
    One backward per objective, none for ``backward()``; M gradients are held.

    Args:
        leak: ℓ, how much of each loss's gradient is kept in any case, from 0 to 1; 0 by default.
        seed: Of the draws.
        weights: λ before the first step; matters only where that step's gradients are not finite.
        every: Draw every so many steps; the steps between move along λ times their gradients.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> graddrop = trimol.GradDrop([x], objectives=2)
        >>> graddrop(torch.stack([3 * x[0] + x[1], x[1] - x[0]])).backward()
        >>> x.grad
        tensor([3., 2.])
        >>> graddrop.weights  # half of the second gradient was dropped
        tensor([1.0000, 0.5000], dtype=torch.float64)

    Reference:
        Z. Chen, J. Ngiam, Y. Huang, T. Luong, H. Kretzschmar, Y. Chai, D. Anguelov, *Just Pick a
        Sign: Optimizing Deep Multitask Models with Gradient Sign Dropout*, NeurIPS 2020,
        Algorithm 1.
    """

    needs: ClassVar[Needs] = "jacobian"
    summary: ClassVar[str] = (
        "Where gradients disagree on an entry's sign, one sign is drawn and the other dropped."
    )
    reference: ClassVar[str] = "chen2020just"
    shown: ClassVar[tuple[str, ...]] = ("seed",)
    no_metric: ClassVar[str] = "whose choice of signs is the same for all optimizers"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        leak: Tensor | Sequence[float] | None = None,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        given = [0.0] * self.objectives if leak is None else leak
        self.leak = checks.vector("leak", given, objectives)
        if not ((self.leak >= 0) & (self.leak <= 1)).all():
            raise BadValue(f"leak must be from 0 to 1, found {self.leak.tolist()}")
        self.seed = checks.seed(seed)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The share of every gradient that is kept."""
        rows = evidence.jacobian()
        size = evidence.finite(rows.abs().sum(-1, dtype=torch.float64))
        kept = (self._masks(rows) * rows).abs().sum(-1, dtype=torch.float64)
        share = evidence.finite(kept) / torch.where(size > 0, size, 1.0)
        return torch.where(size > 0, share, 1.0).to(self.weights)

    def scalar(self, evidence: Evidence, before: Tensor, after: Tensor) -> Tensor:
        """x moves along what is kept, where this step drew."""
        if after is before:
            return evidence.scalar(after)
        rows = evidence.jacobian()
        return evidence.scalar_along(after, (self._masks(rows) * rows).sum(-2))

    def _masks(self, rows: Tensor) -> Tensor:
        seeds, step = torch.as_tensor(self.seed), int(self.step)
        uniform = [drawn(rows.shape[-1], seed, step) for seed in seeds.flatten().tolist()]
        together = torch.stack(uniform).view(*seeds.shape[:1], rows.shape[-1])
        return masks(rows, together.to(rows.device), self.leak)
