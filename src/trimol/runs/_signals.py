"""Ctrl-C and SIGTERM: noted, and obeyed where a run can be left without loss."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trimol._failures import RunError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Signals so many seconds apart are one: shells and launchers pass Ctrl-C on beside the terminal.
ONE_PRESS = 0.5


class Interrupted(RunError):
    """Runs were asked to stop, and have saved where they were.

    Attributes:
        code: The exit code by which a shell knows the signal: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, code: int = 130) -> None:
        super().__init__(message, code)
        self.message, self.code = message, code

    def __str__(self) -> str:
        return self.message


class Noted:
    """Whether a signal has come, and which."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.when = 0.0  # by the monotonic clock

    @property
    def code(self) -> int:
        """The exit code for the signal that came."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def noting_signals() -> Iterator[Noted]:
    """Note the first SIGINT or SIGTERM; a second one, later, does what it always does.

    A signal that this process ignores stays ignored. Only the main thread is told of signals:
    elsewhere nothing is changed.
    """
    noted = Noted()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: h for number, h in handlers.items() if h is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if noted.signal is None:
            noted.signal, noted.when = number, now
        elif now - noted.when > ONE_PRESS:
            restore()
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()
