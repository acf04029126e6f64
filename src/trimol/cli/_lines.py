"""Lines for people: wrapped at words on a terminal, as they are in a pipe."""

import sys
from shutil import get_terminal_size
from textwrap import fill

_HELD = "\0"  # stands for a space at which no line ends


def say(text: str, *, indent: int = 0, whole: str = "") -> None:
    """Print a line; on a terminal, its further lines are indented.

    Args:
        text: The line.
        indent: Spaces before what does not fit on the first line.
        whole: A part to be copied, which stays on one line.
    """
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    print(wrapped(text, width, indent=indent, whole=whole))


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
    print(fill(said, width, initial_indent="  ", subsequent_indent=" " * (column + 2)))


def plain(docstring: str) -> str:
    """The words of a docstring on one line, without its marks.

    >>> plain("Step size γ\\n    of ``λ``, see `MoDo`.")
    'Step size γ of λ, see MoDo.'
    """
    return " ".join(docstring.replace("`", "").split())
