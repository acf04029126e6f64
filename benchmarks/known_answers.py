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

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trimol import methods
from trimol._checks import whole_number
from trimol.methods._registry import TRIED
from trimol.paper.tasks.toy import Toy
from trimol.tasks import Batch, Data, Task
from trimol.tasks._point import Formula, Point
from trimol.tasks.task import Better, Settings

SIZES = {"train": 512, "validation": 256, "test": 256}
STATIC = "static"
FEW = ("upgrad", "stch")  # for the tasks whose runs are expensive


class Known(Formula):
    """Two losses of a point; a subclass brings F and its gradients.

    Args:
        seed: Names the samples.
    """

    objectives: tuple[str, ...] = ("f1", "f2")
    goals: Mapping[str, Mapping[str, Better]] = {"f1": {"worst": "lower"}}
    lr: ClassVar[float] = 0.1
    start: Tensor | Sequence[float] = (0.0, 2.0)
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
        centre = torch.as_tensor(self.start, dtype=torch.float64)
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

    @abstractmethod
    def level(self, x: Tensor) -> Tensor:
        """F(x), before the factors, of shape (..., M)."""

    @abstractmethod
    def slopes(self, x: Tensor) -> Tensor:
        """Its gradients, of shape (..., M, d)."""

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F and the noise of the batch, times the factors."""
        noise = self.noise * (z * x[..., None, :]).sum(-1)
        return torch.tensor(self.factors).to(x) * (self.level(x) + noise)

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """The gradients of these."""
        return torch.tensor(self.factors).to(x)[:, None] * (self.slopes(x) + self.noise * z)

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The larger of the losses, before the factors."""
        return {"worst": self.level(model()).max()}


class Around(Known):
    """Bowls around centres."""

    centres: ClassVar[Sequence[Sequence[float]]]

    def from_centres(self, x: Tensor) -> Tensor:
        """The vectors from every centre, of shape (..., M, d)."""
        return x[..., None, :] - torch.tensor(self.centres).to(x)

    def level(self, x: Tensor) -> Tensor:
        """Half of the squared distances."""
        return self.from_centres(x).square().sum(-1) / 2

    def slopes(self, x: Tensor) -> Tensor:
        """The vectors from the centres."""
        return self.from_centres(x)


class Bowls(Around):
    """Two bowls with minima at (±1, 0): static weights suffice.

    Between the minima the gradients oppose each other: *direction* while x comes down to the
    segment of Pareto points, *stationary* on it. Equal weights end in the middle, which is the
    least ``worst`` there is, so no method can be better.
    """

    name = "bowls"
    noise = 0.1
    centres = ((1.0, 0.0), (-1.0, 0.0))


