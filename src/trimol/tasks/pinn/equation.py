"""What all physics-informed tasks have in common."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from trimol._checks import count, seed
from trimol.tasks._settings import read_settings
from trimol.tasks._shapes import fixed
from trimol.tasks.multitask import masked_mean
from trimol.tasks.pinn._field import Field
from trimol.tasks.task import Batch, Data, Settings, Task

Points = NDArray[np.float64]


class Equation(Task):
    """An equation on a rectangle, as losses of one network: mean squares of what is left over.

    A row of the data is a point for every loss, the exact solution at the first one, which only the
    metric sees, and which of the points count: a loss may have fewer than another. Its own points
    are the first rows. Train on all of them at once, as is the custom in this field:
    ``--batch-size`` is then ``points``.

    Args:
        width: Of the network's hidden layers.
        depth: How many there are.
        points: How many points the equation is trained on.
        conditions: How many points each of the other losses has.
        held_out: How many to choose settings on, and as many to test on.
        points_seed: Names the points.

    Attributes:
        low: The lower left corner of the rectangle.
        high: The upper right one.
        outputs: How many functions are sought.
        twice: The variables in which the equation has second derivatives.
        within: How many losses, the first ones, hold inside, and so at all points.
    """

    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "all")
    low: ClassVar[tuple[float, float]]
    high: ClassVar[tuple[float, float]]
    outputs: ClassVar[int] = 1
    twice: ClassVar[tuple[int, ...]] = (0, 1)
    within: ClassVar[int] = 1

    def __init__(
        self,
        *,
        width: int = 50,
        depth: int = 5,
        points: int = 2000,
        conditions: int = 50,
        held_out: int = 2000,
        points_seed: int = 0,
    ) -> None:
        self.width, self.depth = count("width", width), count("depth", depth)
        self.points, self.conditions = count("points", points), count("conditions", conditions)
        self.held_out, self.points_seed = count("held_out", held_out), seed(points_seed)

    @abstractmethod
    def solution(self, points: Points) -> Points:
        """The exact solution at N points, N × outputs."""

    @abstractmethod
    def drawn(self, random: np.random.Generator, size: int) -> Sequence[Points]:
        """So many points for every loss, each size × 2, uniform where it is said to hold."""

    @abstractmethod
    def left_over(self, model: Field, points: Sequence[Tensor]) -> Sequence[Tensor]:
        """What each loss is the mean square of, at its own points, N × k."""

    def model(self) -> Field:
        """The network."""
        return Field(self.width, self.depth, self.outputs, self.twice)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean squares over the points that count."""
        assert isinstance(model, Field)
        *points, _, own = batch
        masks = own.bool().unbind(1)
        if fixed():
            parts = zip(self.left_over(model, points), masks, strict=True)
            return torch.stack([masked_mean(part.square(), mask[:, None]) for part, mask in parts])
        chosen = [at[mask] for at, mask in zip(points, masks, strict=True)]
        return torch.stack([_mean_square(part) for part in self.left_over(model, chosen)])

    def counts(self, batch: Batch) -> Tensor:
        """How many points every loss has."""
        return batch[-1].sum(0)

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The mean squared distance from the exact solution."""
        return {"MSE": (model(batch[0]) - batch[-2]).square().mean()}

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Adam, as in this field."""
        return Adam(params, lr=lr)

    def data(self) -> Data:
        """Points drawn uniformly, the same for all seeds of a run."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        many, losses = max(self.points, self.conditions), len(self.objectives)
        held, few = [self.held_out] * losses, losses - self.within
        parts = [
            (many, [self.points] * self.within + [self.conditions] * few),
            (self.held_out, held),
            (self.held_out, held),
        ]
        made = [self._part(number, size, own) for number, (size, own) in enumerate(parts)]
        return Data(train=made[0], validation=made[1], test=made[2])

    def _part(self, number: int, size: int, own: Sequence[int]) -> Batch:
        drawn = self.drawn(np.random.default_rng((self.points_seed, number)), size)
        mask = np.arange(size)[:, None] < np.asarray(own)
        arrays = (*drawn, self.solution(drawn[0]), mask)
        return tuple(torch.from_numpy(np.asarray(array)).float() for array in arrays)

    def inside(self, random: np.random.Generator, size: int) -> Points:
        """Points uniform in the rectangle."""
        return random.uniform(self.low, self.high, (size, 2))

    def border(
        self, random: np.random.Generator, size: int, variables: Sequence[int] = (0, 1)
    ) -> Points:
        """Points of the border where one of these variables is at an end, in equal shares."""
        points = self.inside(random, size)
        ends = np.array([self.low, self.high])
        which = random.choice(list(variables), size)
        points[np.arange(size), which] = ends[random.integers(0, 2, size), which]
        return points


def _mean_square(left_over: Tensor) -> Tensor:
    """Over all entries; 0, with a graph, where there are none."""
    return left_over.square().sum() / max(left_over.numel(), 1)


def stacked(*columns: Any) -> Points:
    """Columns side by side."""
    return np.stack(columns, -1)
