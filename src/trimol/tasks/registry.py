"""Tasks by name."""

from trimol.tasks.base import Task
from trimol.tasks.digits import Digits
from trimol.tasks.lower_bound import StabilityLowerBound
from trimol.tasks.mnist import MNIST, Fashion
from trimol.tasks.nyuv2 import NYUv2
from trimol.tasks.office import Office31, OfficeHome
from trimol.tasks.quadratic import Quadratic
from trimol.tasks.scenes import Scenes
from trimol.tasks.toy import Toy

_TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        Digits,
        MNIST,
        Fashion,
        Toy,
        Quadratic,
        StabilityLowerBound,
        Office31,
        OfficeHome,
        Scenes,
        NYUv2,
    )
}


def names() -> list[str]:
    """The names of all built-in tasks.

    >>> names()[:3]
    ['digits', 'mnist', 'fashion']
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
