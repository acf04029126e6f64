"""What every task of dense prediction shares: objectives, losses, metrics; a subclass has data."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._failures import BadValue
from trimol.paper._dense import metrics
from trimol.paper._dense import pixel_losses as losses
from trimol.tasks.multitask import SingleInput
from trimol.tasks.task import Batch, Goals


@dataclass(frozen=True)
class Objective:
    """One of the three: how it is trained, and how it is judged.

    Attributes:
        place: Of its truth among those of an image.
        loss: The loss of each pixel, from an output and the truth.
        known: Which pixels of the truth have a label.
        tally: What adds up over batches.
        score: The metrics that the sums come to.
        goals: The metrics' names, and which way is better.
    """

    place: int
    loss: Callable[[Tensor, Tensor], Tensor]
    known: Callable[[Tensor], Tensor]
    tally: Callable[[Tensor, Tensor], dict[str, Tensor]]
    score: Callable[[Mapping[str, Tensor]], dict[str, float]]
    goals: Mapping[str, Literal["higher", "lower"]]


OBJECTIVES: Mapping[str, Objective] = {
    "segmentation": Objective(
        place=0,
        loss=losses.cross_entropy,
        known=losses.has_class,
        tally=metrics.tally_segmentation,
        score=metrics.score_segmentation,
        goals={"mIoU": "higher", "pixel accuracy": "higher"},
    ),
    "depth": Objective(
        place=1,
        loss=losses.absolute_error,
        known=losses.has_depth,
        tally=metrics.tally_depth,
        score=metrics.score_depth,
        goals={"abs err": "lower", "rel err": "lower"},
    ),
    "normals": Objective(
        place=2,
        loss=losses.one_minus_cosine,
        known=losses.has_normal,
        tally=metrics.tally_normals,
        score=metrics.score_normals,
        goals={
            "angle mean": "lower",
            "angle median": "lower",
            "within 11.25": "higher",
            "within 22.5": "higher",
            "within 30": "higher",
        },
    ),
}
GOALS: Goals = {name: objective.goals for name, objective in OBJECTIVES.items()}


class DenseTask(SingleInput):
    """Segmentation, depth and normals of one image: three heads on one trunk.

    A batch is ``(image, label, depth, normal)``: N × 3 × H × W, N × H × W with −1 where a pixel has
    no class, N × H × W with 0 where it has no depth, N × 3 × H × W with zeros where it has no
    normal; with one objective alone, the image and its truth. A subclass brings the data (by
    `chosen`) and the model (`trimol.paper._dense.models`).

    Args:
        only: Train and measure this objective alone.
        weight_decay: Of Adam, on all parameters.
    """

    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    goals: Goals = GOALS
    at_once: int = 64

    def __init__(self, *, only: str | None = None, weight_decay: float = 0.0) -> None:
        super().__init__(only=only)
        if not 0 <= weight_decay < float("inf"):
            raise BadValue(f"weight_decay must be finite and at least 0, found {weight_decay}")
        self.only, self.weight_decay = only, weight_decay

    def chosen(self, image: Tensor, *truths: Tensor) -> Batch:
        """The images with the truths that this task's objectives need, of all three."""
        return (image, *(truths[OBJECTIVES[name].place] for name in self.objectives))

    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        """Of each pixel: cross-entropy, absolute error, one minus cosine."""
        return OBJECTIVES[objective].loss(output, y)

    def known(self, objective: str, y: Tensor) -> Tensor:
        """Which pixels have a label."""
        return OBJECTIVES[objective].known(y)

    def tally(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """What adds up to the nine metrics over batches (`trimol.paper._dense.metrics`)."""
        outputs = model(batch[0])
        found: dict[str, Tensor] = {}
        for name, truth in zip(self.objectives, batch[1:], strict=True):
            found |= OBJECTIVES[name].tally(outputs[name], truth)
        return found

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The nine metrics: shares as fractions of 1, depth in its own unit, angles in degrees."""
        found: dict[str, float] = {}
        for name in self.objectives:
            found |= OBJECTIVES[name].score(sums)
        return found

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam, with the task's weight decay."""
        return Adam(params, lr=lr, weight_decay=self.weight_decay)
