"""Methods by name: the name of a method is that of its file."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trimol import _lazy
from trimol._outline import Outline

if TYPE_CHECKING:
    from trimol.methods.base import Method

_PLACES = {
    place.partition(":")[0].rpartition(".")[2]: place
    for place in _lazy.stubbed(Path(__file__).with_name("algorithms.pyi")).values()
}

DEFAULT = "modo"  # the method of a command that is not told one
BASELINE = "static"  # what others are compared with
COMPARED = (BASELINE, "mgda", DEFAULT)
TRIED = ("mgda", DEFAULT, "upgrad", "stch")  # what has to beat the baseline in a diagnosis
SPREADING = ("stch",)  # what makes a front, for a command that is not told


def names() -> list[str]:
    """The names of all methods, in the order of the documentation.

    >>> names()[:3]
    ['static', 'mgda', 'modo']
    """
    return list(_PLACES)


def get(name: str) -> "type[Method]":
    """The method's class.

    >>> get("modo")
    <class 'trimol.methods.modo.MoDo'>
    """
    method: type[Method] = _lazy.resolve(_lazy.place_of(_PLACES, name, "method"))
    return method


@cache
def outline(name: str) -> Outline:
    """What the method's source says, without an import.

    >>> outline("modo").value("needs")
    'product'
    """
    return Outline(_lazy.place_of(_PLACES, name, "method"))


def spreading() -> list[str]:
    """The names of the methods that make a front, without an import.

    They take a preference, or train several models at once.

    >>> spreading()[0]
    'static'
    """
    return [
        name
        for name in names()
        if any(outline(name).value(how) is not None for how in ("prefers", "spreads"))
    ]


def growth(method: "str | type[Method]") -> float:
    """Samples by which a method wants its batch to grow, per step (`trimol.data.GrowingBatches`).

    >>> growth("mgda")
    0.0
    """
    kind = get(method) if isinstance(method, str) else method
    return float(getattr(kind, "growth", 0.0))
