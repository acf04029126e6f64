"""What a run has come to: its losses, metrics and three errors, over all of its data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from trimol.errors import Errors, measure
from trimol.tasks import Batch, Task
from trimol.training.loop import Run


@dataclass(frozen=True)
class Assessment:
    """How good a model is.

    Attributes:
        losses: The mean test loss of each objective, by its name.
        metrics: The task's metrics on the test data.
        weights: The method's λ at the end, by the objective's name.
        errors: R_opt, R_pop, R_gen and the conflict of these weights.
    """

    losses: dict[str, float]
    metrics: dict[str, float]
    weights: dict[str, float]
    errors: Errors


def assess(run: Run, *, rho: float = 0.0) -> Assessment:
    """Measure a run on all of its data, in eval mode; the run goes on afterwards as it was.

    Args:
        run: The run.
        rho: ρ of the conflict-avoiding weights that the method's are compared with.

    Example:
        >>> from trimol.tasks import get
        >>> from trimol.training import start, train
        >>> result = assess(train(start(get("digits")(), "static"), steps=20))
        >>> list(result.losses), list(result.metrics)
        (['cross-entropy', 'MSE', 'Huber'], ['accuracy'])
    """
    with evaluating(run.model):
        errors = measure(
            lambda batch: run.task.losses(run.model, batch),
            run.method.params,
            train=batches(run.data.train),
            test=batches(run.data.test),
            weights=run.method.weights,
            rho=rho,
        )
        metrics = _metrics(run.task, run.model, batches(run.data.test))
    return Assessment(
        losses=dict(zip(run.task.objectives, errors.test_losses or (), strict=True)),
        metrics=metrics,
        weights=dict(zip(run.task.objectives, run.method.weights.tolist(), strict=True)),
        errors=errors,
    )


def batches(data: Batch, size: int = 1024) -> list[Batch]:
    """All of the data, cut into batches (views) of at most ``size`` samples.

    >>> [len(x) for x, in batches((torch.arange(10),), size=4)]
    [4, 4, 2]
    """
    starts = range(0, len(data[0]), size)
    return [tuple(tensor[low : low + size] for tensor in data) for low in starts]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards every module is in the mode it was found in.

    >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    >>> with evaluating(model):
    ...     print([m.training for m in model])
    [False, False]
    >>> [m.training for m in model]
    [True, False]
    """
    found = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in found:
            module.training = mode


@torch.no_grad()
def _metrics(task: Task, model: nn.Module, data: Sequence[Batch]) -> dict[str, float]:
    """The mean of each metric over the samples of all batches."""
    sums: dict[str, float] = {}
    for batch in data:
        for name, value in task.metrics(model, batch).items():
            sums[name] = sums.get(name, 0.0) + float(value) * len(batch[0])
    samples = sum(len(batch[0]) for batch in data)
    return {name: total / samples for name, total in sums.items()}
