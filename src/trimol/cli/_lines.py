"""What a command prints, and where to: the one place that does.

Control characters in names, paths and messages are spelled out. A command's stdout and stderr are
its own: what a task prints goes to stderr, and a task that closes them closes nothing.
"""

import ctypes
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any, TextIO, cast

from trimol._terminal import clean

if TYPE_CHECKING:
    from rich.console import Console

_HELD = "\0"  # stands for a space at which no line ends
_own: list[tuple[TextIO, TextIO]] = []


def stream(*, error: bool = False) -> TextIO:
    """Where a command's output goes, or what it says about it."""
    out, err = _own[-1] if _own else (sys.stdout, sys.stderr)
    return err if error else out


def echo(text: object = "", *, error: bool = False) -> None:
    """Print a line."""
    print(clean(str(text)), file=stream(error=error), flush=error)


def plain_console(*, error: bool = False) -> "Console":
    """Print tables, as they are: `file.py:Two:` has no emoji, `[a]` is no colour."""
    from rich.console import Console
    from rich.segment import Segment

    class Cleaned(Console):
        def render(self, *given: Any, **named: Any) -> Any:
            for each in super().render(*given, **named):
                yield each if each.control else Segment(clean(each.text), each.style)

    return Cleaned(file=stream(error=error), highlight=False, markup=False, emoji=False)


@contextmanager
def own_streams() -> Iterator[None]:
    """Keep stdout and stderr for the command; what else is printed meanwhile goes to stderr."""
    before = sys.stdout, sys.stderr
    with _copy(before[0]) as out, _copy(before[1]) as err, _numbered(), through(out, err):
        sys.stdout = sys.stderr = cast("TextIO", _Unclosed(before[1] or io.StringIO()))
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


@contextmanager
def through(out: TextIO, err: TextIO) -> Iterator[None]:
    """Print to these meanwhile."""
    _own.append((out, err))
    try:
        yield
    finally:
        _own.pop()


@contextmanager
def _copy(given: TextIO | None) -> Iterator[TextIO]:
    """Open a stream once more; one that is no file (of a test, of a notebook) is itself."""
    if given is None:
        yield io.StringIO()
        return
    try:
        handle = os.dup(given.fileno())
    except (OSError, ValueError):
        yield given
        return
    given.flush()
    copy = open(handle, "w", 1, given.encoding, given.errors)  # noqa: SIM115  # closed below
    try:
        yield copy
    finally:
        with suppress(OSError):  # which was said before, or nobody reads it any more
            copy.close()


@contextmanager
def _numbered() -> Iterator[None]:
    """Let stdout be stderr to other processes, and to what is not written in Python."""
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError, AttributeError, TypeError):  # C's buffer; other systems have none
            ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


class _Unclosed:
    """A stream that stays open, whoever closes it."""

    def __init__(self, given: TextIO) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)

    def close(self) -> None:
        """Close nothing."""


def say(text: str, *, indent: int = 0, whole: str = "") -> None:
    """Print a line; on a terminal, its further lines are indented.

    Args:
        text: The line.
        indent: Spaces before what does not fit on the first line.
        whole: A part to be copied, which stays on one line.
    """
    width = get_terminal_size().columns if stream().isatty() else None
    echo(wrapped(text, width, indent=indent, whole=whole))


def wrapped(text: str, width: int | None, *, indent: int = 0, whole: str = "") -> str:
    """A text in lines of so many characters, broken between words; None leaves it as it is.

    >>> print(wrapped("missing: pip install trimol", 20, indent=4, whole="pip install trimol"))
    missing:
        pip install trimol
    """
    if width is None:
        return text
    held = text.replace(whole, whole.replace(" ", _HELD)) if whole else text
    return fill(
        held,
        max(width, indent + 1),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ).replace(_HELD, " ")


def explain(term: str, meaning: str, *, column: int = 24) -> None:
    """Print what can be typed, and beside it what it means."""
    width = get_terminal_size().columns
    said = f"{term:<{column - 2}}  {meaning}"
    echo(fill(said, width, initial_indent="  ", subsequent_indent=" " * (column + 2)))


def plain(docstring: str) -> str:
    """The words of a docstring on one line, without its marks.

    >>> plain("Step size γ\\n    of ``λ``, see `MoDo`.")
    'Step size γ of λ, see MoDo.'
    """
    return " ".join(docstring.replace("`", "").split())
