"""A method as it is compared: by itself, or as one of several settings of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimol._failures import BadValue


@dataclass(frozen=True)
class Variant:
    """A method with settings of its own.

    Attributes:
        method: The method's name.
        label: What it is called in tables; the method's name by default.
        lr: α; None: as for the others.
        schedule: ``"constant"``, ``"linear"`` or ``"cosine"``; None: as for the others.
        hyperparameters: The method's own, by name.

    Example:
        >>> Variant("stch", hyperparameters={"mu": 1.0}, label="stch:mu=1").label
        'stch:mu=1'
    """

    method: str
    label: str = ""
    lr: float | None = None
    schedule: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.method)


def variants(methods: Iterable[str | Variant]) -> list[Variant]:
    """Methods by name and variants, as variants: one or more, each under a label of its own.

    >>> [variant.label for variant in variants(["static", Variant("stch", "smooth")])]
    ['static', 'smooth']
    """
    made = [Variant(each) if isinstance(each, str) else each for each in methods]
    labels = [variant.label for variant in made]
    if not made or len(set(labels)) < len(labels):
        raise BadValue(f"methods must be one or more different names, found {labels}")
    return made
