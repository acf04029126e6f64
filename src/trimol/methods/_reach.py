"""Which of the given parameters the losses reach, from step to step: those that get lost are named.

A layer that is replaced after the method was built leaves its old parameters with the method and
hands the new ones to the optimizer as heads, which no method weighs: silently, were it not said.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from trimol._warnings import warn
from trimol.gradients import Evidence

# A branch that is skipped at random (stochastic depth) comes back; one that stays away so long, no.
PATIENCE = 100


class Reach:
    """Watches one method's parameters; says once that some are not reached any more.

    At once, where the losses reach parameters that they never did before: something was replaced.
    Otherwise after `PATIENCE` steps in a row, since a branch may be skipped on purpose. Parameters
    that were never reached, or that are frozen, are no concern.
    """

    def __init__(self) -> None:
        self.missed: dict[int, int] = {}  # steps in a row, of each place that was ever reached
        self.others: set[int] = set()
        self.said = False

    def follow(self, name: str, params: Sequence[Tensor], evidence: Evidence) -> None:
        """Look at one step of the method of this name."""
        if self.said:
            return
        reached = evidence.reached
        others = {id(leaf) for leaf in evidence.others if isinstance(leaf, nn.Parameter)}
        lost = []
        for place, p in enumerate(params):
            if id(p) in reached:
                self.missed[place] = 0
            elif p.requires_grad and place in self.missed:
                self.missed[place] += 1
                lost.append(place)
        replaced = not others <= self.others
        self.others |= others
        if lost and (replaced or max(self.missed[place] for place in lost) >= PATIENCE):
            self.said = True
            warn(_message(name, params, lost))


def _message(name: str, params: Sequence[Tensor], lost: Sequence[int]) -> str:
    """Name the first few by their place among the given ones, and by their shape."""
    named = [f"{place} of shape {tuple(params[place].shape)}" for place in lost[:3]]
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return (
        f"{name}: the losses no longer reach given parameters that they reached before: "
        f"{', '.join(named)}{more}. Were layers replaced after the method was built? New ones are "
        "not weighed but trained as heads: build the method anew from the model's parameters "
        "(said once)"
    )
