"""Numbers with their uncertainty: means over units, slopes of power laws, fractions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from trimol._failures import BadValue
from trimol.runs.statistics import LEVEL, quantile

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval.

    Attributes:
        estimate: The number.
        low: Lower end.
        high: Upper end.
        n: How many independent units it comes from.
    """

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mean(values: Array) -> Interval:
    """The mean of independent units, by Student's t; without an end for a single one.

    >>> print(mean(np.array([1.0, 2.0, 3.0])))
    2 [-0.484, 4.48]
    """
    values = _checked(values)
    centre = float(values.mean())
    if len(values) < 2:
        return Interval(centre, -np.inf, np.inf, len(values))
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    half = quantile(len(values) - 1) * error
    return Interval(centre, centre - half, centre + half, len(values))


def fraction(events: NDArray[np.bool_]) -> Interval:
    """How often something happened, by Wilson's interval.

    >>> print(fraction(np.array([True] * 10)))
    1 [0.722, 1]
    """
    events = np.asarray(events, dtype=bool)
    if not len(events):
        raise BadValue("events must not be empty")
    found = stats.binomtest(int(events.sum()), len(events)).proportion_ci(LEVEL, method="wilson")
    return Interval(float(events.mean()), float(found.low), float(found.high), len(events))


def slope(x: Array, y: Array, *, resamples: int = 2000, seed: int = 0) -> Interval:
    """The power p of y ∝ x^p: least squares in the logarithms of the means over units.

    The interval is a bootstrap over units, which keeps each unit's whole curve together.

    Args:
        x: K positive numbers.
        y: Units × K; the means over units must be positive.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.

    Example:
        >>> x = np.array([1.0, 2.0, 4.0])
        >>> print(slope(x, np.array([x**-0.5, 2 * x**-0.5])))
        -0.5 [-0.5, -0.5]
    """
    x, y = _checked(x), np.asarray(y, dtype=float)
    if y.ndim != 2 or y.shape[1] != len(x) or len(x) < 2:
        raise BadValue(f"y must have shape units × {len(x)}, found {y.shape}")
    centred = np.log(x) - np.log(x).mean()
    weights = centred / (centred**2).sum()

    def power(means: Array) -> Array:
        # A mean that is not positive has no logarithm: the resample says nothing.
        logs = np.log(np.where(means > 0, means, np.nan))
        return np.asarray(logs @ weights)

    estimate = float(power(y.mean(0)))
    if np.isnan(estimate):
        raise BadValue("y must have positive means over units")
    drawn = np.random.default_rng(seed).integers(len(y), size=(resamples, len(y)))
    powers = power(y[drawn].mean(1))
    low, high = np.nanquantile(powers, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(estimate, float(low), float(high), len(y))


def _checked(values: Array) -> Array:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise BadValue(f"values must be finite numbers in one dimension, found {values!r}")
    return values
