"""A `StepWatch` for the loop: what a run's own steps do to its losses."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from trimol._attributes import attributes_kept
from trimol.training._kept import groups_kept
from trimol.training.assessment import sample_counts
from trimol.training.loop import Run, drawn, over_processes
from trimol.training.watch import StepWatch


def watched(
    run: Run, every: int, *, full_every: int = 0, parts: Sequence[Tensor] | None = None
) -> StepWatch:
    """A watch over all parameters of a run's model; a batch is the number of its step.

    Args:
        run: The run.
        every: Steps from one look to the next.
        full_every: Look at the effect on the training data, too, at every so many looks; with 0
            never.
        parts: Random parts of the training data, by the numbers of their samples, to look at in
            place of all of it: with brackets.

    Example:
        >>> from trimol.tasks import get
        >>> from trimol.training import start, train
        >>> run = start(get("digits")(), "static", optimizer="adam", lr=0.01)
        >>> run.watch = watched(run, every=5, full_every=2)
        >>> seen = train(run, steps=20).watch.summary
        >>> seen.looked, seen.full.looked
        (4, 2)
    """
    return StepWatch(
        partial(_losses, run),
        run.model.parameters(),
        objectives=run.task.objectives,
        every=every,
        model=run.model,
        train=(parts or _all(run)) if full_every else None,
        full_every=full_every or 1,
        subsample=len(parts) if full_every and parts else None,
        size=partial(_size, run),
    )


def _all(run: Run) -> Sequence[Tensor]:
    """The numbers of all training samples, in parts as large as a pass of each process may be."""
    samples = len(run.data.train[0])
    at_once = run.task.at_once * run.where.num_processes
    return torch.arange(samples).tensor_split(math.ceil(samples / at_once))


def _size(run: Run, samples: Tensor) -> float | Tensor:
    return sample_counts(run.task, tuple(tensor[samples] for tensor in run.data.train))


def _losses(run: Run, batch: int | Tensor) -> Tensor:
    """F of the whole batch of a step, all draws together: the mean over processes of this.

    Or of the samples with these numbers.
    """
    (indices,) = run.sampler.indices(batch) if isinstance(batch, int) else (batch,)
    with attributes_kept(*run.parts), groups_kept(run.optimizer):
        own = drawn(run, indices)
    if own.counts is None:
        return own.losses
    mean = over_processes(run, own.counts)
    return own.losses * (own.counts / mean.where(mean > 0, 1)).to(own.losses)
