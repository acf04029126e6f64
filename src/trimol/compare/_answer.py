"""One rule, three answers: use a method, stay with the baseline, or undecided."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Literal

from trimol.runs.statistics import interval, p_value, quantile

Kind = Literal["use", "stay", "undecided"]
LEVEL, POWER = 0.05, 0.8
FEWEST = 5  # seeds: with fewer, nothing is named
SMALL = 0.05  # a gain that cannot be larger than this share is no reason to change
LEAST = 0.01  # nor is one that is surely above 0, but smaller than this
_MOST_SEEDS = 200  # more than anybody trains


@dataclass(frozen=True)
class Answer:
    """What paired gains over the baseline come to.

    Attributes:
        kind: The answer.
        gain: The mean gain, as a share of the baseline's value.
        ci: Half of its 95 % interval; None for fewer than two seeds.
        p: The chance of so large a gain if there were none; None likewise.
        n: The seeds.
        detectable: The smallest gain that so many seeds find in four of five studies; None where
            the noise is not known.
        more: How many more seeds would decide, in four of five studies, if the gain is what it
            seems; 0 where it is decided, None where that is not known or hopeless.
    """

    kind: Kind
    gain: float
    ci: float | None
    p: float | None
    n: int
    detectable: float | None
    more: int | None

    @property
    def most(self) -> float:
        """The upper end of the interval, at least 0; infinite where there is none."""
        return math.inf if self.ci is None else max(0.0, self.gain + self.ci)


def decide(gains: Sequence[float]) -> Answer:
    """Answer by the gains of one method over the baseline, seed by seed.

    *Use*: the gain is above 0 beyond noise (paired test, 5 %), and at least `LEAST`. *Stay*: it is
    below 0 beyond noise, or its interval ends below `SMALL`. *Undecided*: anything else, and fewer
    than `FEWEST` seeds.

    Example:
        >>> decide([0.12, 0.10, 0.15, 0.11, 0.13]).kind, decide([0.001, -0.002, 0.0, 0.001, 0]).kind
        ('use', 'stay')
        >>> decide([0.3, -0.2, 0.1, 0.2, -0.1]).kind
        'undecided'
    """
    n, mean = len(gains), fmean(gains) if gains else 0.0
    ci, p = interval(gains), p_value(gains)
    noise = stdev(gains) if n > 1 else None
    sure = p is not None and p < LEVEL and n >= FEWEST
    kind: Kind = "undecided"
    if sure and mean >= LEAST:
        kind = "use"
    elif n >= FEWEST and ci is not None and ((sure and mean < 0) or mean + ci <= SMALL):
        kind = "stay"
    return Answer(
        kind=kind,
        gain=mean,
        ci=ci,
        p=p,
        n=n,
        detectable=None if noise is None else noise * detectable(n),
        more=0 if kind != "undecided" else _more(mean, noise, n),
    )


@cache
def detectable(n: int) -> float:
    """Return the gain, in standard deviations of a paired difference, that n seeds find.

    That is, with a chance of 80 %, by a two-sided test at 5 %.

    >>> round(detectable(5), 2), round(detectable(20), 2)
    (1.68, 0.66)
    """
    from scipy.special import nctdtr

    if n < 2:
        return math.inf
    limit = quantile(n - 1, 1 - LEVEL)
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        found = 1 - nctdtr(n - 1, middle * math.sqrt(n), limit)
        low, high = (low, middle) if found >= POWER else (middle, high)
    return high


def _more(mean: float, noise: float | None, n: int) -> int | None:
    """Return how many more seeds would decide.

    That is, find this gain, if there is one, or bound a gain by `SMALL`, if there seems to be none.
    """
    if noise is None:
        return max(FEWEST - n, 0) or None
    if noise == 0:
        return max(FEWEST - n, 0)
    wanted = mean if mean > SMALL / 2 else SMALL
    for seeds in range(max(n + 1, FEWEST), _MOST_SEEDS):
        if noise * detectable(seeds) <= wanted:
            return seeds - n
    return None
