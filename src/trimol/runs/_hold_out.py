"""Validation data for a task that has none: samples of train, to choose settings on."""

from trimol._failures import BadValue
from trimol.tasks import Task
from trimol.tasks import _answers as answers
from trimol.tasks._around import Around

SHARE = 5  # one sample in so many
FEWEST = 10  # samples of train, or none is held out


def count_held_out(task: Task) -> int:
    """How many samples of train become validation data: none where the task has its own.

    Raises:
        BadValue: It has none, and no part of train can take its place.
    """
    data = answers.data(task)
    if data.validation is not None:
        return 0
    samples, own = len(data.train[0]), task
    while isinstance(own, Around):
        own = own.inner
    if type(own).sampler is not Task.sampler or samples < FEWEST:
        why = f"{samples} samples" if samples < FEWEST else "a sampler of its own"
        raise BadValue(
            f"{task.name} must have validation data to choose settings on, found none, and {why}, "
            "so that none can be held out of train"
        )
    return samples // SHARE
