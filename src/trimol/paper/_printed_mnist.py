"""The paper's printed numbers about MNIST, and whether ours agree with them."""

import math
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Verdict = Literal["agrees", "differs"]


@dataclass(frozen=True)
class Printed:
    """A cell of a table, in plain units.

    Attributes:
        mean: The mean as printed.
        std: The standard deviation as printed.
        rounding: Half a unit of the mean's last printed digit: how far rounding may have moved it.
        runs: Of how many runs.
    """

    mean: float
    std: float
    rounding: float
    runs: int


def printed(cell: str, *, unit: float, runs: int) -> Printed:
    """A cell from how it is printed.

    Example:
        >>> printed("13.2 ± 0.14", unit=1.0, runs=10)
        Printed(mean=13.2, std=0.14, rounding=0.05, runs=10)
    """
    mean, _, std = cell.partition("±")
    half = Decimal(5).scaleb(int(Decimal(mean.strip()).as_tuple().exponent) - 1)
    # In decimals, as printed: 1.9 of 1e-3 is 0.0019 and nothing beside it.
    scaled = [float(Decimal(text) * Decimal(str(unit))) for text in (mean.strip(), std.strip())]
    return Printed(scaled[0], scaled[1], float(half * Decimal(str(unit))), runs)


def verdict(values: Sequence[float], cell: Printed) -> Verdict:
    r"""Whether our mean and the paper's are within two standard errors of their difference.

    .. math:: |\bar x - m| \le 2 \sqrt{s^2/n + \sigma^2/N} + r

    with our mean x̄ and standard deviation s of n runs, the printed m and σ of N runs, and r what
    rounding may have moved m by. (Some cells are rounded to more than their standard deviation.)

    Example:
        >>> cell = Printed(mean=2.0, std=0.1, rounding=0.05, runs=10)
        >>> verdict([2.0, 2.2], cell), verdict([2.5, 2.52], cell)
        ('agrees', 'differs')
    """
    apart = abs(statistics.mean(values) - cell.mean) - cell.rounding
    error = math.sqrt(statistics.variance(values) / len(values) + cell.std**2 / cell.runs)
    return "agrees" if apart <= 2 * error else "differs"


def within_spread(mean: float, cell: Printed) -> bool:
    """Whether our mean is within two of the paper's standard deviations, and rounding, of its own.

    >>> within_spread(2.2, Printed(mean=2.0, std=0.1, rounding=0.05, runs=10))
    True
    """
    return abs(mean - cell.mean) <= 2 * cell.std + cell.rounding


@cache
def paper() -> dict[str, Any]:
    """All that ``table3_paper.toml`` says."""
    text = files("trimol.paper").joinpath("table3_paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def cells(method: str) -> dict[str, Printed]:
    """The printed row of a method of Table 3, by metric.

    >>> cells("modo")["R_opt"].mean
    0.0019
    """
    table = paper()["table3"]
    return {
        metric: printed(cell, unit=table["unit"], runs=table["runs"])
        for metric, cell in table[method]["cells"].items()
    }


def methods() -> list[str]:
    """The methods of Table 3, in its order.

    >>> methods()
    ['static', 'mgda', 'modo']
    """
    return [name for name, entry in paper()["table3"].items() if isinstance(entry, dict)]
