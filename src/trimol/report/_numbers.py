"""Numbers as people read them."""

import math
from collections.abc import Iterable


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
    return _minus(f"{_trimmed(mantissa)}e{int(exponent)}")


def interval(mean: float, half: float | None) -> str:
    """A mean with its half width, to the digits that the half width justifies.

    >>> interval(0.97432, 0.0021), interval(1.94e-5, 1.2e-6), interval(0.00194, None)
    ('0.9743 ± 0.0021', '(1.94 ± 0.12)e-5', '0.00194')
    >>> interval(12.0, 340.0), interval(0.5, 0.0)
    ('12 ± 340', '0.5 ± 0')
    """
    if half is None or not math.isfinite(mean) or not math.isfinite(half):
        return number(mean)
    if half == 0:
        return f"{number(mean)} ± 0"
    largest = max(abs(mean), half)
    order = math.floor(math.log10(largest))
    place = max(math.floor(math.log10(half)) - 1, order - 5)
    if -4 <= order <= 4:
        decimals = max(0, -place)
        return _minus(f"{mean:.{decimals}f} ± {half:.{decimals}f}")
    decimals, scale = order - place, 10.0**order
    return _minus(f"({mean / scale:.{decimals}f} ± {half / scale:.{decimals}f})e{order}")


def unit(values: Iterable[float]) -> int:
    """The power of ten, a multiple of three, in which the largest value is neither long nor small.

    >>> unit([1.7e-3, 5e-3]), unit([0.9, 0.1]), unit([3e-5]), unit([2e7]), unit([])
    (-3, 0, -6, 6, 0)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0 or 0.05 <= largest < 1e4:
        return 0
    return 3 * math.floor((math.log10(largest) + 1.3) / 3)  # from 0.05 to 50 of that unit


def power(exponent: int) -> str:
    """A power of ten, to be set behind a quantity's name.

    >>> power(-3), power(0)
    (' ×10⁻³', '')
    """
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f" ×10{raised}" if exponent else ""


def count(n: int, thing: str) -> str:
    """How many of a thing, in words that agree.

    >>> count(1, "seed"), count(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def _trimmed(mantissa: str) -> str:
    return mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa


def _minus(text: str) -> str:
    """A true minus in front of a number; the exponent's stays as programmers type it."""
    return "".join(
        "−" if char == "-" and (i == 0 or text[i - 1] in " (") else char
        for i, char in enumerate(text)
    )
