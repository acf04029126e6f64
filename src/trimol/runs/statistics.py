"""What a few seeds allow to say: means with confidence intervals, and differences run by run."""

import math
import statistics
from collections.abc import Sequence
from functools import cache

LEVEL = 0.95


def interval(values: Sequence[float], level: float = LEVEL) -> float | None:
    r"""Half the width of the confidence interval of the mean: t_{n−1} s/√n, of Student's t.

    Args:
        values: One number a seed.
        level: How often the interval holds the true mean, for values with a normal law.

    Returns:
        The half width; None for a single value, which says nothing about its spread.

    Example:
        >>> round(interval([1.0, 2.0, 3.0]), 4)  # 4.3027 · 1/√3
        2.4841
    """
    if len(values) < 2:
        return None
    half = quantile(len(values) - 1, level)
    return half * statistics.stdev(values) / math.sqrt(len(values))


@cache
def quantile(freedom: int, level: float = LEVEL) -> float:
    """Student's t that a two-sided interval of this level reaches to.

    >>> round(quantile(2), 4)
    4.3027
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def p_value(differences: Sequence[float]) -> float | None:
    """The chance of so large a mean if the truth were 0: the paired t test, two-sided.

    Args:
        differences: One a seed, between two runs with the same start and samples.

    Example:
        >>> round(p_value([1.0, 2.0, 3.0]), 4)
        0.0742
    """
    if len(differences) < 2:
        return None
    from scipy.special import stdtr

    mean, spread = statistics.mean(differences), statistics.stdev(differences)
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    t = abs(mean) / (spread / math.sqrt(len(differences)))
    return float(2 * stdtr(len(differences) - 1, -t))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment: p values that hold for all of the comparisons together.

    With 20 comparisons of methods that do not differ, one in about two tables would show a
    difference at 5 %. Those that stay below 5 % after this do so in one table in twenty at most.

    Args:
        p_values: One a comparison; None is passed through and does not count.

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
