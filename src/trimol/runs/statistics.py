"""What a few seeds allow to say: means, fractions and slopes with intervals, and differences."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from trimol._failures import BadValue

Array = NDArray[np.float64]

LEVEL = 0.95
_LARGE = 100  # so many differences have a mean that is normal enough, whatever they are
_ROUNDING = float(np.finfo(np.float32).eps)
_FINEST = 200  # how many times a step may go into the least distance of two values


def interval(
    values: Sequence[float], level: float = LEVEL, *, resolution: float = 0.0
) -> float | None:
    r"""Half the width of the confidence interval of the mean: t_{n−1} s/√n, of Student's t.

    One value says nothing about its spread, nor do values that are not finite: None. The spread s
    is at least the ``resolution``, the step in which such values move: that a few of them are equal
    does not say that they always are.

    Example:
        >>> round(interval([1.0, 2.0, 3.0]), 4)  # 4.3027 · 1/√3
        2.4841
        >>> round(interval([2.0, 2.0, 2.0], resolution=1.0), 4)
        2.4841
    """
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    least = quantile(len(values) - 1, level) * resolution / math.sqrt(len(values))
    return max(_centre_and_half(values, level)[1], least)


@cache
def quantile(freedom: int, level: float = LEVEL) -> float:
    """Student's t that a two-sided interval of this level reaches to.

    >>> round(quantile(2), 4)
    4.3027
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def p_value(differences: Sequence[float], *, resolution: float = 0.0) -> float | None:
    """The chance of so large a mean if the truth were 0: the paired t test, two-sided, guarded.

    Student's t is that of normal numbers. Trainings that collapse or not, by chance, differ by −1,
    0 or 1 of the same amount, and of a few such differences all may be alike: p is at least the
    chance of this t among those, for even odds.

    A mean that is no larger than the ``resolution`` (`steps_apart`) says nothing, and the spread is
    at least that large: see `interval`. None where that is None.

    Example:
        >>> round(p_value([1.0, 2.0, 3.0]), 4)
        0.0742
        >>> round(p_value([1.0, 1.0, 1.0]), 5)  # 2/4³: three collapses of one, none of the other
        0.03125
        >>> p_value([0.5, 0.5, 0.5], resolution=0.5)
        1.0
    """
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    mean = statistics.mean(differences)
    if abs(mean) <= resolution * (1 + _ROUNDING):
        return 1.0
    n = len(differences)
    spread = max(statistics.stdev(differences), resolution)
    t = abs(mean) / (spread / math.sqrt(n)) if spread else math.inf
    return p_of_t(t, n)


def p_of_t(t: float, n: int) -> float:
    """The chance of |t| as large for the mean of n differences, guarded as `p_value` says.

    >>> round(p_of_t(3.4641, 3), 4)
    0.0742
    """
    from scipy.special import stdtr

    return max(float(2 * stdtr(n - 1, -abs(t))), _chance_of_collapses(abs(t), n))


def _chance_of_collapses(t: float, n: int) -> float:
    """The chance of |t| as large among n differences of −1, 0 and 1 (at ¼, ½ and ¼)."""
    if n > _LARGE:
        return 0.0
    sizes, chances = _collapses(n)
    return float(chances[sizes >= t * (1 - _ROUNDING)].sum())


@cache
def _collapses(n: int) -> tuple[Array, Array]:
    """|t| for every number of ones and minus ones among n, and the chance of each."""
    from scipy.special import gammaln

    ones, minus = (at.ravel() for at in np.indices((n + 1, n + 1)))
    ones, minus = ones[ones + minus <= n], minus[ones + minus <= n]
    zeros, mean = n - ones - minus, (ones - minus) / n
    squares = (ones + minus) / n - mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where(mean == 0, 0.0, abs(mean) / np.sqrt(squares / (n - 1)))
    ways = gammaln(n + 1) - gammaln(ones + 1) - gammaln(minus + 1) - gammaln(zeros + 1)
    return sizes, np.exp(ways - math.log(4) * (ones + minus) - math.log(2) * zeros)


