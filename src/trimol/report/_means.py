"""Means over seeds, and how far to trust them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trimol.runs.statistics import quantile


@dataclass(frozen=True)
class Estimate:
    """The mean of some runs' values and its confidence interval.

    Attributes:
        mean: The mean of the finite values; NaN if there is none.
        half: Half the width of the 95 % Student-t interval of the mean; None for fewer than two.
        n: How many values are finite.
        total: How many values there are.
    """

    mean: float
    half: float | None
    n: int
    total: int

    @property
    def low(self) -> float:
        """The interval's lower end; the mean itself where there is no interval."""
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end; the mean itself where there is no interval."""
        return self.mean + (self.half or 0.0)


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and 95 % confidence interval (Student's t) of the values that are finite.

    Values that are not finite are left out of the mean but counted, so that the reader can be told.

    Args:
        values: One value per run.

    Example:
        >>> found = estimate([1.0, 2.0, 3.0, float("nan")])
        >>> found.mean, round(found.half, 3), found.n, found.total
        (2.0, 2.484, 3, 4)
    """
    # As `trimol.runs.statistics.interval`, whose exact sums take too long for every point of every
    # curve.
    given = list(values)
    finite = [value for value in given if math.isfinite(value)]
    n = len(finite)
    if not n:
        return Estimate(math.nan, None, 0, len(given))
    # Scaled, so that values near the largest float do not overflow when squared.
    scale = max(map(abs, finite)) or 1.0
    mean = math.fsum(value / scale for value in finite) / n
    half = None
    if n > 1:
        squares = math.fsum((value / scale - mean) ** 2 for value in finite)
        half = scale * (quantile(n - 1) * math.sqrt(squares / (n - 1) / n))
    return Estimate(mean * scale, half, n, len(given))
