"""What a run has come to: its losses, metrics and three errors, over all of its data."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trimol.errors import Errors, measure
from trimol.gradients import reduce
from trimol.tasks import Batch, Task
from trimol.training.loop import Run, draws, place, random_numbers
from trimol.training.records import Record, from_errors

BATCH_SIZE = 1024


@dataclass(frozen=True)
class Assessment:
    """How good a model is.

    Attributes:
        step: The steps done.
        samples: The training samples that they took.
        losses: The mean test loss of each objective, by its name.
        metrics: The task's metrics on the test data.
        weights: The method's λ, by the objective's name.
        errors: R_opt, R_pop, R_gen and the conflict of these weights.
    """

    step: int
    samples: int
    losses: dict[str, float]
    metrics: dict[str, float]
    weights: dict[str, float]
    errors: Errors

    @property
    def record(self) -> Record:
        """All of it as one flat record (:mod:`trimol.training.records`)."""
        return from_errors(
            self.errors,
            list(self.weights),
            step=self.step,
            samples=self.samples,
            metrics=self.metrics,
            weights=list(self.weights.values()),
        )


def assess(run: Run, *, rho: float = 0.0) -> Assessment:
    """Measure a run on all of its data, in eval mode; the run goes on afterwards as it was.

    The weights are those of the paper's E_ca(x_t, λ_{t+1}): what the method makes of the *next*
    batch at the present x. Inside a step (as `watch` of `trimol.training.train`) they are known
    already; between steps they are computed and forgotten again.

    Under several processes call it on each; they share the work.

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
    weights = next_weights(run)
    train, test = _share(run, run.data.train), _share(run, run.data.test)
    with evaluating(run.model):
        errors = measure(
            lambda batch: run.task.losses(run.model, place(run, batch)),
            run.method.params,
            train=train,
            test=test,
            weights=weights,
            rho=rho,
        )
        metrics = _metrics(run.task, run.model, [place(run, batch) for batch in test])
    names = run.task.objectives
    return Assessment(
        step=run.step,
        samples=run.samples,
        losses=dict(zip(names, errors.test_losses or (), strict=True)),
        metrics=metrics,
        weights=dict(zip(names, weights.tolist(), strict=True)),
        errors=errors,
    )


def next_weights(run: Run) -> Tensor:
    """λ_{t+1}, which the next batch gives at the present x; the run stays as it was."""
    method = run.method
    if int(method.step) > run.step or not method.due:  # inside a step, or a step that keeps λ
        return method.weights
    state, info = copy.deepcopy(method.state_dict()), method.info
    buffers = [buffer.clone() for buffer in run.model.buffers()]
    random = run.random
    with training(run.model), random_numbers(run):
        method(*draws(run))
    weights = method.weights.clone()  # loading the state writes into the tensor itself
    method.load_state_dict(state)
    method.info, run.random = info, random
    for buffer, before in zip(run.model.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return weights


def batches(data: Batch, size: int = BATCH_SIZE) -> list[Batch]:
    """All of the data in as few batches (views) as hold at most ``size`` samples each.

    >>> [len(x) for x, in batches((torch.arange(10),), size=4)]
    [4, 3, 3]
    """
    return _cut(data, math.ceil(len(data[0]) / size))


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
    with _in_mode(model, training=False):
        yield


@contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """The model in training mode; afterwards every module is in the mode it was found in."""
    with _in_mode(model, training=True):
        yield


@contextmanager
def _in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    found = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in found:
            module.training = mode


def _share(run: Run, data: Batch) -> list[Batch]:
    """This process's share of the data, in as many batches as every other's."""
    processes = run.where.num_processes
    most = math.ceil(len(data[0]) / processes)
    mine = _cut(data, processes)[run.where.process_index]
    return _cut(mine, math.ceil(most / BATCH_SIZE))


def _cut(data: Batch, parts: int) -> list[Batch]:
    """The data in parts whose sizes differ by one at most."""
    return list(zip(*(tensor.tensor_split(parts) for tensor in data), strict=True))


@torch.no_grad()
def _metrics(task: Task, model: nn.Module, data: Sequence[Batch]) -> dict[str, float]:
    """The mean of each metric over the samples of all batches, and of all processes."""
    sums: dict[str, float] = {}
    for batch in data:
        for name, value in task.metrics(model, batch).items():
            sums[name] = sums.get(name, 0.0) + float(value) * len(batch[0])
    samples = sum(len(batch[0]) for batch in data)
    if not sums:
        return {}
    *totals, count = reduce.mean_small(torch.tensor([*sums.values(), samples]).double()).tolist()
    return {name: total / count for name, total in zip(sums, totals, strict=True)}
