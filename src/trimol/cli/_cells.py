"""Numbers as a terminal shows them: a mean over its spread, a bar, a trend."""

import math
from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def with_spread(mean: float, spread: float | None, unit: int = 0) -> tuple[str, str]:
    """A mean and its spread, in two digits of the spread and to the same decimal.

    Args:
        mean: The mean.
        spread: Its spread; None if it has none (its text is empty then).
        unit: The power of ten to give them in.

    Example:
        >>> with_spread(6.36e-3, 3.3e-4, unit=-3), with_spread(1.5, None)
        (('6.36', '±0.33'), ('1.5', ''))
    """
    mean = mean / 10**unit
    if spread is None or not math.isfinite(spread):
        return f"{mean:.3g}", ""
    spread = spread / 10**unit
    if spread == 0:
        return f"{mean:.3g}", "±0"
    decimals = max(0, 1 - math.floor(math.log10(spread)))
    return f"{mean:.{decimals}f}", f"±{spread:.{decimals}f}"


def bar(fraction: float, width: int = 8) -> str:
    """A bar that fills a fraction of the width, to an eighth of a character.

    >>> bar(0.5, width=4), bar(0.33, width=4)
    ('██  ', '█▍  ')
    """
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def trend(values: Sequence[float], width: int = 12) -> str:
    """The last values as a line of small bars, on a log scale where all are positive.

    >>> trend([100, 10, 1]), trend([3, 3]), trend([])
    ('█▅▁', '▁▁', '')
    """
    recent = [value for value in values if math.isfinite(value)][-width:]
    if not recent:
        return ""
    heights = [math.log(v) for v in recent] if min(recent) > 0 else recent
    low, high = min(heights), max(heights)
    span = high - low
    steps = [round((h - low) / span * (len(_LEVELS) - 1)) if span > 0 else 0 for h in heights]
    return "".join(_LEVELS[step] for step in steps)


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
