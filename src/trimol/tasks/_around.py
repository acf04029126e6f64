"""What the tasks have in common that are made around another task."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from trimol.data import IndependentDraws
from trimol.tasks import _answers as answers
from trimol.tasks.loading import load
from trimol.tasks.task import Batch, Data, Task


class Around(Task):
    """A task around another one, whose data, batches and optimizer it has.

    Attributes:
        inner: The other task.
    """

    inner: Task
    objectives: tuple[str, ...] = ()  # known when the other task is

    def surround(self, of: str, options: Mapping[str, Any]) -> None:
        """Make the other task, from its name (or ``path/to/file.py:Class``) and its options."""
        self.inner = load(of, options)
        self.settings = self.inner.settings  # type: ignore[misc]
        self.at_once, self.batch_size = self.inner.at_once, self.inner.batch_size

    def data(self) -> Data:
        """The other task's."""
        return self.inner.data()

    def data_for(self, seed: int) -> Data:
        """The other task's."""
        return self.inner.data_for(seed)

    def sampler(self, data: Data, batch_size: int, *, growth: float, seed: int) -> IndependentDraws:
        """The other task's."""
        return self.inner.sampler(data, batch_size, growth=growth, seed=seed)

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """The other task's, for the parameters of the whole model."""
        return self.inner.optimizer(params, lr)

    def inner_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """The other task's losses as one vector, of a model of its own."""
        return answers.losses(self.inner, model, batch, graph=False)
