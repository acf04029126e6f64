"""Growing batches: a batch sampler whose batches become larger from step to step.

The noise of a mini-batch biases the conflict-avoiding direction; a batch that grows like O(t) takes
that bias away as the training goes on.
"""

import math
from collections.abc import Sized
from typing import Any

from trimol._checks import whole_number
from trimol._failures import BadType, BadValue
from trimol.data.sampling import IndependentDraws


class GrowingBatches(IndependentDraws):
    r"""Batch sampler whose batch grows linearly with the step, up to a cap.

    .. math:: |Z_t| = \min(\text{cap},\ \text{batch\_size} + \lfloor \text{growth} \cdot t \rfloor)

    A pure function of the step, as the indices are of (seed, step): resuming is exact, and every
    step is independent of every other. Without replacement a batch of all the data is its gradient
    without noise, so that nothing is left to grow for: the cap is at most the size of the data.

    T steps take about growth·T²/2 samples: compare methods at equal samples (`samples`), not at
    equal steps.

    Args:
        data: The data set, or its size.
        batch_size: Samples of the first step.
        growth: Samples by which the batch grows, per step. With 0 it stays as it is.
        cap: The largest batch; the size of the data by default.
        replacement: Whether one sample may come several times within one step.
        seed: Names the sequence. Different seeds give independent sequences.
        steps: Steps of one iteration. None: without end.

    Example:
        >>> sampler = GrowingBatches(1000, batch_size=8, growth=0.5, cap=10, seed=1, steps=6)
        >>> [len(batch) for batch in sampler]
        [8, 8, 9, 9, 10, 10]
        >>> sampler.samples(6), sampler.steps_within(8 + 8 + 9 + 8)
        (54, 3)
    """

    def __init__(
        self,
        data: int | Sized,
        batch_size: int,
        *,
        growth: float = 1.0,
        cap: int | None = None,
        replacement: bool = False,
        seed: int = 0,
        steps: int | None = None,
    ) -> None:
        super().__init__(data, batch_size, k=1, replacement=replacement, seed=seed, steps=steps)
        self.growth = _growth(growth)
        self.cap = max(self.size, self.batch_size) if cap is None else self._checked_cap(cap)

    def _checked_cap(self, cap: int) -> int:
        cap = whole_number("cap", cap, least=1)
        if cap < self.batch_size:
            raise BadValue(f"cap must be at least batch_size={self.batch_size}, found {cap}")
        if not self.replacement and cap > self.size:
            raise BadValue(
                f"cap={cap} needs as many distinct samples, but data has {self.size}: make it "
                "smaller or set replacement=True"
            )
        return cap

    def budget(self, step: int) -> int:
        """Samples of a step: grows by ``growth`` per step, up to the cap."""
        room = self.cap - self.batch_size
        grown = self.growth * step
        return self.batch_size + (math.floor(grown) if grown < room else room)

    def _shape(self) -> dict[str, Any]:
        """The settings that the indices of a step depend on, beside the seed."""
        return {**super()._shape(), "growth": self.growth, "cap": self.cap}


def _growth(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadType(f"growth must be a number, found {value!r}")
    if not math.isfinite(value) or value < 0:
        raise BadValue(f"growth must be finite and at least 0, found {value}")
    return float(value)
