"""Small tasks of which it is known what `trimol diagnose` should say.

    trimol diagnose benchmarks/known_answers.py:Concave

Each class says which regimes are right, whether static weights suffice, and why. ``ANSWERS`` lists
them all, with the built-in tasks; ``benchmarks/verdicts.py`` asks and counts.

All but the last two are formulas of a point x: the losses of sample z are F(x) + σ zᵀx (or say
otherwise). The samples of each data set have mean 0 exactly, so that F is what every data set's
mean loss is, and nothing but the noise of a mini-batch is random. The goal is the metric ``worst``,
the larger of the two losses (where they differ in scale: before scaling), lower is better: a model
must do both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trimol import methods
from trimol._checks import whole_number
from trimol.paper.tasks.toy import Toy
from trimol.tasks import Batch, Data, Task
from trimol.tasks._point import Point
from trimol.tasks.task import Better, Settings

SIZES = {"train": 512, "validation": 256, "test": 256}
STATIC = "static"


class Known(Task):
    """Two losses of a point; a subclass brings F.

    Args:
        seed: Names the samples.
    """

    objectives: tuple[str, ...] = ("f1", "f2")
    goals: Mapping[str, Mapping[str, Better]] = {"f1": {"worst": "lower"}}
    lr: ClassVar[float] = 0.1
    start: ClassVar[tuple[float, ...]] = (0.0, 2.0)
    jitter: ClassVar[float] = 0.1
    noise: ClassVar[float] = 0.3
    factors: ClassVar[tuple[float, ...]] = (1.0, 1.0)

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = whole_number("seed", seed, least=0)

    @property
    def settings(self) -> Mapping[str, Settings]:  # type: ignore[override]
        """One step size to begin with, the same for all methods."""
        return dict.fromkeys(methods.names(), Settings(lr=self.lr))

    def model(self) -> nn.Module:
        """The point, a little off its start: by the seed of a run."""
        centre = torch.tensor(self.start, dtype=torch.float64)
        return Point(centre + self.jitter * torch.randn(len(centre), dtype=torch.float64))

    def data(self) -> Data:
        """Samples with mean 0."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        random = torch.Generator().manual_seed(self.seed)
        shape = (len(self.objectives), len(self.start))
        drawn = {
            name: torch.randn(count, *shape, generator=random, dtype=torch.float64)
            for name, count in SIZES.items()
        }
        return Data(**{name: (z - z.mean(0),) for name, z in drawn.items()})

    def values(self, x: Tensor) -> Tensor:
        """F(x), before the factors."""
        raise NotImplementedError

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """F and the noise of the batch, times the factors."""
        x: Tensor = model()
        (z,) = batch
        noise = self.noise * z.mean(0) @ x
        return torch.tensor(self.factors, dtype=x.dtype) * (self.values(x) + noise)

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The larger of the losses, before the factors."""
        return {"worst": self.values(model()).max()}


def _bowls(x: Tensor, centres: Tensor) -> Tensor:
    return (x - centres.to(x)).square().sum(-1) / 2


class Bowls(Known):
    """Two bowls with minima at (±1, 0): static weights suffice.

    Between the minima the gradients oppose each other: *direction* while x comes down to the
    segment of Pareto points, *stationary* on it. Equal weights end in the middle, which is the
    least ``worst`` there is, so no method can be better.
    """

    name = "bowls"
    noise = 0.1

    def values(self, x: Tensor) -> Tensor:
        """Both bowls."""
        return _bowls(x, torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))


class Valley(Toy):
    """The paper's toy, from the start where static weights get stuck in a valley.

    With a step size of 0.01 static weights are still in the valley after 1000 steps, and MGDA is
    not. A tuned one (0.1) carries Adam across, to the middle of the front: then static suffices,
    and that is the right verdict of a comparison that tunes. In the valley the gradients oppose
    each other: *direction*. On the front, where those runs end: *stationary*.
    """

    name = "valley"
    goals: Mapping[str, Mapping[str, Better]] = {"f1": {"worst": "lower"}}

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(data="drawn", seed=seed)

    @property
    def settings(self) -> Mapping[str, Settings]:  # type: ignore[override]
        """A step size with which static weights get through, the same for all methods."""
        return dict.fromkeys(methods.names(), Settings(lr=0.05))

    def model(self) -> nn.Module:
        """A little off the start."""
        off = 0.3 * torch.randn(2, dtype=torch.float64)
        return Point(torch.as_tensor(self.start).double() + off)

    def data(self) -> Data:
        """More samples than the paper's 20; test and validation data are the population."""
        random = torch.Generator().manual_seed(self.seed)
        z = torch.randn(4096, 2, generator=random, dtype=torch.float64)
        population = torch.zeros(1, 2, dtype=torch.float64)
        return Data(train=(z - z.mean(0),), test=(population,), validation=(population,))

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The larger of the two losses."""
        return {"worst": self.losses(model, batch).max()}


class Concave(Known):
    r"""A concave front, which no weighting reaches: a method is needed.

    :math:`f_m = 1 - e^{-\|x - c_m\|^2}` with c = (±1, 0) (Fonseca and Fleming). The Pareto points
    are the segment between the minima, and every weighted sum is least at an end of it: static
    weights come to ``worst`` = 0.98 at either end, whatever the weights, and the middle, with 0.63,
    is a saddle. It is at a different side of the middle that each run begins, so that no weights
    hold it there. Tchebycheff-like methods end in the middle, min-norm methods on the segment. The
    gradients oppose each other on the way (*direction*), and cancel on the front (*stationary*).
    """

    name = "concave"
    start: ClassVar[tuple[float, ...]] = (0.0, 1.0)
    noise = 0.02
    lr = 0.3

    def model(self) -> nn.Module:
        """Somewhere above the segment."""
        side = 0.8 * torch.rand((), dtype=torch.float64) - 0.4
        return Point(torch.stack([side, torch.ones((), dtype=torch.float64)]))

    def values(self, x: Tensor) -> Tensor:
        """Both losses."""
        centres = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).to(x)
        return 1 - torch.exp(-(x - centres).square().sum(-1))


class Triangle(Concave):
    """Three minima and a front that no weighting reaches: a method is needed.

    The losses of `Concave`, with minima at the corners of a triangle: the same argument.
    """

    name = "triangle"
    objectives = ("f1", "f2", "f3")
    factors = (1.0, 1.0, 1.0)
    start = (0.0, 0.0, 1.0)

    def model(self) -> nn.Module:
        """Somewhere above the triangle."""
        side = 0.6 * torch.rand(2, dtype=torch.float64) - 0.3
        return Point(torch.cat([side, torch.ones(1, dtype=torch.float64)]))

    def values(self, x: Tensor) -> Tensor:
        """All three."""
        corners = [[1.1, 0.0, 0.0], [-0.55, 0.95, 0.0], [-0.55, -0.95, 0.0]]
        centres = torch.tensor(corners).to(x)
        return 1 - torch.exp(-(x - centres).square().sum(-1))


class Scaled(Known):
    """Two bowls, one of them times 30: tuned static weights suffice.

    The long gradient drowns the short one: *scales*. With equal weights x ends near the first
    minimum; weights of 1/31 and 30/31 undo the factor, and give the middle, the least ``worst``.
    """

    name = "scaled"
    factors = (30.0, 1.0)
    lr = 0.003

    def values(self, x: Tensor) -> Tensor:
        """Both bowls, far apart."""
        return _bowls(x, torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))


class Noise(Known):
    """One minimum for both losses, and noise that drowns it: static weights suffice.

    The gradients of all the data agree everywhere, those of a mini-batch hardly ever: *noise*. What
    helps is a step size that decays, which static weights have, too. Equal weights average the
    noise of both losses best.
    """

    name = "noise"
    start = (1.0, 1.0, 1.0, 1.0)
    noise = 20.0
    lr = 0.02

    def values(self, x: Tensor) -> Tensor:
        """One bowl, and a steeper one in some directions."""
        steep = torch.tensor([1.0, 1.0, 2.0, 2.0]).to(x)
        return torch.stack([x.square().sum(-1), (steep * x.square()).sum(-1)]) / 2


class Agreeing(Known):
    """No conflict at all: static weights suffice.

    The losses of `Noise` with little noise, that vanishes at the minimum: *none*.
    """

    name = "agreeing"
    start = (2.0, 2.0, 2.0, 2.0)
    noise = 0.1
    lr = 0.1

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """The noise is relative to x."""
        x, (z,) = model(), batch
        return self.values(x) * (1 + self.noise * z.mean((0, 2)))

    def values(self, x: Tensor) -> Tensor:
        """One bowl, and a steeper one in some directions."""
        steep = torch.tensor([1.0, 1.0, 2.0, 2.0]).to(x)
        return torch.stack([x.square().sum(-1), (steep * x.square()).sum(-1)]) / 2


class Late(Known):
    """Conflict that appears late: static weights suffice.

    Both losses want x1 to fall from 4 to 0, and only near 0 they want different things of x2. The
    first steps see no conflict; at the end it is there: *direction* or *stationary*. Equal weights
    end in the middle, the least ``worst``.
    """

    name = "late"
    start = (4.0, 0.5)
    jitter = 0.05
    noise = 0.05
    lr = 0.05

    def values(self, x: Tensor) -> Tensor:
        """A common slope, and two bowls in x2 that open towards x1 = 0."""
        slope = (1 + x[0].square()).sqrt() - 1
        gate = torch.sigmoid(6 * (1 - x[0]))
        # No larger, or the gate makes a minimum of its own at x1 = 1, where equal weights stay.
        sides = torch.stack([x[1] - 1, x[1] + 1]).square() / 4
        return slope + gate * sides


class Collapse(Known):
    """A task on which MGDA runs to a trivial solution: static weights suffice.

    The second loss is nearly flat, and asks for another parameter than the first. λ* is then all on
    it: MGDA moves x2 a little and leaves x1 where it is, at ``worst`` = 2. Static weights take x1
    to its minimum. One gradient is a hundred times as long as the other and not along it:
    *scales*; that both fall is *none*. A warning must name the trivial solution.
    """

    name = "collapse"
    start = (2.0, 1.0)
    noise = 0.02
    factors = (1.0, 0.01)
    lr = 0.1

    def values(self, x: Tensor) -> Tensor:
        """A bowl in each parameter."""
        return x.square() / 2

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The larger of the losses as they are: the second counts for what it is."""
        return {"worst": (self.values(model()) * torch.tensor(self.factors)).max()}


