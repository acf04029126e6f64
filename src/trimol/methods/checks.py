"""Checks of arguments, for the constructor of your own method."""

from trimol._checks import (
    bounds,
    count,
    fraction,
    nonnegative,
    positive,
    seed,
    simplex,
    vector,
    weights,
)

__all__ = [
    "bounds",
    "count",
    "fraction",
    "nonnegative",
    "positive",
    "seed",
    "simplex",
    "vector",
    "weights",
]
