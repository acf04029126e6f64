"""Do the weights move, and does every objective have one? Said once where not."""

from typing import Any

import torch
from torch import Tensor

from trimol._warnings import warn

# Updates of λ after which it is looked at.
PATIENCE = 100
# A change of a weight, as a share of a uniform one, up to which λ has hardly moved.
HARDLY = 0.01


class Movement:
    """Watches one method's λ, `PATIENCE` updates at a time."""

    def __init__(self) -> None:
        self.updates = 0
        self.largest: Tensor | None = None  # of each weight, over the last updates
        self.named: set[str | int] = set()

    def follow(self, method: Any) -> None:
        """Look at λ after an update; the host waits for it at every hundredth only."""
        names, weights = method.names, method.weights
        if len(names) == 1:
            return
        sizes = weights.abs()
        self.largest = sizes if self.largest is None else torch.maximum(self.largest, sizes)
        self.updates += 1
        if self.updates % PATIENCE:
            return
        title = type(method).__name__
        moved = (weights - method.initial_weights.to(weights)).abs().max() * len(names)
        automatic = getattr(method, method.moved_by) == "auto"  # there the losses are in balance
        if self.updates == PATIENCE and moved <= HARDLY and not automatic:
            warn(
                f"{title}: the weights are within 1 % of their start after {PATIENCE} steps: this "
                f"is static weighting, unless {method.moved_by} is made larger (said once)"
            )
        idle = [n for n, size in zip(names, self.largest.tolist(), strict=True) if size == 0]
        self.largest = None
        if new := [repr(name) for name in idle if name not in self.named]:
            self.named |= set(idle)
            warn(
                f"{title}: the weight of {', '.join(new)} was 0 in each of the last {PATIENCE} "
                "steps: not trained. Bring the losses to like sizes, or use Static (said once)"
            )
