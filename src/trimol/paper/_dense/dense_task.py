"""What every task of dense prediction shares: objectives, losses, metrics; a subclass has data."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._checks import nonnegative, one_of, whole_number
from trimol.paper._dense import pixels
from trimol.paper._dense.models import Backbone, dense_model
from trimol.tasks.multitask import MultiTask, SingleInput
from trimol.tasks.task import Batch, Goals


@dataclass(frozen=True)
class Objective:
    """One of the three: how it is trained, and how it is judged."""

    place: int  # of its truth among those of an image
    loss: Callable[[Tensor, Tensor], Tensor]  # of each pixel, from an output and the truth
    known: Callable[[Tensor], Tensor]  # which pixels of the truth have a label
    tally: Callable[[Tensor, Tensor], dict[str, Tensor]]  # what adds up over batches
    score: Callable[[Mapping[str, Tensor]], dict[str, float]]  # the metrics of these sums
    goals: Mapping[str, Literal["higher", "lower"]]  # which way of a metric is better


OBJECTIVES: Mapping[str, Objective] = {
    "segmentation": Objective(
        place=0,
        loss=pixels.cross_entropy,
        known=pixels.has_class,
        tally=pixels.tally_segmentation,
        score=pixels.score_segmentation,
        goals={"mIoU": "higher", "pixel accuracy": "higher"},
    ),
    "depth": Objective(
        place=1,
        loss=pixels.absolute_error,
        known=pixels.has_depth,
        tally=pixels.tally_depth,
        score=pixels.score_depth,
        goals={"abs err": "lower", "rel err": "lower"},
    ),
    "normals": Objective(
        place=2,
        loss=pixels.one_minus_cosine,
        known=pixels.has_normal,
        tally=pixels.tally_normals,
        score=pixels.score_normals,
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
    `chosen`) and the number of classes.

    Args:
        backbone: Of `trimol.paper._dense.models`.
        pretrained: Whether ResNet-50 starts from ImageNet's weights.
        weight_decay: Of Adam, on all parameters.
        only: Train and measure this objective alone.
        seed: Names what is drawn for the data.
    """

    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    goals: Goals = GOALS
    at_once: int = 64
    classes: ClassVar[int]

    def __init__(
        self,
        *,
        backbone: Backbone = "small",
        pretrained: bool = False,
        weight_decay: float = 0.0,
        only: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(only=only)
        one_of("backbone", backbone, get_args(Backbone))
        self.backbone, self.pretrained, self.only = backbone, pretrained, only
        self.weight_decay = nonnegative("weight_decay", weight_decay)
        self.seed = whole_number("seed", seed, least=0)

    def model(self) -> MultiTask:
        """The trunk and a head for each objective."""
        return dense_model(self.objectives, self.classes, self.backbone, pretrained=self.pretrained)

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
        """What adds up to the nine metrics over batches (`trimol.paper._dense.pixels`)."""
        outputs = model(batch[0])
        sums: dict[str, Tensor] = {}
        for name, truth in zip(self.objectives, batch[1:], strict=True):
            sums |= OBJECTIVES[name].tally(outputs[name], truth)
        return sums

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The nine metrics: shares as fractions of 1, depth in its own unit, angles in degrees."""
        metrics: dict[str, float] = {}
        for name in self.objectives:
            metrics |= OBJECTIVES[name].score(sums)
        return metrics

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam, with the task's weight decay."""
        return Adam(params, lr=lr, weight_decay=self.weight_decay)
