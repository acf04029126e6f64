"""Failures that a user can cause: one line on stderr and an exit code, never a traceback.

A programming error is no such failure: it keeps its traceback.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from trimol._failures import BadType, BadValue, UserError, meant
from trimol._warnings import hearing
from trimol.cli._lines import echo, stream

FAILED, MISUSED, INTERRUPTED, TERMINATED = 1, 2, 130, 143


class UsageError(Exception):
    """The command was called wrongly; the text is the one line that says how."""


def speaks() -> bool:
    """Whether this process is to say anything: of those of torchrun, the first alone is."""
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return not several or os.environ.get("RANK", "0") == "0"


def reported(action: Callable[[], int]) -> int:
    """Run an action and return its exit code; what fails is said in one line on stderr."""
    try:
        with hearing(_Once()):
            code = action()
            stream().flush()  # here, where it is said if that fails
            return code
    except UsageError as error:
        return _say(error, MISUSED) if speaks() else MISUSED
    except KeyboardInterrupt as stop:
        return _say(str(stop) or "interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone, as in `| head`: nobody is left to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream().fileno())
        return FAILED
    except Exception as error:
        said = explained(error)
        if said is None:
            raise
        # A run that was told to stop knows which exit code its shell expects.
        return _say(said, getattr(error, "code", FAILED))


def explained(error: Exception) -> str | None:
    """What to tell the user about a failure that a user can cause; None for any other.

    >>> explained(FileNotFoundError(2, "No such file or directory", "runs/x"))
    'runs/x: No such file or directory'
    >>> explained(KeyError("x")) is None
    True
    """
    if isinstance(error, OSError):
        said = error.strerror or str(error)
        return f"{error.filename}: {said}" if error.filename else said
    if isinstance(error, UserError):
        return str(error)
    return None


@contextmanager
def usage() -> Iterator[None]:
    """What is wrong with a value here is wrong with the command line."""
    try:
        yield
    except (BadValue, BadType) as error:
        raise UsageError(str(error)) from error


def known_name(kind: str, name: str, names: Collection[str]) -> str:
    """A name that there is; or one line that lists all of them."""
    if name not in names:
        listed = f"{meant(name, names)}: the {kind}s are {', '.join(names)}"
        raise UsageError(f"unknown {kind} {name!r}{listed}")
    return name


def print_json(value: object) -> None:
    """Print something for machines."""
    echo(json.dumps(value, indent=1, allow_nan=False))


class _Once:
    """Says every warning in a line, and once, however many runs have it, of whichever method."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def __call__(self, text: str) -> None:
        name, _, rest = text.partition(": ")
        what = rest if name.isidentifier() else text  # after the method's name
        if what not in self.said and speaks():
            self.said.add(what)
            _say(f"warning: {text}", 0)


def _say(what: object, code: int) -> int:
    echo(f"trimol: {' '.join(str(what).split())}", error=True)
    return code
