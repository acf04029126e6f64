"""What goes wrong for a reason that a user can see and mend, each said in one line.

The command line prints the line of a `UserError` and nothing else; any other error is a fault of
the program and keeps its traceback. For callers of the library they are the usual
``ValueError`` and ``TypeError``.
"""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    """What may have been meant, for the middle of a message; empty where nothing is near.

    >>> meant("modu", ["static", "modo"]), meant("MoDo", ["static", "modo"]), meant("x", ["modo"])
    (' (did you mean modo?)', ' (did you mean modo?)', '')
    """
    small = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), small, n=1)
    return "".join(f" (did you mean {prefix}{small[each]}?)" for each in near)


class UserError(Exception):
    """The message is one line that names what was given, what was found and what to do."""


class BadValue(UserError, ValueError):
    """An argument, option or file has a value that does not do."""


class BadType(UserError, TypeError):
    """An argument is of a kind that does not do."""


class BadNumber(BadValue, BadType):
    """Where a number is asked for there is something else, or another kind of number."""


class RunError(UserError):
    """A run cannot go on; the message says why and what to do."""


class Diverged(RunError):
    """A loss is NaN or infinite."""
