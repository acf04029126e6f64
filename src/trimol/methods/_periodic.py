"""What the methods have in common that compare the losses of one period with the last one's."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.methods.base import Method, Needs, Objectives, State, StepOptions


class PeriodicMethod(Method):
    """A method whose weights come from the mean losses of two periods in a row."""

    needs: ClassVar[Needs] = "losses"
    total: Tensor
    before: Tensor
    seen: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        period: int,
        weights: Tensor | Sequence[float] | Mapping[str, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(params, objectives, weights=checks.simplex(weights, objectives), **options)
        self.period = checks.count("period", period)
        nothing = torch.zeros_like(self.weights)
        self.carry(total=nothing, before=nothing, seen=torch.zeros((), dtype=torch.int64))

    @abstractmethod
    def compared(self, last: Tensor, before: Tensor) -> Tensor:
        """The weights, from the mean losses of the last period and of the one before it."""

    def check(self, losses: Tensor) -> None:
        """Refuse losses that the method cannot compare."""

    def weigh(self, evidence: Evidence) -> State:
        """New weights at the end of a period, from the second one on."""
        losses = evidence.values().to(self.total)
        self.check(losses)
        total, seen = self.total + losses, self.seen + 1
        count = seen.to(total.device)[..., None]
        ended, compares = count % self.period == 0, count > self.period
        last = total / self.period
        weights = self.compared(last, self.before)
        return {
            "weights": torch.where(ended & compares, weights, self.weights),
            "total": torch.where(ended, 0.0, total),
            "before": torch.where(ended, last, self.before),
            "seen": seen,
        }
