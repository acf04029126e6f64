"""Numbers, and lists of things, as people read them: the one place that decides how they look."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from trimol._words import count

if TYPE_CHECKING:
    from trimol.runs.statistics import Interval


def number(value: float | None, digits: int = 3) -> str:
    """A number in a few significant digits; a dash for none.

    >>> number(0.000123456), number(0.97432), number(128), number(float("nan")), number(None)
    ('1.23e-4', '0.974', '128', 'NaN', '–')
    >>> number(3.0e-7), number(123456.0), number(float("-inf"))
    ('3e-7', '1.23e5', '−∞')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0 or 0.001 <= abs(value) < 10**digits or (value == int(value) and abs(value) < 1e5):
        return _minus(f"{value:.{max(digits, len(str(int(abs(value)))))}g}")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    trimmed = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return _minus(f"{trimmed}e{int(exponent)}")


def spread(mean: float, half: float | None, exponent: int = 0) -> tuple[str, str]:
    """A mean and its half width in a power of ten, to the digits that the half width justifies.

    >>> spread(6.36e-3, 3.3e-4, exponent=-3), spread(1.5, None), spread(0.5, 0.0)
    (('6.36', '0.33'), ('1.5', ''), ('0.5', '0'))
    """
    mean /= 10.0**exponent
    if half is None or not math.isfinite(mean) or not math.isfinite(half):
        return number(mean), ""
    if half == 0:
        return number(mean), "0"
    half /= 10.0**exponent
    # Two digits of the half width, but no more than six in all.
    decimals = max(0, min(1 - _order(half), 5 - _order(max(abs(mean), half))))
    return _minus(f"{mean:.{decimals}f}"), f"{half:.{decimals}f}"


def interval(mean: float | None, half: float | None, exponent: int = 0) -> str:
    """A mean with its half width, as `spread` writes them; a dash for none.

    >>> interval(0.97432, 0.0021), interval(1.94e-5, 1.2e-6), interval(0.00194, None)
    ('0.9743 ± 0.0021', '(1.94 ± 0.12)e-5', '0.00194')
    >>> interval(12.0, 340.0), interval(0.5, 0.0), interval(None, None)
    ('12 ± 340', '0.5 ± 0', '–')
    """
    if mean is None:
        return number(None)
    largest = max(abs(mean), half or 0.0) / 10.0**exponent
    order = _order(largest) if half and 0 < largest < math.inf else 0
    if -4 <= order <= 4:
        order = 0
    middle, width = spread(mean, half, exponent + order)
    if not width:
        return number(mean / 10.0**exponent)
    return f"({middle} ± {width})e{order}" if order else f"{middle} ± {width}"


def estimated(mean: "Interval", total: int, exponent: int = 0) -> str:
    """The mean of those of so many runs that have one, and how many these are if not all."""
    if not total:
        return number(None)
    text = interval(mean.estimate, mean.half, exponent)
    return text if mean.n == total else f"{text} ({mean.n} of {total} finite)"


def share(weight: float | None) -> str:
    """A weight λ, to hundredths; a dash for none."""
    return number(None) if weight is None else f"{weight:.2f}"


def short(value: Any) -> str:
    """A setting as one would type it.

    >>> short(30.0), short(0.01), short("cosine")
    ('30', '0.01', 'cosine')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def change(mean: float, half: float | None, decimals: int) -> str:
    """A difference with its sign and its half width, to so many decimals.

    >>> change(-0.05, 0.00123, 4), change(2.0, None, 1)
    ('−0.0500 ± 0.0012', '+2.0')
    """
    apart = "" if half is None else f" ± {half:.{decimals}f}"
    return _minus(f"{mean:+.{decimals}f}{apart}")


def unit(values: Iterable[float]) -> int:
    """The power of ten, a multiple of three, in which the largest value is neither long nor small.

    >>> unit([1.7e-3, 5e-3]), unit([0.9, 0.1]), unit([3e-5]), unit([2e7]), unit([])
    (-3, 0, -6, 6, 0)
    >>> unit([5e-324]), unit([1e308])
    (-300, 300)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0 or 0.05 <= largest < 1e4:
        return 0
    # From 0.05 to 50 of that unit; what cannot be divided by a unit has none that helps.
    return max(-300, min(300, 3 * math.floor((math.log10(largest) + 1.3) / 3)))


def power(exponent: int) -> str:
    """A power of ten, to be set behind a quantity's name.

    >>> power(-3), power(0)
    (' ×10⁻³', '')
    """
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f" ×10{raised}" if exponent else ""


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(4.2), duration(75), duration(7300)
    ('4 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def counts(ns: Sequence[int], thing: str) -> str:
    """From the first to the last of sorted numbers of a thing.

    >>> counts([3], "seed"), counts([1, 2, 5], "seed"), counts([], "seed")
    ('3 seeds', '1 to 5 seeds', 'no seeds')
    """
    if len(ns) == 1:
        return count(ns[0], thing)
    return f"{ns[0]} to {count(ns[-1], thing)}" if ns else f"no {thing}s"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(name: str, longest: int = 18) -> str:
    """A name that fits beside an axis: its beginning, and its end, which often tells it apart.

    >>> shortened("a very long objective 7")
    'a very long …ive 7'
    """
    if len(name) <= longest:
        return name
    end = (longest - 1) // 3
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


def _order(value: float) -> int:
    """The power of ten of a number's first digit."""
    return math.floor(math.log10(value))


def _minus(text: str) -> str:
    """A true minus in front of a number; the exponent's stays as programmers type it."""
    return f"−{text[1:]}" if text.startswith("-") else text
