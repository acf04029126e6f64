"""Text for a terminal, which would obey the control characters in it."""

import re

# Those of ASCII and Latin-1 but for tab and newline, what turns the direction of writing, and
# halves of characters, which cannot be printed at all.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Spell out the control characters in a text from a task, a file or a path.

    >>> print(clean("the loss 'a" + chr(27) + "[2J' is nan"))
    the loss 'a\\x1b[2J' is nan
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