def steps_apart(values: Iterable[float]) -> float:
    """The resolution of a metric: the largest step that all of these values are multiples apart.

    An accuracy on n samples moves in steps of 1/n, whoever computed it; so its values are whole
    multiples of that apart, and nobody has to be told n. Where there is no such step (a loss), or
    only one value, it is what float32 can tell at the size of the values: numbers that are nearer
    to each other than that are taken for one. Two different values are one step apart.

    Looked for are steps down to a two-hundredth of the least distance between two values.

    Example:
        >>> round(steps_apart([0.80, 0.85, 0.95]), 6), round(steps_apart([0.80, 0.85, 0.93]), 6)
        (0.05, 0.01)
        >>> steps_apart(n**0.5 for n in range(2, 12)) < 1e-6
        True
    """
    at = np.unique([float(value) for value in values if math.isfinite(value)])
    # By a power of two near the largest: a distance may be too large a number, a step too small.
    scale = math.ldexp(1.0, math.frexp(float(np.abs(at).max(initial=0.0)))[1] - 1)
    return scale * _relative_steps(at / scale)


@np.errstate(over="ignore")  # distances of which one is next to nothing beside the other
def _relative_steps(at: Array) -> float:
    """`steps_apart` of sorted numbers, the largest of them from 1 to 2 (or 0)."""
    sizes, distances = np.abs(at), np.diff(at)
    noise = _ROUNDING * np.maximum(sizes[1:], sizes[:-1])  # in each distance between neighbours
    distances, noise = distances[distances > noise], noise[distances > noise]
    finest = _ROUNDING * float(sizes.max(initial=0.0))
    if not len(distances):
        return finest
    steps = distances.min() / np.arange(1, _FINEST + 1)[:, None]
    # A step is known as well as the least distance is: of k steps, k times the noise.
    unsure = noise * (1 + distances / distances.min())
    off = np.abs(distances - steps * np.round(distances / steps))
    # Distances that are known too badly fit any step: they do not count.
    fits = ((off <= unsure) | (unsure > steps / 4)).all(1) & (steps[:, 0] > finest)
    return float(steps[fits.argmax(), 0]) if fits.any() else finest


