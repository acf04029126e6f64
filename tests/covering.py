"""Fewer cases that still meet everything: each value of each parameter, a method of each kind.

``TRIMOL_TESTS=full`` in the environment runs every combination and every method instead.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from trimol import methods

FULL = os.environ.get("TRIMOL_TESTS") == "full"


def in_turn(names: Iterable[Any], *others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every name with one combination of the others; the next name with the next combination.

    After each round one is left out, so that names that come in rounds meet them all.
    """
    combinations = list(product(*others))
    listed = list(names)
    if FULL:
        return [(name, *combination) for name in listed for combination in combinations]
    turns = [(i + i // len(combinations)) % len(combinations) for i in range(len(listed))]
    return [(name, *combinations[turn]) for name, turn in zip(listed, turns, strict=True)]


def one_in(share: int, names: Iterable[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """A share of the product of two lists, of which every entry of either has as much."""
    pairs = product(enumerate(names), enumerate(others))
    return [(name, other) for (i, name), (j, other) in pairs if FULL or (i + j) % share == 0]


def one_of_each_kind(names: Iterable[str]) -> list[str]:
    """The first method of each kind: those with the same evidence, draws and base classes.

    For what a base class does and no method by itself.
    """
    listed = list(names)
    kinds = {_kind(name): name for name in reversed(listed)}
    return listed if FULL else [name for name in listed if name in kinds.values()]


def _kind(name: str) -> tuple[Any, ...]:
    method = methods.get(name)
    return method.needs, method.draws, method.__bases__
