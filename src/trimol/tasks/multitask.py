"""Multi-task learning as tasks: a shared trunk, a head for each objective, labels that are missing.

`MultiInput` has a data set for each objective, `SingleInput` one input with several labels. Both
give the trunk to the method; heads get their own objective's plain gradient. A task of your own is
a subclass (docs/howto/multitask.md has one of each to copy).
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from trimol._failures import BadType, BadValue
from trimol.data import Domains, IndependentDraws
from trimol.tasks.task import Batch, Better, Data, Task


class MultiTask(nn.Module):
    """A trunk that all objectives share, and a head for each.

    Args:
        trunk: From an input to what all heads see.
        heads: From that to an output, by the objective's name.

    Example:
        >>> model = MultiTask(nn.Linear(4, 3), {"size": nn.Linear(3, 1), "kind": nn.Linear(3, 5)})
        >>> x = torch.ones(2, 4)
        >>> model(x, "kind").shape
        torch.Size([2, 5])
        >>> list(model(x))
        ['size', 'kind']
    """

    def __init__(self, trunk: nn.Module, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = nn.ModuleDict(dict(heads))

    def forward(self, x: Tensor, task: str | None = None) -> Any:
        """The output of one head (``task``), or of all by name: from one pass through the trunk."""
        shared = self.trunk(x)
        if task is not None:
            return self.head(task)(shared)
        return {name: head(shared) for name, head in self.heads.items()}

    def head(self, task: str) -> nn.Module:
        """The head of an objective."""
        if task not in self.heads:
            raise _headless(task, self.heads)
        return self.heads[task]


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the entries where the mask holds; exactly 0 where it holds nowhere.

    The 0 is connected to the graph, with a zero gradient: how an objective that is absent from a
    batch says so. What is masked out does not matter, NaN and infinity included; but where the
    *derivative* of a value is not finite (a square of NaN), zero times it is NaN: give missing
    labels a finite number before computing with them.

    Args:
        values: What to take the mean of.
        mask: Which of them count; broadcast to the values.

    Example:
        >>> values = torch.tensor([1.0, float("nan"), 5.0], requires_grad=True)
        >>> masked_mean(values, torch.tensor([True, False, True]))
        tensor(3., grad_fn=<DivBackward0>)
        >>> masked_mean(values, torch.tensor(False))
        tensor(0., grad_fn=<DivBackward0>)
    """
    if mask.dtype != torch.bool:
        raise BadType(f"mask must be of booleans, found {mask.dtype}")
    kept = mask.expand_as(values)
    return torch.where(kept, values, 0).sum() / kept.sum().clamp_min(1)


def concatenated(parts: Sequence[tuple[Tensor, Tensor]]) -> Batch:
    """One data set from one for each objective: inputs, labels, and whose each sample is.

    Args:
        parts: For each objective its inputs and labels.

    Example:
        >>> first = torch.zeros(2, 3), torch.tensor([0, 1])
        >>> second = torch.ones(1, 3), torch.tensor([4])
        >>> x, y, domain = concatenated([first, second])
        >>> y, domain
        (tensor([0, 1, 4]), tensor([0, 0, 1]))
    """
    if not parts:
        raise BadValue("parts must hold the data of at least one objective, found none")
    for number, (x, y) in enumerate(parts):
        if len(x) != len(y):
            raise BadValue(
                f"parts must hold as many inputs as labels, found {len(x)} and {len(y)} in part "
                f"{number}"
            )
    sizes = torch.tensor([len(x) for x, _ in parts])
    return (
        torch.cat([x for x, _ in parts]),
        torch.cat([y for _, y in parts]),
        torch.arange(len(parts)).repeat_interleave(sizes),
    )


