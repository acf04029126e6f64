r"""MOL uniform stability, measured: twin runs on data sets that differ in one sample.

.. math:: \epsilon_F^2 = \sup_z\ \mathbb E_A\big[\|\nabla F_z(A(S)) - \nabla F_z(A(S'))\|_F^2\big]

A twin is two runs with the same seed (the same start, the same numbers of samples at every step),
one on S and one on S', a neighbour of S. What differs in the end is what one sample has done.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.errors._measure import short
from trimol.tasks import Batch, Data, Task
from trimol.training._replicable import NotReplicable
from trimol.training._twins import (
    Algorithm,
    Interval,
    Pairs,
    Twins,
    chosen_mean,
    interval_of_chosen,
    interval_of_mean,
    largest_mean,
    observe,
    one_by_one,
    together,
)
from trimol.training.loop import start, train


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
    batch_size: int | None = None,
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
        batch_size: Samples a step; None: the task's own.
        batched: Whether all twins run as one program (`trimol.training.Replicas`): ``"auto"`` where
            that can be done. Both ways give the same numbers, to rounding.
        held: Samples that were not trained on, built like the training data, to take z and the
            substitutes from; the test data by default.
        place: The number of the training sample to replace, for all twins; drawn by default.
        substitute: What replaces it, one sample (tensors with a first dimension of 1).

    Example:
        >>> from trimol.tasks import get
        >>> result = stability(get("digits")(), "modo", steps=10, twins=4, pool=8, lr=1.0)
        >>> result.gen <= result.gap
        True

    Reference:
        L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way Trade-Off in Multi-Objective Learning:
        Optimization, Generalization and Conflict-Avoidance*, NeurIPS 2023, section 3.1 (Definition
        "MOL uniform stability", Proposition "MOL uniform stability and generalization").
    """
    whole_number("twins", twins, least=4)
    whole_number("pool", pool, least=2)
    plan = Twins(task, twins, pool, whole_number("seed", seed, least=0), held, place, substitute)
    if not isinstance(method, str):
        if steps is not None:
            raise BadValue(f"steps must be left out with a training of your own, found {steps}")
        return _summary(plan, one_by_one(plan, method), batched=False)
    if steps is None:
        raise BadValue("steps must be given with a method's name, found None")
    count = whole_number("steps", steps, least=0)
    how = {"lr": lr, "hyperparameters": hyperparameters, "batch_size": batch_size}
    if batched is not False:
        try:
            return _summary(plan, together(plan, method, count, how), batched=True)
        except (NotReplicable, NotImplementedError):
            if batched is True:
                raise

    def ordinary(data: Data, seed: int) -> nn.Module:
        return train(start(task, method, **how, seed=seed, data=data), count).model  # type: ignore[arg-type]

    return _summary(plan, one_by_one(plan, ordinary), batched=False)


def _summary(plan: Twins, groups: Iterator[Pairs], *, batched: bool) -> Stability:
    """Observe the twins group by group, and sum up."""
    columns = zip(*(observe(plan, pairs) for pairs in groups), strict=True)
    squared, distances, variance, gap, gen = (torch.cat(column) for column in columns)
    seed, largest = plan.seeds[0], math.sqrt(largest_mean(squared))
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
        bound=4 * largest + math.sqrt(spread / plan.samples),
        samples=plan.samples,
        twins=len(plan.seeds),
        pool=len(plan.pool),
        batched=batched,
        squared=squared,
        distances=distances,
    )


def _with(value: float, interval: Interval) -> str:
    return f"{short(value)} [{short(interval[0])}, {short(interval[1])}]"
