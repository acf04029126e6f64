"""Methods by name."""

from trimol.methods.base import Method
from trimol.methods.mgda import MGDA
from trimol.methods.modo import MoDo
from trimol.methods.static import Static

_METHODS: dict[str, type[Method]] = {"static": Static, "mgda": MGDA, "modo": MoDo}


def names() -> list[str]:
    """The names of all methods, in the order of the documentation.

    >>> names()
    ['static', 'mgda', 'modo']
    """
    return list(_METHODS)


def get(name: str) -> type[Method]:
    """The method's class.

    >>> get("modo")
    <class 'trimol.methods.modo.MoDo'>
    """
    if name not in _METHODS:
        raise ValueError(f"name must be one of {', '.join(_METHODS)}, found {name!r}")
    return _METHODS[name]
