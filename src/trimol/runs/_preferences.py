"""Preferences for the points of a front: evenly on the simplex, then more where it is thin."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray

from trimol._checks import number_of_runs
from trimol._failures import BadValue

Weights = tuple[float, ...]  # a preference: on the simplex, one entry per objective
Array = NDArray[np.float64]

# The part of every preference that all objectives share: a loss with no weight at all could end
# anywhere, and many scalarizations need weights above zero.
SHARED = 0.02
# Preferences that are nearer than this to each other are not halved again.
FINEST = 1e-3
_MOST_NUMBERS = 10**7  # of a lattice of preferences
_SAME = 1e-9  # of lengths, to rounding


def even(points: int, objectives: int) -> list[Weights]:
    """So many preferences, evenly on the simplex, the same at every call.

    They are taken from the smallest lattice that has enough of them (I. Das, J. E. Dennis, 1998):
    all of it if the number fits, as it always does for two objectives. Else the corners, and then
    again and again the point that is farthest from those taken. At the corners all but ``SHARED``
    of the weight is on one objective.

    >>> even(3, 2)
    [(0.99, 0.01), (0.5, 0.5), (0.01, 0.99)]
    >>> len(even(11, 3))
    11
    """
    number_of_runs("points", points)
    divisions = next(h for h in range(points + 1) if comb(h + objectives - 1, h) >= points)
    if not divisions:
        return [(1 / objectives,) * objectives]
    if comb(divisions + objectives - 1, divisions) * objectives > _MOST_NUMBERS:
        most = comb(divisions + objectives - 2, divisions - 1)
        raise BadValue(f"points must be at most {most} for {objectives} losses, found {points}")
    lattice = np.array(_compositions(divisions, objectives))
    chosen = lattice[_spread(lattice, points)] / divisions
    return [tuple(row) for row in (SHARED / objectives + (1 - SHARED) * chosen).tolist()]


def thin(preferences: Sequence[Weights], reached: Array, count: int) -> list[Weights]:
    """Preferences for so many more points, where the front is thin; fewer if nothing is left.

    Each is in the middle of two neighbours whose losses are farthest apart, in units of each
    loss's range. Neighbours are preferences with no other one nearer to both (the relative
    neighbourhood graph; for two objectives, those next to each other). The losses of a new point
    are not known yet: they are taken to be in the middle, too.

    Args:
        preferences: Those that were run.
        reached: Their losses, one row each, finite.
        count: How many more.

    Example:
        >>> thin([(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)], np.array([[0, 3], [2, 1], [3, 0.0]]), 1)
        [(0.75, 0.25)]
    """
    at, places = [np.array(p) for p in preferences], [*_in_ranges(reached)]
    new: list[Weights] = []
    while len(new) < count:
        gap, a, b = max(_gaps(np.array(at), np.array(places)), default=(0.0, 0, 0))
        if gap <= _SAME:
            break
        at.append((at[a] + at[b]) / 2)
        places.append((places[a] + places[b]) / 2)
        new.append(tuple(at[-1].tolist()))
    return new


def _compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to write a whole number as so many, the first one large first.

    Bars that part stars: in how many ways they can stand among them.
    """
    places = total + parts - 1
    found = [
        tuple(b - a - 1 for a, b in pairwise((-1, *bars, places)))
        for bars in combinations(range(places), parts - 1)
    ]
    return found[::-1]


def _spread(lattice: NDArray[np.int_], points: int) -> list[int]:
    """The numbers of so many points of a lattice, sorted: corners first, then the farthest."""
    if points == len(lattice):
        return list(range(points))
    corners = np.flatnonzero(lattice.max(1) == lattice.max()).tolist()
    chosen: list[int] = []
    apart = np.full(len(lattice), np.iinfo(lattice.dtype).max)  # from those chosen, squared
    for number in range(points):
        chosen.append(corners[number] if number < len(corners) else int(apart.argmax()))
        apart = np.minimum(apart, np.square(lattice - lattice[chosen[-1]]).sum(-1))
    return sorted(chosen)


def _in_ranges(reached: Array) -> Array:
    """Losses from 0 to 1, each over its range; one that is everywhere the same does not count."""
    low, high = reached.min(0), reached.max(0)
    width = np.where(high > low, high - low, np.inf)
    return np.asarray((reached - low) / width)


def _gaps(at: Array, places: Array) -> Iterator[tuple[float, int, int]]:
    """The distance in losses of every two neighbours that may be halved; of equals, the last."""
    between = np.linalg.norm(at[:, None] - at, axis=-1)
    for a, b in combinations(range(len(at)), 2):
        nearer = np.maximum(between[a], between[b]) < between[a, b] * (1 - _SAME)
        if not nearer.any() and np.abs(at[a] - at[b]).max() > FINEST:
            yield float(np.linalg.norm(places[a] - places[b])), a, b
