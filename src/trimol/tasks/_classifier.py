"""Telling images apart on three losses at once, as the paper's MNIST experiments do."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trimol.data import IndependentDraws
from trimol.data._lookup import Rows
from trimol.tasks.task import Batch, Data, Task

CLASSES = 10
HUBER = 0.1


class Classifier(Task):
    r"""Ten classes and the paper's three losses; a subclass brings the model and the data.

    With p = softmax(logits) and y the one-hot label:

    - cross-entropy, the mean over the batch;
    - MSE, :math:`(p - y)^2`, the mean over batch and classes;
    - Huber with δ = 0.1: :math:`\tfrac12 (p-y)^2` up to :math:`|p-y| = \delta`,
      :math:`\delta(|p-y| - \tfrac12\delta)` beyond, the mean over batch and classes.

    Attributes:
        seed: Names the split of the images; None: each run splits them by its own seed, so that the
            spread over runs has that of the split in it.
    """

    seed: int | None

    objectives: tuple[str, ...] = ("cross-entropy", "MSE", "Huber")

    @abstractmethod
    def split(self, seed: int) -> Data:
        """The data of the split with this seed; images are held once for all splits."""

    def data(self) -> Data:
        """The split that ``seed`` names; the first one where each run has its own."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        return _looked_up(self.split(self.seed or 0))

    def data_for(self, seed: int) -> Data:
        """The split of the run with this seed."""
        return self.split(seed) if self.seed is None else self.data()

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

    Each part is a tuple of `Rows`, looked up when it is asked for.

    >>> few, many = parts((torch.arange(5),), [2, 3], seed=0)
    >>> sorted([*few[0][:].tolist(), *many[0][:].tolist()])
    [0, 1, 2, 3, 4]
    """
    count = len(samples[0])
    (order,) = IndependentDraws(count, batch_size=count, k=1, seed=seed).indices(0)
    cut = order.split(list(sizes))
    return [cast("Batch", tuple(Rows(tensor, own) for tensor in samples)) for own in cut]


def _looked_up(data: Data) -> Data:
    """The same data as tensors."""
    train, test = (tuple(tensor[:] for tensor in part) for part in (data.train, data.test))
    held_out = data.validation
    return Data(train, test, None if held_out is None else tuple(t[:] for t in held_out))
