"""A task of yes and no for two groups: cross-entropy, and the gap between the groups."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._checks import one_of, positive
from trimol._failures import BadValue
from trimol.tasks._binary import auc, score_sums
from trimol.tasks._settings import read_settings
from trimol.tasks.fairness import gaps
from trimol.tasks.fairness.gaps import Fairness, Relaxation
from trimol.tasks.task import Batch, Better, Settings, Task


def network(width: int, hidden: int) -> nn.Module:
    """Two hidden layers, as in the published experiments; the log-odds of yes, one a row."""
    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
        nn.Flatten(0),
    )


def _columns(batch: Batch) -> Batch:
    if len(batch) != 3:
        raise BadValue(f"data() must give columns (x, label, group), found {len(batch)}")
    return batch


class Fair(Task):
    """A yes or no to be told to people, and two groups to be treated alike.

    A batch is ``(x, label, group)``, label and group of 0 and 1: label 1 is what is good for the
    person, group 1 the one that is usually treated worse. A task of your own gives ``name``,
    `model` (the log-odds of yes, one a row; `network` makes one) and `data`.

    The gap is a statistic of a batch, no mean over its samples: a small batch has a gap by chance
    (with n rows of a group, about 0.3/√n), which training then removes by making all chances alike.
    Take large batches. Measurements are of all rows at once.

    Metrics: ``accuracy`` and ``AUC``; ``hard gap`` is the gap of decisions at one half, with the
    ends of its 95 % interval, ``hard gap low`` and ``hard gap high``.

    Args:
        fairness: ``"parity"``, ``"opportunity"`` or ``"odds"`` (:mod:`trimol.tasks.fairness.gaps`).
        relaxation: ``"rates"``, differences of mean chances; or ``"sums"``, as was published.
        sharpness: k of the rates: the larger, the nearer are chances to decisions.
    """

    objectives: tuple[str, ...] = ("cross-entropy", "gap")
    goals: Mapping[str, Mapping[str, Better]] = {
        "cross-entropy": {"accuracy": "higher", "AUC": "higher"},
        "gap": {"hard gap": "lower"},
    }
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "fairness")
    at_once: int = 1 << 20

    def __init__(
        self,
        *,
        fairness: Fairness = "opportunity",
        relaxation: Relaxation = "rates",
        sharpness: float = 1.0,
    ) -> None:
        one_of("fairness", fairness, get_args(Fairness))
        one_of("relaxation", relaxation, get_args(Relaxation))
        self.fairness: Fairness = fairness
        self.relaxation = relaxation
        self.sharpness = positive("sharpness", sharpness)
        if relaxation == "sums" and sharpness != 1:
            raise BadValue(f"sharpness must be 1 where relaxation is 'sums', found {sharpness}")

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        """Binary cross-entropy, and the gap of the batch."""
        x, label, group = _columns(batch)
        logits = model(x)
        entropy = F.binary_cross_entropy_with_logits(logits, label.to(logits))
        return [entropy, self.gap(logits, label, group)]

    def gap(self, logits: Tensor, label: Tensor, group: Tensor) -> Tensor:
        """The differentiable gap."""
        if self.relaxation == "sums":
            return gaps.summed_gap(logits, label, group, self.fairness)
        return gaps.relaxed_gap(logits, label, group, self.fairness, sharpness=self.sharpness)

    def counts(self, batch: Batch) -> Tensor | None:
        """The gap is absent from a batch that lacks a group; sums are there all the same."""
        if self.relaxation == "sums":
            return None
        _, label, group = _columns(batch)
        for name, column in (("label", label), ("group", group)):
            if not ((column == 0) | (column == 1)).all():
                found = column[(column != 0) & (column != 1)][0].item()
                raise BadValue(f"{name} must be 0 or 1 in every row of data(), found {found:g}")
        rows = torch.tensor(len(label), device=label.device)
        return torch.stack([rows, gaps.telling(label, group, self.fairness)])

    def tally(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Decisions by group and label, and scores."""
        x, label, group = batch
        logits = model(x)
        return {
            "decisions": gaps.decisions(logits, label, group),
            "scores": score_sums(logits, label),
        }

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Accuracy, AUC, and the gap of decisions with its interval."""
        table = sums["decisions"]
        right = table[:, 1, 0].sum() + (table[:, 0, 1] - table[:, 0, 0]).sum()
        low, high = gaps.gap_interval(table, self.fairness)
        return {
            "accuracy": float(right / table[..., 1].sum()),
            "AUC": auc(sums["scores"]),
            "hard gap": gaps.hard_gap(table, self.fairness),
            "hard gap low": low,
            "hard gap high": high,
        }

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam."""
        return Adam(params, lr=lr)
