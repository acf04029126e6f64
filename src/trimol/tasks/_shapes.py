"""Whether what is computed now may have shapes that depend on the data.

A batch of many runs at once (`trimol.training.Replicas`) is one program for all of them, in which
`x[mask]` has no shape. A task that selects samples asks `fixed`, and weighs them there instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FIXED = ContextVar("_FIXED", default=False)


def fixed() -> bool:
    """Whether shapes must not depend on the data.

    >>> with fixing():
    ...     fixed()
    True
    >>> fixed()
    False
    """
    return _FIXED.get()


@contextmanager
def fixing() -> Iterator[None]:
    """Shapes must not depend on the data meanwhile."""
    token = _FIXED.set(True)
    try:
        yield
    finally:
        _FIXED.reset(token)
