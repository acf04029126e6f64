"""Steps, or passes through the data: two ways to say how long to train."""

from typing import Any

from trimol.cli._parse import task_options
from trimol.cli._reporting import UsageError, usage


def resolved(options: Any, *, default: int) -> int:
    """How many steps a command's options ask for.

    Args:
        options: They have ``steps``, ``epochs``, ``task``, ``batch_size`` and ``option``.
        default: The steps where neither is given.
    """
    if options.steps is not None and options.epochs is not None:
        raise UsageError("give --steps or --epochs, not both")
    if options.epochs is None:
        return default if options.steps is None else int(options.steps)
    from trimol.runs.config import steps_per_epoch

    with usage():
        given = task_options(options.option)
        return int(options.epochs) * steps_per_epoch(options.task, options.batch_size, given)
