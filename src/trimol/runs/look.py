"""`look`: plain training for a while, and what it shows of the objectives' conflict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from trimol.tasks import Data, Task
from trimol.training._optimizers import OptimizerName

Regime = Literal["none", "scales", "direction", "noise", "stationary"]


@dataclass(frozen=True)
class Moment:
    """What the full-data gradients say at one state of a model.

    Attributes:
        name: Where it is, in words: "step 30", "the end of seed 3".
        step: The steps done; None where that is not known.
        record: Its numbers, ready for JSON; a number with bounds is
            ``{"value", "low", "high"}``.
    """

    name: str
    step: int | None
    record: dict[str, Any]


@dataclass(frozen=True)
class Look:
    """What a look at a training shows.

    Attributes:
        regime: ``"none"``, ``"scales"``, ``"direction"``, ``"noise"`` or ``"stationary"``.
        reason: Why, in one sentence with the numbers that decide.
        evidence: All the numbers, ready for JSON.
        warnings: What else a user should know, a sentence each.
        moments: The states that were looked at, in order.
        steps: The steps of training really done.
        seconds: The time it took.
    """

    regime: Regime
    reason: str
    evidence: dict[str, Any]
    warnings: tuple[str, ...]
    moments: tuple[Moment, ...]
    steps: int
    seconds: float

    @property
    def cost(self) -> dict[str, float]:
        """Steps and seconds."""
        return {"steps": self.steps, "seconds": self.seconds}


def look(
    task: str | Task,
    *,
    task_options: Mapping[str, Any] | None = None,
    steps: int,
    batch_size: int = 64,
    lr: float | None = None,
    optimizer: OptimizerName | None = None,
    seed: int = 0,
    looks: int = 5,
    batches: int = 16,
    seconds: float | None = None,
    watch: Callable[[Moment], None] | None = None,
) -> Look:
    """Train with equal weights for so many steps, and measure at a few of them."""
    raise NotImplementedError


def examine(
    task: str | Task,
    model: nn.Module,
    *,
    name: str = "the end",
    step: int | None = None,
    task_options: Mapping[str, Any] | None = None,
    data: Data | None = None,
    weights: Sequence[float] | None = None,
    optimizer: Optimizer | None = None,
    batch_size: int = 64,
    batches: int = 16,
    seed: int = 0,
) -> Moment:
    """Measure one state of a model, such as that at the end of a run."""
    raise NotImplementedError


def revised(first: Look, later: Sequence[Moment]) -> Look:
    """The look with later moments added, and the regime judged anew."""
    raise NotImplementedError
