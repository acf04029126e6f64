"""ReLoBRaLo: relative progress of the losses, with a random look back to the start."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.maths._streams import stream
from trimol.methods.base import Method, Needs, Objectives, Range, State, StepOptions
from trimol.methods.dwa import dwa_weights


def uniform(seed: int, step: int) -> float:
    """A random number in [0, 1), by (seed, step) alone."""
    return int(stream(seed, step, purpose=2).random_raw(1)[0] >> np.uint64(11)) * 2.0**-53


def relobralo_step(
    weights: Tensor, last: Tensor, first: Tensor, alpha: float | Tensor, back: Tensor
) -> Tensor:
    """One step of λ, on tensors (batchable).

    Args:
        weights: λ.
        last: λ̂(t; t−1).
        first: λ̂(t; 0).
        alpha: α, how much of the past is kept.
        back: Whether that is λ̂(t; 0), (…, 1), and not λ.
    """
    return last + alpha * (torch.where(back, first, weights) - last)


class ReLoBRaLo(Method):
    r"""Relative loss balancing with random look-back: more weight on what falls least.

    .. math::
        \lambda_t &= \alpha\, \big(\rho_t \lambda_{t-1} + (1 - \rho_t)\, \hat\lambda(t; 0)\big)
            + (1 - \alpha)\, \hat\lambda(t; t-1), \\
        \hat\lambda_m(t; s) &= M\, \frac{\exp\big(L_m(t) / (T L_m(s))\big)}
            {\sum_k \exp\big(L_k(t) / (T L_k(s))\big)}, \qquad
        \rho_t \sim \text{Bernoulli}(\rho)

    with :math:`\alpha` = ``alpha``, :math:`\rho` = ``rho`` and :math:`T` = ``temperature``. λ sums
    to M, as published. α is the memory; with probability 1 − ρ a step replaces the remembered
    weights by those of the progress since the start. The first step, which has nothing to compare
    with, moves with λ0 = 1. Made for physics-informed networks trained on full batches; on small
    ones the ratio of two losses in a row is noise, and α has to be near one.

    ρ_t is a function of (``seed``, step). One backward: plain training. Losses must be at least 0.

    Args:
        alpha: α in [0, 1].
        rho: ρ in [0, 1]; 1 never looks back.
        temperature: T; the smaller, the sharper.
        seed: Of the looks back.
        weights: λ0, scaled to sum to M; ones by default.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> balanced = trimol.ReLoBRaLo([x], objectives=2, alpha=0.5)
        >>> for value in (1.0, 0.5):
        ...     loss = balanced(torch.stack([x[0] * value, x[1]]))
        >>> balanced.weights
        tensor([0.8775, 1.1225], dtype=torch.float64)

    Reference:
        R. Bischof, M. A. Kraus, *Multi-Objective Loss Balancing for Physics-Informed Deep
        Learning*, 2021, eq. (12) and (13).
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "More weight on the losses that fall least, now and at random since the start."
    )
    reference: ClassVar[str] = "bischof2021multi"
    shown: ClassVar[tuple[str, ...]] = ("alpha", "rho", "temperature", "seed")
    search: ClassVar[Mapping[str, Range]] = {"temperature": (0.1, 10.0)}
    before: Tensor
    initial: Tensor
    known: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        alpha: float = 0.999,
        rho: float = 0.999,
        temperature: float = 1.0,
        seed: int = 0,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        checked = checks.weights(weights, objectives)
        start = checked * len(checked) / checked.sum()
        super().__init__(params, objectives, weights=start, **options)
        self.alpha = checks.fraction("alpha", alpha)
        self.rho = checks.fraction("rho", rho)
        self.temperature = checks.positive("temperature", temperature)
        self.seed = checks.seed(seed)
        nothing = torch.zeros_like(self.weights)
        self.carry(before=nothing, initial=nothing, known=torch.zeros((), dtype=torch.bool))

    def weigh(self, evidence: Evidence) -> State:
        """λ of the losses beside those of the step before and of the first."""
        losses = evidence.values().to(self.weights)
        checks.losses_at_least_zero(losses, "since ReLoBRaLo compares their ratios", self.names)
        last = dwa_weights(losses, self.before, self.temperature) * self.objectives
        first = dwa_weights(losses, self.initial, self.temperature) * self.objectives
        back = self._uniform().to(losses) >= self.rho
        known = self.known.to(losses.device)[..., None]
        moved = relobralo_step(self.weights, last, first, self.alpha, back)
        return {
            "weights": torch.where(known, moved, self.weights),
            "before": losses,
            "initial": torch.where(known, self.initial, losses),
            "known": torch.ones_like(self.known),
        }

    def _uniform(self) -> Tensor:
        """This step's random number, for each seed."""
        seeds = torch.as_tensor(self.seed)
        drawn = [uniform(seed, int(self.step)) for seed in seeds.flatten().tolist()]
        return torch.tensor(drawn).double().view(seeds.shape or (1,))