class _TrunkAndHeads(Task):
    """What both kinds have in common: the trunk is shared, and one objective can be left alone.

    Args:
        only: Train and measure this objective alone: the single-task baseline, by the same code.
    """

    def __init__(self, *, only: str | None = None) -> None:
        if only is None:
            return
        if only not in self.objectives:
            raise BadValue(f"only must be one of {', '.join(self.objectives)}, found {only!r}")
        self.objectives = (only,)
        self.goals = {name: own for name, own in self.goals.items() if name == only}

    @abstractmethod
    def model(self) -> MultiTask:
        """A new model with a head for each of ``self.objectives``."""

    def shared(self, model: nn.Module) -> Iterable[Parameter]:
        """The parameters that the method weighs: the trunk's."""
        return _multitask(model).trunk.parameters()

    def representation(self, model: nn.Module) -> nn.Module:
        """The trunk."""
        return _multitask(model).trunk


class MultiInput(_TrunkAndHeads):
    """A task with a data set for each objective. A batch is ``(x, y, domain)``.

    ``domain`` says whose a sample is: the place of its objective in ``self.objectives``. A subclass
    gives ``name``, ``objectives``, `model` and `data` (built with `concatenated`, of
    ``self.objectives`` only), and its own `loss` and `score` where it is no classification.
    ``batch_size`` is of each domain (`trimol.data.Domains`).

    Trunk and head run domain by domain: batch normalisation takes its statistics of one domain at
    a time in training.

    Args:
        only: Train and measure this objective alone: the single-task baseline, by the same code.

    Attributes:
        metric: What `score` is called: the metric of an objective is ``"<objective> <metric>"``.
        better: Which way of it is better.

    Example:
        Two clouds of points, each with its own line between its two classes:

        >>> class Clouds(MultiInput):
        ...     name = "clouds"
        ...     objectives = ("left", "right")
        ...
        ...     def model(self):
        ...         return MultiTask(nn.Linear(2, 4), {m: nn.Linear(4, 2) for m in self.objectives})
        ...
        ...     def data(self):
        ...         x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        ...         sides = {"left": (x - 1, x[:, 0] > 0), "right": (x + 1, x[:, 1] > 0)}
        ...         parts = [(x, y.long()) for x, y in (sides[m] for m in self.objectives)]
        ...         half = [(x[:100], y[:100]) for x, y in parts]
        ...         rest = [(x[100:], y[100:]) for x, y in parts]
        ...         return Data(train=concatenated(half), test=concatenated(rest))
        >>> from trimol.training import assess, start, train
        >>> run = train(start(Clouds(), "modo", lr=0.5, batch_size=16), steps=200)
        >>> min(assess(run).metrics.values()) > 0.9
        True
        >>> list(assess(train(start(Clouds(only="left"), "static"), steps=1)).metrics)
        ['left accuracy']
    """

    metric: str = "accuracy"
    better: Better = "higher"

    def __init__(self, *, only: str | None = None) -> None:
        if not self.goals:
            self.goals = {name: {self._metric(name): self.better} for name in self.objectives}
        super().__init__(only=only)

    concatenated = staticmethod(concatenated)

    def loss(self, output: Any, y: Tensor) -> Tensor:
        """The loss of each sample of one domain, from its head's output: cross-entropy."""
        if y.dim() != 1 or y.is_floating_point():
            raise BadValue(
                "labels must be the number of a class for each sample (or override loss), found "
                f"{y.dtype} of shape {tuple(y.shape)}"
            )
        return F.cross_entropy(output, y, reduction="none")

    def score(self, output: Any, y: Tensor) -> Tensor:
        """How well each sample of one domain came out: whether its class is right."""
        right: Tensor = output.argmax(1) == y
        return right

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        """For each objective the mean over its samples; 0 where the batch has none."""
        return [
            _one_each(self.loss(output, y), y.shape[:1], f"loss of {name!r}").mean()
            if len(y)
            else _nothing(_multitask(model), name)
            for name, output, y in self._outputs(model, batch)
        ]

    def tally(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """For each objective the sum of its samples' scores, and how many they are."""
        return {
            name: _sum(self.score(output, y) if len(y) else torch.zeros(0), len(y))
            for name, output, y in self._outputs(model, batch)
        }

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The mean score of each objective."""
        return {
            self._metric(name): _mean(sums[name], f"samples of {name!r} to measure")
            for name in self.objectives
        }

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The mean score of each objective that one batch has samples of."""
        sums = self.tally(model, batch).items()
        return {self._metric(name): total / count for name, (total, count) in sums if count}

    def counts(self, batch: Batch) -> Tensor:
        """How many samples of a batch are of each domain."""
        return batch[2].bincount(minlength=len(self.objectives))

    def sampler(self, data: Data, batch_size: int, *, growth: float, seed: int) -> IndependentDraws:
        """As many samples (``batch_size``) of every domain at every step; ``growth`` must be 0."""
        present = self.counts(data.train)
        for name, count in zip(self.objectives, present.tolist(), strict=True):
            if not count:
                raise BadValue(f"train must have samples of {name!r}, found none")
        return Domains(data.train[2], batch_size, growth=growth, seed=seed)

    def _outputs(self, model: nn.Module, batch: Batch) -> Iterator[tuple[str, Any, Tensor]]:
        """For each objective its name, output and labels: None and no labels where it is absent."""
        x, y, domain = batch
        for number, name in enumerate(self.objectives):
            own = domain == number
            yield name, _multitask(model)(x[own], name) if own.any() else None, y[own]

    def _metric(self, objective: str) -> str:
        return f"{objective} {self.metric}"


class SingleInput(_TrunkAndHeads):
    """A task with one input and a label for each objective. A batch is ``(x, y_1, …, y_M)``.

    A subclass gives ``name``, ``objectives``, ``goals``, `model`, `data` (labels of
    ``self.objectives`` only) and `loss`; `scores` for its metrics. One pass through the trunk
    serves all heads.

    Labels may be missing. By default an integer label below 0 and a float that is not finite say
    so; they are put to 0 before `loss` and `scores` see them, and left out of the means. A task
    whose losses have an entry for each pixel overrides `known` to say which count.

    Args:
        only: Train and measure this objective alone: the single-task baseline, by the same code.

    Example:
        >>> class Signs(SingleInput):
        ...     name = "signs"
        ...     objectives = ("sum", "sign")
        ...     goals = {"sum": {"error": "lower"}, "sign": {"accuracy": "higher"}}
        ...
        ...     def model(self):
        ...         heads = {"sum": nn.Linear(8, 1), "sign": nn.Linear(8, 2)}
        ...         return MultiTask(nn.Linear(3, 8), {m: heads[m] for m in self.objectives})
        ...
        ...     def loss(self, objective, output, y):
        ...         if objective == "sum":
        ...             return (output[:, 0] - y).square()
        ...         return F.cross_entropy(output, y, reduction="none")
        ...
        ...     def scores(self, objective, output, y):
        ...         if objective == "sum":
        ...             return {"error": (output[:, 0] - y).abs()}
        ...         return {"accuracy": output.argmax(1) == y}
        ...
        ...     def data(self):
        ...         x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        ...         labels = {"sum": x.sum(1), "sign": (x.sum(1) > 0).long()}
        ...         labels["sign"][::3] = -1  # not labelled
        ...         all = x, *(labels[m] for m in self.objectives)
        ...         return Data(tuple(t[:200] for t in all), tuple(t[200:] for t in all))
        >>> from trimol.training import assess, start, train
        >>> run = train(start(Signs(), "mgda", lr=0.1), steps=200)
        >>> assess(run).metrics["accuracy"] > 0.9
        True
    """

    @abstractmethod
    def loss(self, objective: str, output: Any, y: Tensor) -> Tensor:
        """The loss of every sample (or pixel) for one objective, from its head's output."""

    def scores(self, objective: str, output: Any, y: Tensor) -> Mapping[str, Tensor]:
        """Metrics of one objective, by name: a number for every sample (or pixel)."""
        return {}

    def known(self, objective: str, y: Tensor) -> Tensor:
        """Which entries of an objective's loss have a label: a mask of the loss's shape.

        By default one entry a sample.
        """
        good = y.isfinite() if y.is_floating_point() else y >= 0
        return good.flatten(1).all(1) if good.dim() > 1 else good

    def losses(self, model: nn.Module, batch: Batch) -> list[Tensor]:
        """For each objective the mean over what has its label; 0 where nothing has."""
        return [
            masked_mean(
                _one_each(self.loss(name, output, y), known.shape, f"loss of {name!r}"), known
            )
            for name, output, y, known in self._outputs(model, batch)
        ]

    def tally(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """For each metric its sum over what has a label, and how many these are."""
        return {
            metric: _sum(
                torch.where(known, _one_each(values, known.shape, f"score {metric!r}"), 0),
                int(known.sum()),
            )
            for name, output, y, known in self._outputs(model, batch)
            for metric, values in self.scores(name, output, y).items()
        }

    def conclude(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The mean of each metric over what has a label."""
        return {name: _mean(pair, f"labels to measure {name!r}") for name, pair in sums.items()}

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The metrics of one batch."""
        means = self.conclude(self.tally(model, batch))
        return {name: torch.tensor(value) for name, value in means.items()}

    def counts(self, batch: Batch) -> Tensor:
        """How many samples (or pixels) of a batch have a label, for each objective."""
        pairs = zip(self.objectives, batch[1:], strict=True)
        return torch.stack([self.known(name, y).sum() for name, y in pairs])

    def _outputs(self, model: nn.Module, batch: Batch) -> Iterator[tuple[str, Any, Tensor, Tensor]]:
        """For each objective its name, output, labels (0 where missing) and which are known."""
        x, *labels = batch
        outputs = _multitask(model)(x)
        for name, y in zip(self.objectives, labels, strict=True):
            if name not in outputs:
                raise _headless(name, outputs)
            known = self.known(name, y)
            yield name, outputs[name], _filled(y, known), known


def _headless(objective: str, heads: Iterable[str]) -> BadValue:
    return BadValue(f"heads must have one for {objective!r}, found {', '.join(heads)}")


def _sum(values: Tensor, count: int) -> Tensor:
    """What adds up over batches to a mean: the sum of values, and of how many."""
    return torch.tensor([values.sum().item(), count], dtype=torch.float64)


def _mean(sum_and_count: Tensor, needed: str) -> float:
    total, count = sum_and_count.tolist()
    if not count:
        raise BadValue(f"data must have {needed}, found none")
    mean: float = total / count
    return mean


def _one_each(values: Tensor, shape: torch.Size, what: str) -> Tensor:
    """A number for each sample (or pixel), neither their mean nor a table of all with all."""
    if values.shape != shape:
        raise BadValue(
            f"{what} must be a number for each sample, of shape {tuple(shape)}, found "
            f"{tuple(values.shape)}"
        )
    return values


def _filled(y: Tensor, known: Tensor) -> Tensor:
    """Labels with 0 in place of those of samples that have none."""
    if known.shape != y.shape[: known.dim()]:
        return y  # the mask is of another shape: whoever gave it knows what to fill
    return y.masked_fill(~known.reshape(*known.shape, *[1] * (y.dim() - known.dim())), 0)


def _nothing(model: MultiTask, objective: str) -> Tensor:
    """0, connected to all that the objective would reach, with zero gradients."""
    reached = chain(model.trunk.parameters(), model.heads[objective].parameters())
    none = torch.tensor(False)
    return torch.stack([masked_mean(p, none.to(p.device)) for p in reached]).sum()


def _multitask(model: nn.Module) -> MultiTask:
    if not isinstance(model, MultiTask):
        raise BadType(f"model must be a MultiTask, found {type(model).__name__}")
    return model
