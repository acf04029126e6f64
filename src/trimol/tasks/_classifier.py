"""Telling images apart on three losses at once, as the paper's MNIST experiments do."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol.data import IndependentDraws
from trimol.tasks.task import Batch, Task

CLASSES = 10
HUBER = 0.1


class Classifier(Task):
    r"""Ten classes and the paper's three losses; a subclass brings the model and the data.

    With p = softmax(logits) and y the one-hot label:

    - cross-entropy, the mean over the batch;
    - MSE, :math:`(p - y)^2`, the mean over batch and classes;
    - Huber with δ = 0.1: :math:`\tfrac12 (p-y)^2` up to :math:`|p-y| = \delta`,
      :math:`\delta(|p-y| - \tfrac12\delta)` beyond, the mean over batch and classes.
    """

    objectives: tuple[str, ...] = ("cross-entropy", "MSE", "Huber")

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy, MSE and Huber."""
        images, labels = batch
        logits = model(images)
        chances = logits.softmax(1)
        truth = F.one_hot(labels, CLASSES).to(chances)
        return torch.stack(
            [
                F.cross_entropy(logits, labels),
                F.mse_loss(chances, truth),
                F.huber_loss(chances, truth, delta=HUBER),
            ]
        )

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The fraction of images told right."""
        images, labels = batch
        return {"accuracy": (model(images).argmax(1) == labels).float().mean()}


def parts(samples: Batch, sizes: Sequence[int], *, seed: int) -> list[Batch]:
    """The samples in random order, cut into parts of these sizes: a split that its seed names.

    >>> few, many = parts((torch.arange(5),), [2, 3], seed=0)
    >>> sorted([*few[0].tolist(), *many[0].tolist()])
    [0, 1, 2, 3, 4]
    """
    count = len(samples[0])
    (order,) = IndependentDraws(count, batch_size=count, k=1, seed=seed).indices(0)
    return [tuple(tensor[own] for tensor in samples) for own in order.split(list(sizes))]
