"""Tasks by name."""

from trimol.tasks.base import Task
from trimol.tasks.digits import Digits

_TASKS: dict[str, type[Task]] = {task.name: task for task in (Digits,)}


def names() -> list[str]:
    """The names of all built-in tasks.

    >>> names()
    ['digits']
    """
    return list(_TASKS)


def get(name: str) -> type[Task]:
    """The task's class.

    >>> get("digits")
    <class 'trimol.tasks.digits.Digits'>
    """
    if name not in _TASKS:
        raise ValueError(f"name must be one of {', '.join(_TASKS)}, found {name!r}")
    return _TASKS[name]
