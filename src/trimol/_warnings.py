"""Warnings that point at the user's own line, however deep in trimol or torch they arise.

Where no line is the user's (a command, a worker process), somebody else `hearing` them says them.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trimol._terminal import clean

_BETWEEN = {"trimol", "torch"}
_hearers: list[Callable[[str], object]] = []


@contextmanager
def hearing(hear: Callable[[str], object]) -> Iterator[None]:
    """Give the texts of warnings to ``hear`` meanwhile, instead of warning.

    >>> with hearing(print):
    ...     warn("something is odd")
    something is odd
    """
    _hearers.append(hear)
    try:
        yield
    finally:
        _hearers.pop()


def warn(text: str) -> None:
    """Warn at the nearest line that is neither trimol's nor torch's."""
    if _hearers:
        _hearers[-1](text)
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(clean(text), RuntimeWarning, stacklevel=level)


def say(text: str) -> None:
    """Warn of what no line of the user's has caused."""
    if _hearers:
        _hearers[-1](text)
        return
    warnings.warn_explicit(clean(text), RuntimeWarning, filename="trimol", lineno=0)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
