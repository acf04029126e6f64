r"""Twin runs, what is observed of them, and the estimates of uniform stability that follow.

K twins are pairs of runs on neighbouring data sets with the same random numbers. Of each twin k and
each sample z of a pool we know

.. math:: D_{kz} = \|\nabla F_z(A(S)) - \nabla F_z(A(S'))\|_F^2

and :math:`\epsilon_F^2 = \sup_z \mathbb E_A[D_z]` is wanted. The largest of noisy means is too
large on average; the mean of a sample that *other* twins chose is not, but may miss the largest.
The truth for the pool lies between the two expectations.

Reference:
    L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
    Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 3.1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trimol._failures import BadType, BadValue
from trimol.data import IndependentDraws
from trimol.errors._fulldata import own_rows
from trimol.errors._pareto import stationarity
from trimol.gradients._params import trainable
from trimol.gradients.losses import as_vector
from trimol.tasks import Batch, Data, Task
from trimol.tasks import _answers as answers
from trimol.training._kept import task_kept
from trimol.training._modes import evaluating
from trimol.training._replica_data import Neighbours
from trimol.training.assessment import batches
from trimol.training.replicas import Replicas

Algorithm = Callable[[Data, int], nn.Module]
Interval = tuple[float, float]
# Numbers that the parameters' gradients of a group of twins may hold: 128 MB in float32.
_HELD = 2**25
_RESAMPLES = 1000


# The twins, and their runs.


class Twins:
    """Which sample of each twin's S' is replaced by what, and over which z the supremum goes."""

    def __init__(
        self,
        task: Task,
        twins: int,
        pool: int,
        seed: int,
        held: Batch | None,
        place: int | None,
        substitute: Batch | None,
    ) -> None:
        self.task, self.data = task, answers.data(task)
        if task.counts(tuple(tensor[:1] for tensor in self.data.train)) is not None:
            raise BadValue(
                f"task must have every objective on every sample, for F_z to be defined, found "
                f"{task.name!r}, which counts the samples of each"
            )
        held = self.data.test if held is None else held
        self.samples, size = len(self.data.train[0]), len(held[0])
        if pool > size:
            raise BadValue(f"pool must be at most the {size} held-out samples, found {pool}")
        self.seeds = [seed + k for k in range(twins)]
        (order,) = IndependentDraws(size, size, k=1, seed=seed).indices(0)
        self.pool = [tuple(t[i : i + 1] for t in held) for i in order[:pool].tolist()]
        self.places = self._places(twins, seed, place)
        # After those of the pool, so that z and the substitute are different samples if they can.
        chosen = order.roll(-pool)[torch.arange(twins) % size]
        self.substitutes = tuple(t[chosen] for t in held)
        if substitute is not None:
            self.substitutes = tuple(t.expand(twins, *t.shape[1:]) for t in substitute)

    def _places(self, twins: int, seed: int, place: int | None) -> Tensor:
        if place is None:
            drawn = IndependentDraws(self.samples, twins, k=1, seed=seed, replacement=True)
            return drawn.indices(1)[0]
        if not 0 <= place < self.samples:
            raise BadValue(f"place must be from 0 to {self.samples - 1}, found {place}")
        return torch.full((twins,), place)

    def neighbours(self, low: int, high: int) -> Neighbours:
        """S and S' of some twins, in turn."""
        places = torch.stack([torch.full((high - low,), -1), self.places[low:high]], 1).flatten()
        twice = tuple(t[low:high].repeat_interleave(2, 0) for t in self.substitutes)
        return Neighbours(self.data, places, twice)


class Pairs(NamedTuple):
    """Some twins whose runs are done."""

    gradients: Callable[[Batch], Tensor]  # ∇F of a batch at A(S) and A(S'), twins × 2 × M × d
    first: Callable[[Batch], Tensor]  # ∇F of a batch at A(S), twins × M × d
    distances: Tensor  # ‖A(S) − A(S')‖ of each


