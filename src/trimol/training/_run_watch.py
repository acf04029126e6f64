"""A `StepWatch` for the loop: what a run's own steps do to its losses."""

from functools import partial

from torch import Tensor

from trimol.tasks import Batch
from trimol.tasks import _answers as answers
from trimol.training.assessment import samples_in, share_of
from trimol.training.loop import Run, drawn, over_processes, place
from trimol.training.watch import StepWatch


def watched(run: Run, every: int, full_every: int = 0) -> StepWatch:
    """A watch over all parameters of a run's model; a batch is the number of its step.

    Args:
        run: The run.
        every: Steps from one look to the next.
        full_every: Look at the effect on all training data, too, at every so many looks; with 0
            never.

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
        train=share_of(run.data.train, run.task.at_once) if full_every else None,
        full_every=full_every or 1,
        size=partial(samples_in, run.task),
    )


def _losses(run: Run, batch: int | Batch) -> Tensor:
    """F of a batch of training data; of a step's number, F of its whole batch.

    That is all draws together: the mean over processes of this.
    """
    if not isinstance(batch, int):
        return answers.losses(run.task, run.model, place(run, batch))
    (indices,) = run.sampler.indices(batch)
    own = drawn(run, indices)
    if own.counts is None:
        return own.losses
    mean = over_processes(run, own.counts)
    return own.losses * (own.counts / mean.where(mean > 0, 1)).to(own.losses)
