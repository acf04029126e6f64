"""Failures that a user can cause: one line on stderr and an exit code, never a traceback.

A programming error is no such failure: it keeps its traceback.
"""

import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trimol
from trimol._extras import MissingExtra

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
_PACKAGE = Path(trimol.__file__).parent


class UsageError(Exception):
    """The command was called wrongly; the text is the one line that says how."""


def reported(action: Callable[[], int]) -> int:
    """Run an action and return its exit code; what fails is said in one line on stderr."""
    try:
        return action()
    except UsageError as error:
        return _say(error, MISUSED)
    except KeyboardInterrupt as stop:
        return _say(str(stop) or "interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone, as in `| head`: nobody is left to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    from trimol.training.failures import RunError

    if isinstance(error, OSError):
        said = error.strerror or str(error)
        return f"{error.filename}: {said}" if error.filename else said
    if isinstance(error, (RunError, MissingExtra)) or _said_on_purpose(error):
        return str(error)
    return None


@contextmanager
def usage() -> Iterator[None]:
    """What is wrong with a value here is wrong with the command line."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def _said_on_purpose(error: Exception) -> bool:
    """Whether it is a ``raise ValueError`` of ours: those name the argument and the value found."""
    if not isinstance(error, (ValueError, TypeError)):
        return False
    file, line = _origin(error)
    ours = Path(file).is_relative_to(_PACKAGE)
    return ours and linecache.getline(file, line).lstrip().startswith("raise ")


def _origin(error: Exception) -> tuple[str, int]:
    """File and line of an error; of one from another process, those in the note it came with."""
    noted = re.findall(r'File "(.+)", line (\d+)', "".join(getattr(error, "__notes__", [])))
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    found = [(file, int(line)) for file, line in noted] or frames
    return found[-1] if found else ("", 0)


def _say(what: object, code: int) -> int:
    print(f"trimol: {' '.join(str(what).split())}", file=sys.stderr)
    return code