def together(twins: Twins, method: str, steps: int, how: Mapping[str, Any]) -> Iterator[Pairs]:
    """All twins as replicas, 2k on S and 2k + 1 on S', in groups that fit into memory."""
    width = sum(p.numel() for p in twins.task.model().parameters())
    group = max(1, _HELD // (2 * width * len(twins.task.objectives)))
    for low in range(0, len(twins.seeds), group):
        high = min(low + group, len(twins.seeds))
        seeds = [seed for seed in twins.seeds[low:high] for _ in range(2)]
        data = twins.neighbours(low, high)
        yield _stacked(Replicas(twins.task, method, seeds=seeds, data=data, **how).train(steps))


def one_by_one(twins: Twins, algorithm: Algorithm) -> Iterator[Pairs]:
    """Twin after twin, run after run."""
    for k, seed in enumerate(twins.seeds):
        pair = twins.neighbours(k, k + 1)
        models = []
        for data in (pair[0], pair[1]):
            with task_kept(twins.task, None):  # both with the same random numbers
                models.append(algorithm(data, seed))
        for model in models:
            if not isinstance(model, nn.Module):
                raise BadType(f"method must return a model, found {type(model).__name__}")
        if models[0] is models[1]:
            raise BadValue("method must return a new model for every run, found the same twice")
        yield _alone(twins.task, models)


def _stacked(replicas: Replicas) -> Pairs:
    apart = [(p[0::2] - p[1::2]).detach().flatten(1) for p in replicas.params.values()]
    return Pairs(
        gradients=lambda batch: replicas.gradients(batch)[1].unflatten(0, (-1, 2)),
        first=lambda batch: replicas.gradients(batch, slice(0, None, 2))[1],
        distances=torch.cat(apart, 1).double().square().sum(1).sqrt(),
    )


def _alone(task: Task, models: Sequence[nn.Module]) -> Pairs:
    def rows(model: nn.Module, batch: Batch) -> Tensor:
        with evaluating(model):
            losses = as_vector(task.losses(model, batch))
        return own_rows(losses, trainable(list(task.shared(model))))

    first, second = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in models)
    return Pairs(
        gradients=lambda batch: torch.stack([rows(model, batch) for model in models])[None],
        first=lambda batch: rows(models[0], batch)[None],
        distances=(first - second).double().square().sum().sqrt()[None],
    )


# What is observed of them.


def observe(twins: Twins, pairs: Pairs) -> tuple[Tensor, ...]:
    """D, ‖A(S) − A(S')‖, V, ‖∇F_test − ∇F_S‖_F and |R_gen| of some twins."""
    squared, total, norms = [], torch.zeros(()), torch.zeros(())
    for z in twins.pool:
        both = pairs.gradients(z).double()
        squared.append((both[:, 0] - both[:, 1]).square().sum((1, 2)))
        total, norms = total + both[:, 0], norms + both[:, 0].square().sum((1, 2))
    # V = (Σ_z ‖∇F_z‖² − ‖Σ_z ∇F_z‖²/count)/(count − 1), in Frobenius norm.
    count = len(twins.pool)
    variance = (norms - total.square().sum((1, 2)) / count) / (count - 1)
    on_train, on_test = (_mean(pairs, part) for part in (twins.data.train, twins.data.test))
    gap = (on_test - on_train).square().sum((1, 2)).sqrt()
    gen = [abs(stationarity(b) - stationarity(a)) for a, b in zip(on_train, on_test, strict=True)]
    return (
        torch.stack(squared, 1),
        pairs.distances,
        variance.clamp_min(0),
        gap,
        torch.tensor(gen, dtype=torch.float64),
    )


def _mean(pairs: Pairs, data: Batch) -> Tensor:
    """∇F at A(S) over all of the data, in float64."""
    total = torch.zeros(())
    for batch in batches(data):
        total = total + pairs.first(batch).double() * len(batch[0])
    return total / len(data[0])


# The estimates of sup_z E[D_z], from D: twins × pool.


def largest_mean(squared: Tensor) -> float:
    """The largest over the pool of the mean over twins: biased upward.

    >>> largest_mean(torch.tensor([[1.0, 4.0], [3.0, 0.0]]))
    2.0
    """
    return float(squared.mean(0).max())


def chosen_mean(squared: Tensor) -> float:
    """The mean of the sample that the other half of the twins chose; both halves in turn.

    Here the first twin would choose the second sample, which is worth 0 to the second twin:

    >>> chosen_mean(torch.tensor([[1.0, 4.0], [3.0, 0.0]]))
    0.5
    """
    return _chosen(squared.double().numpy())


def interval_of_chosen(squared: Tensor, *, seed: int = 0) -> Interval:
    """95 % bootstrap interval of `chosen_mean`, over the twins and over the pool.

    Twins are resampled within their half, so that choosing and judging stay independent.
    """
    array = squared.double().numpy()
    twins, pool = array.shape
    halves = [np.arange(0, twins, 2), np.arange(1, twins, 2)]

    def resampled(generator: np.random.Generator) -> float:
        rows = np.empty(twins, dtype=np.int64)
        for half in halves:
            rows[half] = generator.choice(half, len(half))
        return _chosen(array[rows][:, generator.integers(pool, size=pool)])

    return _percentiles(resampled, seed)


def interval_of_mean(values: Tensor, *, seed: int = 0) -> Interval:
    """95 % bootstrap interval of a mean.

    >>> interval_of_mean(torch.ones(5))
    (1.0, 1.0)
    """
    array = values.double().numpy()
    return _percentiles(lambda random: float(random.choice(array, len(array)).mean()), seed)


def _chosen(squared: npt.NDArray[np.float64]) -> float:
    first, second = squared[0::2].mean(0), squared[1::2].mean(0)
    return float(first[second.argmax()] + second[first.argmax()]) / 2


def _percentiles(resampled: Callable[[np.random.Generator], float], seed: int) -> Interval:
    generator = np.random.default_rng(seed)
    low, high = np.percentile([resampled(generator) for _ in range(_RESAMPLES)], [2.5, 97.5])
    return float(low), float(high)