@dataclass(frozen=True)
class Paired:
    """A number of two methods, seed by seed: where every finding comes from.

    A difference counts only beyond the metric's resolution, and has a spread of at least that.

    Attributes:
        base: Of the one.
        own: Of the other, in the same order of seeds.
        resolution: The step in which the number moves, where the values themselves do not tell it.

    Example:
        >>> Paired([0.75, 0.80, 0.85], [0.80, 0.85, 0.90]).p  # one step of 1/20 each
        1.0
    """

    base: Sequence[float]
    own: Sequence[float]
    resolution: float = 0.0

    @cached_property
    def step(self) -> float:
        """What a difference has to be larger than."""
        return max(self.resolution, steps_apart([*self.base, *self.own]))

    @property
    def fixed(self) -> bool:
        """Whether several seeds gave the same numbers: nothing was random in these runs."""
        return len(self.base) > 1 and len(set(self.base)) == len(set(self.own)) == 1

    @property
    def apart(self) -> list[float]:
        """The differences, the other's minus the one's."""
        return [own - base for base, own in zip(self.base, self.own, strict=True)]

    @property
    def p(self) -> float | None:
        """As `p_value` gives it."""
        return p_value(self.apart, resolution=self.step)

    @property
    def ci(self) -> float | None:
        """As `interval` gives it."""
        return interval(self.apart, resolution=self.step)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment: p values that hold for all of the comparisons together.

    With 20 comparisons of methods that do not differ, one in about two tables would show a
    difference at 5 %. Those that stay below 5 % after this do so in one table in twenty at most.

    Example:
        >>> holm([0.01, 0.5, None, 0.02])
        [0.03, 0.5, None, 0.04]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        adjusted[i] = largest
    return adjusted


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

    @property
    def half(self) -> float | None:
        """Half the width; None where there is no end."""
        half = self.high / 2 - self.low / 2
        return half if math.isfinite(half) else None

    @property
    def band(self) -> tuple[float, float]:
        """Where a band around the estimate ends: at the estimate itself where there is no end."""
        return (self.estimate,) * 2 if self.half is None else (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mean(values: Array) -> Interval:
    """The mean of independent units, by Student's t; without an end for a single one.

    >>> print(mean(np.array([1.0, 2.0, 3.0])))
    2 [-0.484, 4.48]
    """
    return finite_mean(_checked(values).tolist())


def finite_mean(values: Iterable[float]) -> Interval:
    """The mean of the values that are finite, as `mean` gives it; NaN if there is none.

    >>> finite_mean([1.0, 3.0, float("nan")]).n
    2
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Interval(math.nan, -math.inf, math.inf, 0)
    centre, half = _centre_and_half(finite)
    return Interval(centre, centre - half, centre + half, len(finite))


def fraction(events: NDArray[np.bool_]) -> Interval:
    """How often something happened, by Wilson's interval.

    >>> print(fraction(np.array([True] * 10)))
    1 [0.722, 1]
    """
    from scipy import stats

    events = np.asarray(events, dtype=bool)
    if not len(events):
        raise BadValue("events must not be empty")
    ends = stats.binomtest(int(events.sum()), len(events)).proportion_ci(LEVEL, method="wilson")
    return Interval(float(events.mean()), float(ends.low), float(ends.high), len(events))


def slope(x: Array, y: Array, *, resamples: int = 2000, seed: int = 0) -> Interval:
    """The power p of y ∝ x^p: least squares in the logarithms of the means over units.

    y is units × K for K numbers x. The interval is a bootstrap over units, which keeps each unit's
    whole curve together.

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
    powers = power(y[_resampled(len(y), resamples, seed)].mean(1))
    return Interval(estimate, *_middle(powers), len(y))


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float],
    units: int,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """A number of independent units (seeds) that is no mean of theirs, by a percentile bootstrap.

    Such as the hypervolume of the points of all seeds together. A resample has fewer different
    units than the whole. So what only grows with them, as a hypervolume does, lies at the upper
    end of its interval. One unit has no interval.

    Args:
        statistic: The number, from the places of the units to take, of which some repeat.
        units: How many there are.
        resamples: How many times units are drawn.
        seed: Names the draws.

    Example:
        >>> values = np.array([1.0, 2.0, 3.0, 10.0])
        >>> print(bootstrap(lambda drawn: float(np.median(values[drawn])), 4))
        2.5 [1, 10]
    """
    if units < 1:
        raise BadValue(f"units must be at least 1, found {units}")
    estimate = float(statistic(np.arange(units)))
    if units < 2:
        return Interval(estimate, -math.inf, math.inf, units)
    values = [float(statistic(drawn)) for drawn in _resampled(units, resamples, seed)]
    return Interval(estimate, *_middle(np.array(values)), units)


def _resampled(units: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Places of units, drawn with replacement: resamples × units."""
    return np.random.default_rng(seed).integers(units, size=(resamples, units))


def _middle(values: Array) -> tuple[float, float]:
    """Between which the middle 95 % of the values are."""
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _centre_and_half(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The mean and half the width of its interval, t_{n−1} s/√n; infinite for a single value."""
    n = len(values)
    # Scaled, so that values near the largest float do not overflow when squared.
    scale = max(map(abs, values)) or 1.0
    centre = math.fsum(value / scale for value in values) / n
    if n < 2:
        return scale * centre, math.inf
    squares = math.fsum((value / scale - centre) ** 2 for value in values)
    return scale * centre, scale * (quantile(n - 1, level) * math.sqrt(squares / (n - 1) / n))


def _checked(values: Array) -> Array:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise BadValue(f"values must be finite numbers in one dimension, found {values!r}")
    return values
