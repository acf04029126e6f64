r"""MOL uniform stability, measured: twin runs on data sets that differ in one sample.

.. math:: \epsilon_F^2 = \sup_z\ \mathbb E_A\big[\|\nabla F_z(A(S)) - \nabla F_z(A(S'))\|_F^2\big]

A twin is two runs with the same seed (the same start, the same numbers of samples at every step),
one on S and one on S', a neighbour of S. What differs in the end is what one sample has done.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from trimol._checks import whole_number
from trimol._failures import BadType, BadValue
from trimol.data import IndependentDraws
from trimol.errors._fulldata import own_rows
from trimol.errors._measure import short
from trimol.errors._pareto import stationarity
from trimol.errors._twins import (
    Interval,
    chosen_mean,
    interval_of_chosen,
    interval_of_mean,
    largest_mean,
)
from trimol.gradients._params import trainable
from trimol.gradients.losses import as_vector
from trimol.tasks import Batch, Data, Task
from trimol.training.assessment import batches, evaluating
from trimol.training.loop import start, train
from trimol.training.replicas import Neighbours, NotReplicable, Replicas

Algorithm = Callable[[Data, int], nn.Module]
# Numbers that the parameters' gradients of a group of twins may hold: 128 MB in float32.
_HELD = 2**25


@dataclass(frozen=True)
class Stability:
    """How much one training sample matters, and what that says of generalization.

    ``print(stability)`` shows it in one line. Intervals are 95 %, by bootstrap.

    Attributes:
        epsilon: ε_F: for the sample z that one half of the twins chose, the root of the mean over
            the other half. Not biased upward, but z may not be the worst of the pool.
        epsilon_interval: Its interval, over twins and pool.
        epsilon_max: The same for the z of the largest mean over all twins: biased upward.
        argument: The mean over twins of ‖A(S) − A(S')‖, over all trained parameters.
        argument_interval: Its interval.
        variance: V, the variance over z of ∇F_z(A(S)), from the pool; mean over twins.
        gap: The mean over twins of ‖∇F_test(A(S)) − ∇F_S(A(S))‖_F: what the bound bounds.
        gap_interval: Its interval, over twins.
        gen: The mean over twins of ``|R_gen(A(S))|``, at most `gap`.
        bound: 4 ε_F + √(V/n) with `epsilon_max` (the paper's second proposition).
        samples: n, the size of S.
        twins: How many pairs of runs.
        pool: Over how many z the supremum was taken.
        batched: Whether the twins ran as one program.
        squared: ‖∇F_z(A(S)) − ∇F_z(A(S'))‖_F², twins × pool.
        distances: ‖A(S) − A(S')‖ of each twin.
    """

    epsilon: float
    epsilon_interval: Interval
    epsilon_max: float
    argument: float
    argument_interval: Interval
    variance: float
    gap: float
    gap_interval: Interval
    gen: float
    bound: float
    samples: int
    twins: int
    pool: int
    batched: bool
    squared: Tensor = field(compare=False, repr=False)
    distances: Tensor = field(compare=False, repr=False)

    def __str__(self) -> str:
        return (
            f"epsilon {_with(self.epsilon, self.epsilon_interval)}, max {short(self.epsilon_max)} "
            f"· argument {_with(self.argument, self.argument_interval)} "
            f"· gap {_with(self.gap, self.gap_interval)}, bound {short(self.bound)}"
        )


def stability(
    task: Task,
    method: str | Algorithm,
    *,
    steps: int | None = None,
    twins: int = 20,
    pool: int = 64,
    seed: int = 0,
    lr: float = 0.1,
    hyperparameters: Mapping[str, Any] | None = None,
    batch_size: int = 64,
    batched: bool | Literal["auto"] = "auto",
    held: Batch | None = None,
    place: int | None = None,
    substitute: Batch | None = None,
) -> Stability:
    r"""Measure MOL uniform stability by twin runs, and the generalization bound that follows.

    .. math::
        \mathbb E\|\nabla F(A(S)) - \nabla F_S(A(S))\|_F \le 4 \epsilon_F + \sqrt{n^{-1}\,
        \mathbb E[\mathbb V_z(\nabla F_z(A(S)))]}

    Each twin has a seed of its own (``seed``, ``seed + 1``, …), and its neighbour S' a sample of
    its own replaced by one that is held out. The mean over twins is so a mean over neighbours, too;
    the definition's ε_F is for the worst neighbour. Give ``place`` and ``substitute`` for one
    neighbour of your choice. ∇F_z is taken in eval mode, with respect to the parameters that the
    method weighs.

    Args:
        task: What is trained.
        method: The method's name, or your own training: a function from (data, seed) to the trained
            model, which takes all of its randomness from the seed. It is given `Data` with S or S'
            for ``train``.
        steps: Steps of every run, with a method's name.
        twins: How many pairs of runs, at least 4.
        pool: How many held-out samples z to take the supremum over.
        seed: Decides the seeds of the runs, what is replaced by what, and the pool.
        lr: α, the step size of the task's optimizer.
        hyperparameters: The method's own.
        batch_size: Samples a step.
        batched: Whether all twins run as one program (`trimol.training.Replicas`): ``"auto"`` where
            that can be done. Both ways give the same numbers, to rounding.
        held: Samples that were not trained on, built like the training data, to take z and the
            substitutes from; the test data by default.
        place: The number of the training sample to replace, for all twins; drawn by default.
        substitute: What replaces it, one sample (tensors with a first dimension of 1).

    Example:
        >>> from trimol.tasks import get
        >>> found = stability(get("digits")(), "modo", steps=10, twins=4, pool=8, lr=1.0)
        >>> found.gen <= found.gap <= found.bound
        True

    Reference:
        L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
        Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 3.1 (Definition
        "MOL uniform stability", Proposition "MOL uniform stability and generalization").
    """
    whole_number("twins", twins, least=4)
    whole_number("pool", pool, least=2)
    plan = _Plan(task, twins, pool, whole_number("seed", seed, least=0), held, place, substitute)
    if not isinstance(method, str):
        if steps is not None:
            raise BadValue(f"steps must be left out with a training of your own, found {steps}")
        return plan.result(_one_by_one(plan, method), batched=False)
    if steps is None:
        raise BadValue("steps must be given with a method's name, found None")
    count = whole_number("steps", steps, least=0)
    settings = _Settings(method, count, lr, hyperparameters, batch_size)
    if batched is not False:
        try:
            return plan.result(_together(plan, settings), batched=True)
        except (NotReplicable, NotImplementedError):
            if batched is True:
                raise
    return plan.result(_one_by_one(plan, settings.algorithm(task)), batched=False)


@dataclass(frozen=True)
class _Settings:
    """How every run is made."""

    method: str
    steps: int
    lr: float
    hyperparameters: Mapping[str, Any] | None
    batch_size: int

    def algorithm(self, task: Task) -> Algorithm:
        """The ordinary loop as a function of data and seed."""

        def run(data: Data, seed: int) -> nn.Module:
            begun = start(
                _on(task, data),
                self.method,
                lr=self.lr,
                hyperparameters=self.hyperparameters,
                batch_size=self.batch_size,
                seed=seed,
            )
            return train(begun, self.steps).model

        return run


class _Pairs(Protocol):
    """Some twins whose runs are done."""

    def gradients(self, batch: Batch) -> Tensor:
        """∇F of a batch at A(S) and A(S'): twins × 2 × M × d."""

    def first(self, batch: Batch) -> Tensor:
        """∇F of a batch at A(S): twins × M × d."""

    def distances(self) -> Tensor:
        """‖A(S) − A(S')‖."""


class _Plan:
    """Who is replaced by whom, and over which z the supremum goes."""

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
        self.task, self.data = task, task.data()
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

    def result(self, groups: Iterator[_Pairs], *, batched: bool) -> Stability:
        """Observe the twins group by group, and sum up."""
        seen = [self._observe(pairs) for pairs in groups]
        columns = (torch.cat(column) for column in zip(*seen, strict=True))
        squared, distances, variance, gap, gen = columns
        seed, largest = self.seeds[0], math.sqrt(largest_mean(squared))
        low, high = interval_of_chosen(squared, seed=seed)
        spread = float(variance.mean())
        return Stability(
            epsilon=math.sqrt(chosen_mean(squared)),
            epsilon_interval=(math.sqrt(low), math.sqrt(high)),
            epsilon_max=largest,
            argument=float(distances.mean()),
            argument_interval=interval_of_mean(distances, seed=seed),
            variance=spread,
            gap=float(gap.mean()),
            gap_interval=interval_of_mean(gap, seed=seed),
            gen=float(gen.mean()),
            bound=4 * largest + math.sqrt(spread / self.samples),
            samples=self.samples,
            twins=len(self.seeds),
            pool=len(self.pool),
            batched=batched,
            squared=squared,
            distances=distances,
        )

    def _observe(self, pairs: _Pairs) -> tuple[Tensor, ...]:
        """D, ‖A(S) − A(S')‖, V, ‖∇F_test − ∇F_S‖_F and |R_gen| of some twins."""
        squared, total, norms = [], torch.zeros(()), torch.zeros(())
        for z in self.pool:
            both = pairs.gradients(z).double()
            squared.append((both[:, 0] - both[:, 1]).square().sum((1, 2)))
            total, norms = total + both[:, 0], norms + both[:, 0].square().sum((1, 2))
        count = len(self.pool)
        variance = (norms - total.square().sum((1, 2)) / count) / (count - 1)
        on_train, on_test = (_mean(pairs, part) for part in (self.data.train, self.data.test))
        gap = (on_test - on_train).square().sum((1, 2)).sqrt()
        gen = [
            abs(stationarity(b) - stationarity(a)) for a, b in zip(on_train, on_test, strict=True)
        ]
        return (
            torch.stack(squared, 1),
            pairs.distances(),
            variance.clamp_min(0),
            gap,
            torch.tensor(gen, dtype=torch.float64),
        )


class _Stacked:
    """Twins that ran as replicas: 2k on S, 2k + 1 on S'."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas

    def gradients(self, batch: Batch) -> Tensor:
        rows = self.replicas.gradients(batch)[1]
        return rows.view(-1, 2, *rows.shape[1:])

    def first(self, batch: Batch) -> Tensor:
        return self.replicas.gradients(batch, slice(0, None, 2))[1]

    def distances(self) -> Tensor:
        apart = [(p[0::2] - p[1::2]).detach().flatten(1) for p in self.replicas.params.values()]
        return torch.cat(apart, 1).double().square().sum(1).sqrt()


class _Alone:
    """One twin: two models."""

    def __init__(self, task: Task, models: Sequence[nn.Module]) -> None:
        self.task, self.models = task, models

    def gradients(self, batch: Batch) -> Tensor:
        return torch.stack([self._rows(model, batch) for model in self.models])[None]

    def first(self, batch: Batch) -> Tensor:
        return self._rows(self.models[0], batch)[None]

    def distances(self) -> Tensor:
        first, second = (
            torch.cat([p.detach().flatten() for p in model.parameters()]) for model in self.models
        )
        return (first - second).double().square().sum().sqrt()[None]

    def _rows(self, model: nn.Module, batch: Batch) -> Tensor:
        with evaluating(model):
            losses = as_vector(self.task.losses(model, batch))
        return own_rows(losses, trainable(list(self.task.shared(model))))


def _together(plan: _Plan, settings: _Settings) -> Iterator[_Pairs]:
    """All twins as replicas, in groups that fit into memory."""
    width = sum(p.numel() for p in plan.task.model().parameters())
    group = max(1, _HELD // (2 * width * len(plan.task.objectives)))
    for low in range(0, len(plan.seeds), group):
        high = min(low + group, len(plan.seeds))
        replicas = Replicas(
            plan.task,
            settings.method,
            seeds=[seed for seed in plan.seeds[low:high] for _ in range(2)],
            lr=settings.lr,
            hyperparameters=settings.hyperparameters,
            batch_size=settings.batch_size,
            data=plan.neighbours(low, high),
        )
        yield _Stacked(replicas.train(settings.steps))


def _one_by_one(plan: _Plan, algorithm: Algorithm) -> Iterator[_Pairs]:
    """Twin after twin, run after run."""
    for k, seed in enumerate(plan.seeds):
        pair = plan.neighbours(k, k + 1)
        models = [algorithm(pair[0], seed), algorithm(pair[1], seed)]
        for model in models:
            if not isinstance(model, nn.Module):
                raise BadType(f"method must return a model, found {type(model).__name__}")
        if models[0] is models[1]:
            raise BadValue("method must return a new model for every run, found the same twice")
        yield _Alone(plan.task, models)


def _on(task: Task, data: Data) -> Task:
    """The same task with other data."""
    other = copy.copy(task)
    other.data = lambda: data  # type: ignore[method-assign]
    return other


def _mean(pairs: _Pairs, data: Batch) -> Tensor:
    """∇F at A(S) over all of the data, in float64."""
    total = torch.zeros(())
    for batch in batches(data):
        total = total + pairs.first(batch).double() * len(batch[0])
    return total / len(data[0])


def _with(value: float, interval: Interval) -> str:
    return f"{short(value)} [{short(interval[0])}, {short(interval[1])}]"
