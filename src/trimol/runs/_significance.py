"""Which differences are named: one rule for `compare`, `diagnose`, `front`, tables and reports."""

from collections.abc import Sequence
from itertools import count

from trimol.runs.statistics import LEVEL, Paired, holm

FEWEST = 5  # seeds from which a difference may be named


def p_values(pairs: Sequence[Paired]) -> list[float | None]:
    """The p value by which each of these differences is judged, adjusted by Holm for all of them.

    The one test behind every difference that is named. None where the seeds are too few for any
    (`seeds_needed`).
    """
    needed = seeds_needed(len(pairs))
    return holm([pair.p if len(pair.base) >= needed else None for pair in pairs])


def is_clear(p: float | None) -> bool:
    """Whether a difference with this p value, adjusted for all others, is named."""
    return p is not None and p < 1 - LEVEL


def seeds_needed(comparisons: int) -> int:
    """How many seeds can name a difference among so many that are looked at.

    With fewer, chance alone makes one of two methods collapse with every seed, and the other with
    none, in more than one study in twenty.

    >>> seeds_needed(1), seeds_needed(25), seeds_needed(26)
    (5, 5, 6)
    """
    return next(n for n in count(FEWEST) if comparisons * 2 / 4**n < 1 - LEVEL)


def too_few(seeds: int, comparisons: int) -> str:
    """That so many seeds name no difference, and how many would; empty where they are enough.

    >>> too_few(3, 12)
    '3 seeds cannot tell a difference from luck: 5 seeds at least to name one (of 12 compared)'
    """
    needed = seeds_needed(comparisons)
    if seeds >= needed:
        return ""
    found = "one seed" if seeds == 1 else f"{seeds} seeds"
    return (
        f"{found} cannot tell a difference from luck: {needed} seeds at least to name one "
        f"(of {comparisons} compared)"
    )
