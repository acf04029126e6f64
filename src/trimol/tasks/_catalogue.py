"""Tasks by name: the built-in ones, and those that are announced from outside the library."""

from typing import TYPE_CHECKING

from trimol import _lazy
from trimol._outline import Outline
from trimol._registration import announced

if TYPE_CHECKING:
    from trimol.tasks.task import Task

_BUILT_IN = {
    "digits": "trimol.tasks.digits:Digits",
    "quadratic": "trimol.tasks.quadratic:Quadratic",
    "concave": "trimol.tasks.concave:Concave",
    "classic-toy": "trimol.tasks.classic_toy:ClassicToy",
    "burgers": "trimol.tasks.pinn.burgers:Burgers",
    "poisson": "trimol.tasks.pinn.poisson:Poisson",
    "schroedinger": "trimol.tasks.pinn.schroedinger:Schroedinger",
    "kovasznay": "trimol.tasks.pinn.kovasznay:Kovasznay",
    "helmholtz": "trimol.tasks.pinn.helmholtz:Helmholtz",
    "population": "trimol.tasks.population:Population",
    "conditioned": "trimol.tasks.conditioned:Conditioned",
    "adult": "trimol.tasks.fairness.people:Adult",
    "compas": "trimol.tasks.fairness.people:Compas",
    "german": "trimol.tasks.fairness.people:German",
    "credit": "trimol.tasks.fairness.people:Credit",
    "census": "trimol.tasks.recommenders.census:Census",
    "funnel": "trimol.tasks.recommenders.funnel:Funnel",
    "qm9": "trimol.tasks.molecules.qm9:QM9",
}
# Tasks around another one: several models of it at once, and one that is told a preference.
POPULATION, CONDITIONED = "population", "conditioned"


def names() -> list[str]:
    """The names of all tasks.

    >>> names()[:3]
    ['digits', 'quadratic', 'concave']
    """
    return list(_places())


def get(name: str) -> "type[Task]":
    """The task's class.

    >>> get("digits")
    <class 'trimol.tasks.digits.Digits'>
    """
    task: type[Task] = _lazy.resolve(_lazy.place_of(_places(), name))
    return task


def outline(name: str) -> Outline:
    """What the task's source says, without an import.

    >>> outline("quadratic").value("objectives")
    ('f1', 'f2', 'f3')
    """
    return Outline(_lazy.place_of(_places(), name))


def _places() -> dict[str, str]:
    return {**_BUILT_IN, **announced("TASKS")}