@dataclass(frozen=True)
class Answer:
    """What is right for a task.

    Attributes:
        task: The task.
        regimes: Those that are right.
        static: Whether static weights suffice; else a method is right, whichever.
        steps: The steps of a run.
        batch_size: Samples a step.
        options: The task's options, but for the seed of its data.
        warning: A word that a warning must have.
        seeded: Whether the option ``seed`` names the data.
    """

    task: str
    regimes: tuple[str, ...]
    static: bool = True
    steps: int = 150
    batch_size: int = 16
    options: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""
    seeded: bool = True

    @property
    def name(self) -> str:
        """The class's or the task's name, in small letters."""
        return self.task.rpartition(":")[2].lower()


def _own(kind: type[Task], *regimes: str, **others: Any) -> Answer:
    return Answer(f"{Path(__file__)}:{kind.__name__}", regimes, **others)


ANSWERS = (
    _own(Bowls, "direction", "stationary"),
    _own(Valley, "direction", "stationary", steps=1000, batch_size=64),
    _own(Concave, "direction", "stationary", static=False),
    _own(Triangle, "direction", "stationary", static=False),
    _own(Scaled, "scales"),
    _own(Noise, "noise"),
    _own(Agreeing, "none"),
    _own(Late, "direction", "stationary"),
    _own(Collapse, "scales", "none", warning="trivial"),
    # Three losses of one classifier that fall together, one of them with long gradients.
    Answer("digits", ("none", "scales"), steps=500, batch_size=64, options={"validation": 287}),
    Answer(
        "mnist", ("none", "scales"), steps=500, batch_size=64, options={"hidden": 32}, seeded=False
    ),
)