class Valley(Toy):
    """The paper's toy, from the start where static weights get stuck in a valley.

    With a step size of 0.01 static weights are still in the valley after 1000 steps, and MGDA is
    not. A tuned one (0.1 and more) carries Adam across, to the middle of the front: then static
    suffices,
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


class Concave(Around):
    r"""A concave front, which no weighting reaches: a method is needed.

    :math:`f_m = 1 - e^{-\|x - c_m\|^2}` with c = (±1, 0) (Fonseca and Fleming). The Pareto points
    are the segment between the minima, and every weighted sum is least at an end of it: static
    weights come to ``worst`` = 0.98 at either end, whatever the weights, and the middle, with 0.63,
    is a saddle. It is at a different side of the middle that each run begins, so that no weights
    hold it there. Tchebycheff-like methods end in the middle, min-norm methods on the segment. The
    gradients oppose each other on the way (*direction*), and cancel on the front (*stationary*).
    """

    name = "concave"
    start: Tensor | Sequence[float] = (0.0, 1.0)
    noise = 0.02
    lr = 0.3
    centres: ClassVar[Sequence[Sequence[float]]] = ((1.0, 0.0), (-1.0, 0.0))

    def model(self) -> nn.Module:
        """Somewhere above the segment."""
        side = 0.8 * torch.rand((), dtype=torch.float64) - 0.4
        return Point(torch.stack([side, torch.ones((), dtype=torch.float64)]))

    def level(self, x: Tensor) -> Tensor:
        """One well around each centre."""
        return 1 - torch.exp(-self.from_centres(x).square().sum(-1))

    def slopes(self, x: Tensor) -> Tensor:
        """Their gradients."""
        return 2 * self.from_centres(x) * (1 - self.level(x))[..., None]


class Triangle(Concave):
    """Three minima and a front that no weighting reaches: a method is needed.

    The losses of `Concave`, with minima at the corners of a triangle: the same argument.
    """

    name = "triangle"
    objectives = ("f1", "f2", "f3")
    factors = (1.0, 1.0, 1.0)
    start = (0.0, 0.0, 1.0)
    centres = ((1.1, 0.0, 0.0), (-0.55, 0.95, 0.0), (-0.55, -0.95, 0.0))

    def model(self) -> nn.Module:
        """Somewhere above the triangle."""
        side = 0.6 * torch.rand(2, dtype=torch.float64) - 0.3
        return Point(torch.cat([side, torch.ones(1, dtype=torch.float64)]))


class Scaled(Around):
    """Two bowls, one of them times 30: tuned static weights suffice.

    The long gradient drowns the short one: *scales*. With equal weights x ends near the first
    minimum; weights of 1/31 and 30/31 undo the factor, and give the middle, the least ``worst``.
    """

    name = "scaled"
    factors = (30.0, 1.0)
    lr = 0.003
    centres = ((2.0, 0.0), (-2.0, 0.0))


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
    steep: ClassVar[Sequence[Sequence[float]]] = ((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 2.0, 2.0))

    def level(self, x: Tensor) -> Tensor:
        """One bowl, and a steeper one in some directions."""
        return (torch.tensor(self.steep).to(x) * x[..., None, :].square()).sum(-1) / 2

    def slopes(self, x: Tensor) -> Tensor:
        """Their gradients."""
        return torch.tensor(self.steep).to(x) * x[..., None, :]


class Agreeing(Noise):
    """No conflict at all: static weights suffice.

    The losses of `Noise` with little noise, that vanishes at the minimum: *none*.
    """

    name = "agreeing"
    start = (2.0, 2.0, 2.0, 2.0)
    noise = 0.1
    lr = 0.1

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """The noise is relative to F."""
        return self.level(x) * (1 + self.noise * z.mean(-1))

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """So it is to the gradients."""
        return self.slopes(x) * (1 + self.noise * z.mean(-1))[..., None]


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

    def level(self, x: Tensor) -> Tensor:
        """A common slope, and two bowls in x2 that open towards x1 = 0."""
        gate, sides = self._parts(x)
        slope = (1 + x[..., :1].square()).sqrt() - 1
        # No larger, or the gate makes a minimum of its own at x1 = 1, where equal weights stay.
        return slope + gate * sides.square() / 4

    def slopes(self, x: Tensor) -> Tensor:
        """Their gradients, by x1 and by x2."""
        gate, sides = self._parts(x)
        common = x[..., :1] / (1 + x[..., :1].square()).sqrt()
        first = common - 6 * gate * (1 - gate) * sides.square() / 4
        return torch.stack([first, gate * sides / 2], -1)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """How far the gate is open, (..., 1), and where x2 is from both minima, (..., 2)."""
        return torch.sigmoid(6 * (1 - x[..., :1])), x[..., 1:] - torch.tensor([1.0, -1.0]).to(x)


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

    def level(self, x: Tensor) -> Tensor:
        """A bowl in each parameter."""
        return x.square() / 2

    def slopes(self, x: Tensor) -> Tensor:
        """Each in its own."""
        return torch.diag_embed(x)

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The larger of the losses as they are: the second counts for what it is."""
        return {"worst": (self.level(model()) * torch.tensor(self.factors)).max()}


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
        methods: The methods that are compared with static weights; fewer where a run is expensive.
    """

    task: str
    regimes: tuple[str, ...]
    static: bool = True
    steps: int = 150
    batch_size: int = 16
    options: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""
    seeded: bool = True
    methods: Sequence[str] = TRIED

    @property
    def name(self) -> str:
        """The class's or the task's name, in small letters."""
        return self.task.rpartition(":")[2].lower()


def _own(kind: type[Task], *regimes: str, **others: Any) -> Answer:
    return Answer(f"{Path(__file__)}:{kind.__name__}", regimes, **others)


ANSWERS = (
    _own(Bowls, "direction", "stationary"),
    _own(Valley, "direction", "stationary", steps=300, batch_size=64),
    _own(Concave, "direction", "stationary", static=False),
    _own(Triangle, "direction", "stationary", static=False),
    _own(Scaled, "scales"),
    _own(Noise, "noise"),
    _own(Agreeing, "none"),
    _own(Late, "direction", "stationary"),
    _own(Collapse, "scales", "none", warning="trivial"),
    # Three losses of one classifier that fall together, one of them with long gradients.
    Answer(
        "digits",
        ("none", "scales"),
        steps=60,
        batch_size=64,
        options={"validation": 287},
        methods=FEW,
    ),
    Answer(
        "mnist",
        ("none", "scales"),
        steps=60,
        batch_size=64,
        options={"hidden": 16},
        seeded=False,
        methods=FEW,
    ),
)
