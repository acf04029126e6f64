"""Progress on stderr: a live view for a person at a terminal, a line now and then in a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from trimol.cli._lines import echo, plain_console, stream, through
from trimol.cli._reporting import speaks

if TYPE_CHECKING:
    from rich.console import RenderableType

# Seconds between lines in a pipe: few at first, more and more for what takes long.
SOONEST, LATEST, GROWTH = 5.0, 60.0, 1.2
REFRESHES = 8  # a second, on a terminal


class View(Protocol):
    """Something to be shown while it changes."""

    def line(self) -> str:
        """How far it is, in one line."""

    def __rich__(self) -> "RenderableType":
        """All of it."""


@contextmanager
def shown(view: View, *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show a view on stderr as long as the context lasts; yields what to call when it changed."""
    console = plain_console(error=True)
    if quiet or not speaks():
        yield lambda: None
    elif console.is_terminal and not console.is_dumb_terminal:
        from rich.live import Live

        live = Live(view, console=console, refresh_per_second=REFRESHES, transient=True)
        with live, through(stream(), sys.stderr):  # by now that is what is printed above the view
            yield lambda: None
    else:
        lines = _Lines(view)
        yield lines.changed
        lines.say()


class _Lines:
    """A line at the start, at the end, and now and then between."""

    def __init__(self, view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self.view, self.clock = view, clock
        self.last, self.wait = "", SOONEST
        self.due = clock() + SOONEST
        self.say()

    def changed(self) -> None:
        if self.clock() >= self.due:
            self.wait = min(LATEST, self.wait * GROWTH)
            self.due = self.clock() + self.wait
            self.say()

    def say(self) -> None:
        line = self.view.line()
        if line != self.last:
            echo(line, error=True)
        self.last = line
