"""Warnings that point at the user's own line, however deep in trimol or torch they arise."""

import sys
import warnings

_BETWEEN = {"trimol", "torch"}


def warn(text: str) -> None:
    """Warn at the nearest line that is neither trimol's nor torch's."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
