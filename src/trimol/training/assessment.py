"""What a run has come to: its losses, metrics and three errors, over all of its data."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trimol.errors import Errors, measure
from trimol.gradients import _reduce as reduce
from trimol.tasks import Batch, Task
from trimol.tasks import _answers as answers
from trimol.training._kept import groups_kept, task_kept
from trimol.training._modes import evaluating, training
from trimol.training._random import random_numbers
from trimol.training.loop import Run, scalar
from trimol.training.records import ERRORS, Record, from_errors


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
        kept: How many of the steps kept λ because an objective was absent.
    """

    step: int
    samples: int
    losses: dict[str, float]
    metrics: dict[str, float]
    weights: dict[str, float]
    errors: Errors
    kept: int = 0

    @property
    def record(self) -> Record:
        """All of it as one flat record (:mod:`trimol.training.records`)."""
        return from_errors(
            self.errors,
            list(self.weights),
            step=self.step,
            samples=self.samples,
            kept=self.kept,
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
    with run_kept(run), evaluating(run.model):
        train, test = (_share(data, run.task.at_once) for data in (run.data.train, run.data.test))
        errors = measure(
            lambda batch: answers.losses(run.task, run.model, _copied(batch, run.where.device)),
            run.method.params,
            train=train,
            test=test,
            weights=weights,
            rho=rho,
            size=lambda batch: sample_counts(run.task, batch),
        )
    names = run.task.objectives
    return Assessment(
        step=run.step,
        samples=run.samples,
        losses=dict(zip(names, errors.test_losses or (), strict=True)),
        metrics=metrics(run.task, run.model, run.data.test, device=run.where.device),
        weights=dict(zip(names, weights.tolist(), strict=True)),
        errors=errors,
        kept=int(run.method.kept),
    )


def metrics(
    task: Task, model: nn.Module, data: Batch, *, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """The task's metrics over whole data, in eval mode and without gradients.

    From sums over batches (`Task.tally`, `Task.conclude`), so exact however the data is batched.
    Under several processes call it on each with all of the data; they share the work.

    Args:
        task: What is measured.
        model: The model; every module is left in the mode it was in.
        data: Such as ``task.data().validation``.
        device: Where the model is.

    Example:
        >>> from trimol.tasks import get
        >>> task = get("digits")()
        >>> list(metrics(task, task.model(), task.data().test))
        ['accuracy']
    """
    return _concluded(task, _sums(task, model, data, partial(answers.tally, task), device))


def mean_losses(
    task: Task, model: nn.Module, data: Batch, *, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """The loss of each objective over whole data, in eval mode and without gradients.

    Each is the mean over its own samples (`Task.counts`), exact however the data is batched; the
    arguments are those of `metrics`.

    Example:
        >>> from trimol.tasks import get
        >>> task = get("digits")()
        >>> list(mean_losses(task, task.model(), task.data().test))
        ['cross-entropy', 'MSE', 'Huber']
    """
    return _means(task, _sums(task, model, data, partial(_loss_tally, task), device))


def scored(
    task: Task, model: nn.Module, data: Batch, *, device: torch.device | str = "cpu"
) -> tuple[dict[str, float], dict[str, float]]:
    """`mean_losses` and `metrics` from one pass over the data, with their arguments.

    Example:
        >>> from trimol.tasks import get
        >>> task = get("digits")()
        >>> losses, own = scored(task, task.model(), task.data().test)
        >>> list(losses), list(own)
        (['cross-entropy', 'MSE', 'Huber'], ['accuracy'])
    """

    return _scores(task, _sums(task, model, data, partial(_both_tallies, task), device))


def scored_in_parts(
    task: Task,
    model: nn.Module,
    data: Batch,
    parts: int,
    *,
    device: torch.device | str = "cpu",
) -> list[dict[str, float]]:
    """Return losses and metrics by name without one part of the data at a time (the jackknife).

    It takes one pass over the data: a part's share of each sum is subtracted from the whole.

    Example:
        >>> from trimol.tasks import get
        >>> task = get("digits")()
        >>> len(scored_in_parts(task, task.model(), task.data().test, 10))
        10
    """
    tally = partial(_both_tallies, task)
    count = min(parts, len(data[0]))
    each = [
        _sums(task, model, tuple(tensor[at::count] for tensor in data), tally, device)
        for at in range(count)
    ]
    whole = {name: torch.stack([own[name] for own in each]).sum(0) for name in each[0]}
    others = [{name: whole[name] - own[name] for name in whole} for own in each]
    scores = [_scores(task, sums) for sums in others if count > 1]
    return [{**losses, **own} for losses, own in scores]


def _both_tallies(task: Task, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    own = {f"metric/{name}": value for name, value in answers.tally(task, model, batch).items()}
    return own | _loss_tally(task, model, batch)


def _scores(task: Task, sums: Mapping[str, Tensor]) -> tuple[dict[str, float], dict[str, float]]:
    own = {key.removeprefix("metric/"): v for key, v in sums.items() if key.startswith("metric/")}
    return _means(task, sums), _concluded(task, own)


def _loss_tally(task: Task, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    vector = answers.losses(task, model, batch, graph=False).double()
    counts = torch.as_tensor(sample_counts(task, batch)).to(vector).expand_as(vector)
    return {"losses": vector * counts, "counts": counts}


def _concluded(task: Task, sums: Mapping[str, Tensor]) -> dict[str, float]:
    """The metrics; none may be called as an error is, beside which it stands in every table."""
    return answers.conclude(task, sums, taken=ERRORS)


def _means(task: Task, sums: Mapping[str, Tensor]) -> dict[str, float]:
    return dict(zip(task.objectives, (sums["losses"] / sums["counts"]).tolist(), strict=True))


def _sums(
    task: Task,
    model: nn.Module,
    data: Batch,
    tally: Callable[[nn.Module, Batch], Mapping[str, Tensor]],
    device: torch.device | str,
) -> dict[str, Tensor]:
    """What a tally adds up to over all batches and all processes."""
    sums: dict[str, Tensor] = {}
    with task_kept(task, model, data, device=device), evaluating(model), torch.no_grad():
        for batch in _share(data, task.at_once):
            told = tally(model, _copied(batch, device))
            # In float64 whole numbers stay exact up to 2⁵³.
            own = {name: value.cpu().double() for name, value in told.items()}
            sums = answers.added(task, sums, own) if sums else own
    return _over_processes(sums, torch.device(device))


def next_weights(run: Run) -> Tensor:
    """λ_{t+1}, which the next batch gives at the present x; the run stays as it was.

    A step that keeps λ (it is not due, or an objective is absent from its batch) gives λ as it is.
    """
    method = run.method
    if int(method.step) > run.step or not method.due:  # inside a step, or a step that keeps λ
        return method.weights
    state, info = copy.deepcopy(method.state_dict()), method.info
    with run_kept(run), training(run.model), random_numbers(run):
        scalar(run)
    weights = method.weights.clone()  # loading the state writes into the tensor itself
    method.load_state_dict(state)
    method.info = info
    return weights


@contextmanager
def run_kept(run: Run) -> Iterator[None]:
    """After this, the run goes on as if it had not been, but for the method's state."""
    random = run.random
    try:
        with task_kept(*run.parts, device=run.where.device), groups_kept(run.optimizer):
            yield
    finally:
        run.random = random


def _copied(batch: Batch, device: torch.device | str) -> Batch:
    """A batch on a device, where losses may change it in place: the data stay as they are."""
    return tuple(tensor.to(device, copy=True) for tensor in batch)


def batches(data: Batch, size: int = Task.at_once) -> list[Batch]:
    """All of the data in as few batches (views) as hold at most ``size`` samples each.

    >>> [len(x) for x, in batches((torch.arange(10),), size=4)]
    [4, 3, 3]
    """
    return _cut(data, math.ceil(len(data[0]) / size))


def _share(data: Batch, size: int) -> list[Batch]:
    """This process's share of the data, in as many batches as every other's."""
    processes = reduce.processes()
    most = math.ceil(len(data[0]) / processes)
    mine = _cut(data, processes)[dist.get_rank() if processes > 1 else 0]
    return _cut(mine, math.ceil(most / size))


def sample_counts(task: Task, batch: Batch) -> float | Tensor:
    """How many samples a batch holds, of each objective if they differ."""
    counts = answers.counts(task, batch)
    return len(batch[0]) if counts is None else counts


def _cut(data: Batch, parts: int) -> list[Batch]:
    """The data in parts whose sizes differ by one at most."""
    # What is looked up when asked for is so looked up once, here.
    return list(zip(*(tensor[:].tensor_split(parts) for tensor in data), strict=True))


def _over_processes(sums: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The sums of all processes together, from one small exchange."""
    if not sums or not reduce.is_distributed():
        return sums
    flat = torch.cat([value.reshape(-1) for value in sums.values()])
    joined = reduce.mean_small(flat.to(device)).cpu() * reduce.processes()
    parts = joined.split([value.numel() for value in sums.values()])
    return {name: part.view_as(sums[name]) for name, part in zip(sums, parts, strict=True)}
