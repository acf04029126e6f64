"""What a task is: everything that is trained and measured, and nothing about how."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from trimol._checks import positive
from trimol._failures import BadType, BadValue
from trimol.data import GrowingBatches, IndependentDraws
from trimol.gradients import Losses

Batch = tuple[Tensor, ...]
Better = Literal["higher", "lower"]
Goals = Mapping[str, Mapping[str, Better]]
# How the number of samples is called among the sums of `Task.tally`: no metric's name.
SAMPLES = "samples of the means"


@dataclass(frozen=True)
class Data:
    """Data in memory: tensors whose first dimension are the samples.

    Attributes:
        train: What is trained on, e.g. inputs and labels.
        test: What is not, built alike.
        validation: Held out of both, built alike, to choose settings on; None where there is none.
    """

    train: Batch
    test: Batch
    validation: Batch | None = None

    def __post_init__(self) -> None:
        for name in ("train", "test", "validation"):
            samples = getattr(self, name)
            _check_samples(name, samples)
            if samples is not None and len(samples) != len(self.train):
                raise BadValue(
                    f"{name} must hold as many tensors as train, {len(self.train)}, found "
                    f"{len(samples)}"
                )


def holding_out(data: Data, count: int) -> Data:
    """The data, with so many samples of train, always the same, as validation data instead.

    >>> held = holding_out(Data(train=(torch.arange(10),), test=(torch.arange(3),)), 2)
    >>> [len(part[0]) for part in (held.train, held.validation)]
    [8, 2]
    """
    samples = len(data.train[0])
    if not 0 < count < samples:
        raise BadValue(f"hold_out must be from 1 to {samples - 1}, found {count}")
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(0))
    held, kept = (places.sort().values for places in (order[:count], order[count:]))
    return Data(
        train=tuple(tensor[kept] for tensor in data.train),
        test=data.test,
        validation=tuple(tensor[held] for tensor in data.train),
    )


def _check_samples(name: str, samples: Any) -> None:
    if samples is None and name == "validation":
        return
    if not isinstance(samples, tuple | list) or not samples:
        raise BadType(
            f"{name} must be a tuple of tensors, one sample a row, such as (inputs, labels), found "
            f"{type(samples).__name__}"
        )
    for place, tensor in enumerate(samples):
        if not _holds_samples(tensor):
            kind = f"{tensor.layout} one" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise BadType(f"{name}[{place}] must be a tensor with one sample a row, found {kind}")
    sizes = [len(tensor) for tensor in samples]
    if len(set(sizes)) > 1:
        raise BadValue(
            f"{name} must hold tensors with as many samples each, found "
            f"{', '.join(map(str, sizes))}"
        )
    if not sizes[0]:
        raise BadValue(f"{name} must hold at least one sample, found none")


def _holds_samples(value: Any) -> bool:
    """Whether it can be indexed by the numbers of samples: a tensor, or what loads them lazily."""
    if isinstance(value, Tensor):
        return value.dim() > 0 and value.layout == torch.strided
    lazy = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return lazy and not isinstance(value, Sequence | Mapping | np.ndarray)


@dataclass(frozen=True)
class Settings:
    """How a method is run on a task.

    Attributes:
        lr: α, the step size of the task's optimizer.
        method: The method's own hyper-parameters, by name.
    """

    lr: float = 0.1
    method: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        if not isinstance(self.method, Mapping):
            raise BadType(f"method must be a mapping, found {type(self.method).__name__}")


def summed(metrics: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """What adds up over batches to means over samples: metrics times samples, and the samples."""
    sums = {name: float(value) * count for name, value in metrics.items()}
    if sums:
        sums[SAMPLES] = float(count)
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in sums.items()}


class Task(ABC):
    """A model, its losses, data and metrics. A task of your own is one small class.

    Its options are the keyword arguments of its constructor. `trimol.tasks.load` finds a task by
    its name, or your own by the path of its file.

    Attributes:
        name: What to call it.
        objectives: The names of the M losses, in their order; of the class, or set by an option.
        goals: For each objective the metrics that judge it, and which way is better: such as
            ``{"depth": {"abs err": "lower"}}``. What is not judged by a metric has none.
        settings: How to run a method, by its name, where `Settings()` will not do.
        batch_size: Samples a step of a command that is not told.
        at_once: Samples of one pass of a measurement: fewer where samples are large.
        hold_out: Where `data` has no validation data, so many samples of train become it; set by
            what chooses settings on a task without.

    Example:
        A line through points that a second loss wants to be flat:

        >>> import torch
        >>> class Line(Task):
        ...     name = "line"
        ...     objectives = ("fit", "slope")
        ...
        ...     def model(self):
        ...         return nn.Linear(1, 1)
        ...
        ...     def losses(self, model, batch):
        ...         x, y = batch
        ...         return [(model(x) - y).square().mean(), model.weight.square().sum()]
        ...
        ...     def data(self):
        ...         x = torch.linspace(-1, 1, 200)[:, None]
        ...         return Data(train=(x[::2], 3 * x[::2]), test=(x[1::2], 3 * x[1::2]))
        >>> from trimol.training import start, train
        >>> run = train(start(Line(), "static", seed=1), steps=100)
        >>> abs(run.model.weight.item() - 0.75) < 0.05  # ¾: between a slope of 3 and of 0
        True
    """

    name: ClassVar[str]
    objectives: tuple[str, ...]
    goals: Mapping[str, Mapping[str, Better]] = {}
    settings: ClassVar[Mapping[str, Settings]] = {}
    batch_size: int = 64
    at_once: int = 1024
    hold_out: int = 0

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model, its parameters drawn from global random numbers, which the run seeds."""

    @abstractmethod
    def losses(self, model: nn.Module, batch: Batch) -> Losses:
        """The M losses of a batch, each a mean over its samples (those that `counts` counts)."""

    @abstractmethod
    def data(self) -> Data:
        """The data, the same at every call."""

    def data_for(self, seed: int) -> Data:
        """The data of the run with this seed: `data`, unless the seed decides the split, too.

        Every seed has as many samples of each kind.
        """
        return self.data()

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """What else is worth knowing about a batch, each a mean over its samples."""
        return {}

    def tally(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """What adds up over batches to what `conclude` needs: sums, counts, confusion matrices.

        Called on test and validation data, without gradients and in eval mode. By default the sums
        over samples of `metrics`.
        """
        return summed(self.metrics(model, batch), len(batch[0]))

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics, by name, from the sums of `tally` over all batches.

        By default the means over samples of `metrics`: exact for batches of any sizes.
        """
        # In single precision, as models compute: a mean of yes and no times its number of samples
        # is a whole number again.
        totals = {name: sums[name].float().item() for name in sums if name != SAMPLES}
        return {name: total / sums[SAMPLES].item() for name, total in totals.items()}

    def counts(self, batch: Batch) -> Tensor | None:
        """How many samples (or labelled pixels) of a batch each objective has: M numbers.

        None, the default: every sample has every objective. Loss m is the mean over *its* samples.
        An objective that a batch has no sample of is absent from it: its loss must be 0, and
        connected to the graph, as `trimol.tasks.masked_mean` gives it.
        """
        return None

    def point(
        self, model: nn.Module, preference: Sequence[float], member: int | None
    ) -> tuple["Task", nn.Module]:
        """One point of the front that a model holds, where it holds several: a task and its model.

        By default the task itself and the model: there is one point.

        Args:
            model: A trained model of this task.
            preference: Which point, on the simplex, for a model that is told it; else empty.
            member: Which one of several models; None where there is one.
        """
        return self, model

    def true_front(self, batch: Batch, points: int) -> Tensor | None:
        """The true Pareto front of these samples, points × M; None, the default: it is not known.

        For tasks with a known answer, which `trimol.runs.front` then holds its points against.

        Args:
            batch: Samples, as `Data` holds them.
            points: How many points, from one end to the other.
        """
        return None

    def sampler(self, data: Data, batch_size: int, *, growth: float, seed: int) -> IndependentDraws:
        """Which samples each step takes: a uniform batch, by default.

        Args:
            data: The task's data.
            batch_size: Samples a step.
            growth: Samples by which the method wants its batch to grow, per step.
            seed: Names the sequence.

        Returns:
            A batch sampler with one index set a step (``k=1``), which the loop splits.
        """
        samples = len(data.train[0])
        if batch_size > samples:
            raise BadValue(
                f"batch_size (--batch-size) must be at most {samples}, the samples of train, found "
                f"{batch_size}"
            )
        return GrowingBatches(samples, batch_size, growth=growth, seed=seed)

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """What moves all parameters of the model, heads included: plain SGD.

        Args:
            params: The model's parameters.
            lr: α, the step size.
        """
        return SGD(params, lr=lr)

    def shared(self, model: nn.Module) -> Iterable[Parameter]:
        """The parameters that the method weighs: all of them.

        Others that the losses reach (task heads) get their own task's plain gradient.
        """
        return model.parameters()

    def representation(self, model: nn.Module) -> nn.Module | None:
        """The module whose outputs are all that the heads see of a batch: the trunk, where one is.

        For methods that look at the gradients there (``needs = "representation"``). None, the
        default: there is no such module, or none that is known.
        """
        return None
