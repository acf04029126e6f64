"""A `StepWatch` for the loop: what a run's own steps do to its losses."""

from functools import partial

from torch import Tensor

from trimol.training.loop import Run, drawn, over_processes
from trimol.training.watch import StepWatch


def watched(run: Run, every: int) -> StepWatch:
    """A watch over all parameters of a run's model; a batch is the number of its step.

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
    )


def _losses(run: Run, step: int) -> Tensor:
    """F of the whole batch of a step, all draws together: the mean over processes of this."""
    (indices,) = run.sampler.indices(step)
    own = drawn(run, indices)
    if own.counts is None:
        return own.losses
    mean = over_processes(run, own.counts)
    return own.losses * (own.counts / mean.where(mean > 0, 1)).to(own.losses)
