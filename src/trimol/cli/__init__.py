"""The command line: ``trimol COMMAND …``.

A command is one file here: its docstring's first line is its line in ``trimol --help``, its
``main(arguments)`` does the work and returns the exit code. What takes long to import (torch,
polars) is imported inside it, behind all that can be wrong with the arguments, so that help and
errors come at once.
"""

import atexit
import io
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import cache
from importlib import import_module
from typing import Protocol

from trimol._extras import require
from trimol._outline import first_line
from trimol._registration import announced
from trimol._version import __version__
from trimol.cli._lines import echo, own_streams
from trimol.cli._reporting import INTERRUPTED, TERMINATED, UsageError, known_name, reported, speaks
from trimol.cli._supervision import supervised

_OF_TASKS = ("run", "compare", "diagnose", "tune", "sweep", "front")
_RUNS = (*_OF_TASKS, "report", "plan")
_LISTS = ("methods", "tasks", "data")
_HELPERS = ("doctor", "completion")
COMMANDS = {
    **{name: f"trimol.cli.{name}" for name in (*_RUNS, *_LISTS)},
    **announced("COMMANDS"),
    **{name: f"trimol.cli.{name}" for name in _HELPERS},
}


class _Command(Protocol):
    def main(self, arguments: Sequence[str]) -> int:
        """Run the command and return the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 for a failure, 2 for wrong usage, 130 after Ctrl-C.

    Args:
        arguments: The command and its arguments; by default, those of the process.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        trimol ...
        0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    alone = arguments is None and given[:1] and given[0] in _OF_TASKS
    marker = supervised() if alone else None
    unheard = redirect_stdout(io.StringIO())
    heard: AbstractContextManager[object] = nullcontext() if speaks() else unheard
    try:
        with heard, own_streams():
            code = reported(lambda: _run(given))
    finally:
        if marker is not None:
            marker.set()
    if code in (INTERRUPTED, TERMINATED):
        _end_in_peace()
    return code


@cache
def _end_in_peace() -> None:
    """A process that was told to end, and does: told once more, it has nothing to add."""
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the last is the first to be run


def _run(given: Sequence[str]) -> int:
    _check_texts(given)
    name = given[0] if given else "--help"
    if name in ("-h", "--help", "help"):
        echo(_help())
        return 0
    if name == "--version":
        echo(f"trimol {__version__}")
        return 0
    known_name("command", name, COMMANDS)
    for package in ("tyro", "rich"):
        require(package, extra="studies", purpose="the command line")
    command: _Command = import_module(COMMANDS[name])
    return command.main(given[1:])


def _check_texts(given: Sequence[str]) -> None:
    """Refuse what can be no name of a file, and cannot be printed."""
    for argument in given:
        try:
            fits = b"\0" not in argument.encode()
        except UnicodeEncodeError:
            fits = False
        if not fits:
            raise UsageError(f"an argument must be text without null bytes, found {argument!a}")


def _help() -> str:
    lines = [f"  {name:<10} {first_line(module)}" for name, module in COMMANDS.items()]
    return "\n".join(
        [
            "usage: trimol COMMAND [-h] ...",
            "",
            "Train one model on several losses, and see what you trade away.",
            "",
            *lines,
            "",
            "trimol COMMAND --help says more. Start with: trimol run digits",
        ]
    )
