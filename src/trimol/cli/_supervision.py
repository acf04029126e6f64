"""A process that watches over a command: a task may end its process without a word.

`os._exit`, a segmentation fault or the system's memory killer leave nobody who could say what has
happened, and the first of them an exit code of 0. So a command that runs tasks does so in a child,
forked before anything large is imported, and the parent looks at how it ended.
"""

import os
import signal
import sys
from typing import NoReturn

from trimol.cli._lines import echo
from trimol.cli._reporting import FAILED, speaks

_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_FROM_TERMINAL = 0x80  # SI_KERNEL: Ctrl-C, which all processes at the terminal get
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Marker:
    """Where a child notes that it came to its end."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()

    def set(self) -> None:
        """Note it, in the child."""
        os.write(self.write, b"!")

    def is_set(self) -> bool:
        """Whether it was noted, for the parent, once the child has ended."""
        os.close(self.write)
        return os.read(self.read, 1) == b"!"


def supervised() -> Marker | None:
    """Go on in a child, which is given what to set at its end; the parent leaves with its code.

    None where that is not done: on systems other than Linux.
    """
    if sys.platform != "linux" or not hasattr(os, "fork"):
        return None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what is left in it would be printed by both
    waited_for, marker, parent = {*_PASSED_ON, signal.SIGCHLD}, Marker(), os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    if child := os.fork():
        _leave_as(child, marker)
    _die_with(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return marker


def _leave_as(child: int, marker: Marker) -> NoReturn:
    """Wait for a child, pass signals on to it, and leave as it did."""
    ended, status = 0, 0
    while not ended:
        found = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
        if found.si_signo in _PASSED_ON and found.si_code != _FROM_TERMINAL:
            os.kill(child, found.si_signo)
        ended, status = os.waitpid(child, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status)
    if not marker.is_set() and speaks():
        echo(f"trimol: {_how(code)}", error=True)
        code = code or FAILED
    os._exit(128 - code if code < 0 else code)


def _how(code: int) -> str:
    """What became of a process that has not come to its end."""
    if code >= 0:
        return (
            f"the process was left in the middle (exit code {code}), as os._exit does in a task: "
            "it did not come to its end"
        )
    name = signal.Signals(-code).name
    hint = "out of memory?" if name == "SIGKILL" else "PYTHONFAULTHANDLER=1 shows where"
    return f"the process was killed by {name} in the middle ({hint}): it did not come to its end"


def _die_with(parent: int) -> None:
    """Let this process be killed when its parent is."""
    import ctypes

    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was, meanwhile
        os._exit(FAILED)
