"""A task of several yes-or-no labels of the same rows, some of them missing."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._checks import flag, one_of, whole_number
from trimol.tasks._binary import auc, calibration_error, score_sums
from trimol.tasks._settings import read_settings
from trimol.tasks.multitask import MultiTask, SingleInput
from trimol.tasks.recommenders.networks import Adams, Bags, mixture_of_experts, shared_bottom
from trimol.tasks.task import Batch, Settings

Network = Literal["shared", "mmoe"]


class Labels(SingleInput):
    """Rows of words with a label for each objective: 1, 0, or −1 where it is missing.

    A batch is ``(x, y_1, …, y_M)``, x as :mod:`trimol.tasks.recommenders.networks` takes it. A
    task of your own gives ``name``, ``objectives``, `data` and `words`. Metrics of each objective,
    over the rows that have its label: ``AUC`` and ``calibration error``. Runs are judged by the
    AUC: no prediction is calibrated better than the one that is the same for every row.

    Args:
        network: ``"shared"`` (shared bottom) or ``"mmoe"`` (multi-gate mixture of experts).
        width: Numbers of an embedding.
        hidden: Width of the shared layer, or of each expert.
        experts: How many, for ``"mmoe"``.
        sparse: Whether the table's gradients are sparse, and SparseAdam moves it. Methods that
            keep a running mean of gradients need False.
        only: Train and measure this objective alone.
    """

    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "recommenders")
    at_once: int = 1 << 14

    def __init__(
        self,
        *,
        network: Network = "shared",
        width: int = 8,
        hidden: int = 64,
        experts: int = 4,
        sparse: bool = True,
        only: str | None = None,
    ) -> None:
        one_of("network", network, get_args(Network))
        self.network = network
        self.width = whole_number("width", width, least=1)
        self.hidden = whole_number("hidden", hidden, least=1)
        self.experts = whole_number("experts", experts, least=1)
        self.sparse = flag("sparse", sparse)
        self._tables: list[Tensor] = []
        self.goals = {name: {f"{name} AUC": "higher"} for name in self.objectives}
        super().__init__(only=only)

    def words(self) -> tuple[int, int]:
        """How many words the table has, and how many bags a row."""
        raise NotImplementedError

    def model(self) -> MultiTask:
        """The network; its table is known to `optimizer`."""
        words, bags = self.words()
        looked_up, inputs = Bags(words, self.width, sparse=self.sparse), bags * self.width
        if self.sparse:
            self._tables = [*self._tables[-3:], looked_up.table.weight]
        if self.network == "shared":
            return shared_bottom(looked_up, inputs, self.hidden, self.objectives)
        return mixture_of_experts(
            looked_up, inputs, self.hidden, self.objectives, experts=self.experts
        )

    def loss(self, objective: str, output: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return F.binary_cross_entropy_with_logits(output, y.to(output), reduction="none")

    def tally(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The scores of the rows that have each label."""
        outputs = model(batch[0])
        return {
            name: score_sums(outputs[name][known], y[known])
            for name, y in zip(self.objectives, batch[1:], strict=True)
            for known in [self.known(name, y)]
        }

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """AUC and calibration error of each objective."""
        found: dict[str, float] = {}
        for name in self.objectives:
            found[f"{name} AUC"] = auc(sums[name])
            found[f"{name} calibration error"] = calibration_error(sums[name])
        return found

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """None of a single batch: AUC and calibration are of many rows."""
        return {}

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam; SparseAdam for a table with sparse gradients."""
        return Adams(params, lr, self._tables) if self.sparse else Adam(params, lr=lr)
