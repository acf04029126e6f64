"""Population: K copies of a task's model, trained at once to be K points of a front."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from trimol import methods
from trimol._checks import count
from trimol.methods._registry import outline
from trimol.tasks import _answers as answers
from trimol.tasks._around import Around
from trimol.tasks.task import Batch, Settings, Task


class Population(Around):
    """K models of another task, and their K·M losses, point after point.

    For `trimol.HVGrad`, which spreads them over the front; any other method works, too. All points
    see the same batches. A method that takes ``points`` is told K by `settings`.

    Args:
        of: The task: a built-in one's name, or ``path/to/file.py:Class``.
        points: K.
        options: The other options are those of the task ``of``.

    Example:
        >>> task = Population(of="quadratic", points=2)
        >>> task.objectives
        ('f1 (1)', 'f2 (1)', 'f3 (1)', 'f1 (2)', 'f2 (2)', 'f3 (2)')
        >>> task.losses(task.model(), task.data().train).shape
        torch.Size([6])
    """

    name: ClassVar[str] = "population"

    def __init__(self, *, of: str = "digits", points: int = 5, **options: Any) -> None:
        self.surround(of, options)
        self.points = count("points", points)
        inner = self.inner
        self.objectives = tuple(_of(m, k) for k in self._places for m in inner.objectives)
        self.goals = {
            _of(objective, k): _renamed(goals, k)
            for k in self._places
            for objective, goals in inner.goals.items()
        }
        self.settings = {**inner.settings, **self._told_points()}  # type: ignore[misc]

    @property
    def _places(self) -> range:
        return range(self.points)

    def _told_points(self) -> dict[str, Settings]:
        """The settings of methods that take ``points``."""
        takes = [
            name
            for name in methods.names()
            if "points" in {parameter.name for parameter in outline(name).parameters}
        ]
        own = {name: self.inner.settings.get(name, Settings()) for name in takes}
        return {
            name: Settings(lr=each.lr, method={**each.method, "points": self.points})
            for name, each in own.items()
        }

    def model(self) -> nn.ModuleList:
        """K new models, each with its own start."""
        return nn.ModuleList(answers.model(self.inner) for _ in self._places)

    def point(
        self, model: nn.Module, preference: Sequence[float], member: int | None
    ) -> tuple[Task, nn.Module]:
        """The task, and one of the models."""
        return self.inner, [*_members(model)][member or 0]

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """The losses of the first model, then those of the second, …"""
        return torch.cat([self.inner_losses(member, batch) for member in _members(model)])

    def counts(self, batch: Batch) -> Tensor | None:
        """Those of the task, K times."""
        counted = answers.counts(self.inner, batch)
        return None if counted is None else counted.repeat(self.points)

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Those of every model."""
        return {
            _of(name, k): value
            for k, member in enumerate(_members(model))
            for name, value in self.inner.metrics(member, batch).items()
        }

    def tally(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The sums of every model."""
        return {
            _of(name, k): value
            for k, member in enumerate(_members(model))
            for name, value in answers.tally(self.inner, member, batch).items()
        }

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics of every model."""
        metrics: dict[str, float] = {}
        for k in self._places:
            ending = _of("", k)
            own = {n.removesuffix(ending): v for n, v in sums.items() if n.endswith(ending)}
            if own:
                metrics |= _renamed(self.inner.conclude(own), k)
        return metrics

    def shared(self, model: nn.Module) -> Iterator[Parameter]:
        """What the task shares in each of its models."""
        for member in _members(model):
            yield from self.inner.shared(member)


def _members(model: nn.Module) -> Iterator[nn.Module]:
    return model.children()


def _of(name: str, point: int) -> str:
    return f"{name} ({point + 1})"


def _renamed(named: Mapping[str, Any], point: int) -> dict[str, Any]:
    return {_of(name, point): value for name, value in named.items()}
