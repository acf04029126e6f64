"""A `StepWatch` for the loop: what a run's own steps do to its losses."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from trimol.training.assessment import sample_counts
from trimol.training.loop import Run, drawn, over_processes
from trimol.training.watch import StepWatch


def watched(
    run: Run, every: int, *, train: Sequence[Tensor] | None = None, full_every: int = 1
) -> StepWatch:
    """A watch over all parameters of a run's model; a batch is the number of its step.

    With ``train``, parts of the training data by the numbers of their samples, every so many looks
    are at the effect on these, too, with brackets.

    Example:
        >>> from trimol.tasks import get
        >>> from trimol.training import start, train
        >>> run = start(get("digits")(), "static", optimizer="adam", lr=0.01)
        >>> run.watch = watched(run, every=5)
        >>> train(run, steps=20).watch.summary.looked
        4
    """
    return StepWatch(
        partial(_losses, run),
        run.model.parameters(),
        objectives=run.task.objectives,
        every=every,
        model=run.model,
        train=train,
        full_every=full_every,
        subsample=None if train is None else len(train),
        size=partial(_size, run),
    )


def _size(run: Run, samples: Tensor) -> Any:
    return sample_counts(run.task, tuple(tensor[samples] for tensor in run.data.train))


def _losses(run: Run, batch: int | Tensor) -> Tensor:
    """F of the whole batch of a step, all draws together: the mean over processes of this.

    Or of the samples with these numbers.
    """
    (indices,) = run.sampler.indices(batch) if isinstance(batch, int) else (batch,)
    own = drawn(run, indices)
    if own.counts is None:
        return own.losses
    mean = over_processes(run, own.counts)
    return own.losses * (own.counts / mean.where(mean > 0, 1)).to(own.losses)
