"""The ``Args:`` of docstrings, read and written: what several have in common is told once."""

import inspect
import re
from collections.abc import Mapping

_ARGS = re.compile(r"^Args:\n(?:(?:    .*)?\n)*", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_AFTER_ARGS = re.compile(r"^(?:Attributes|Example|Reference):$", re.MULTILINE)


def arguments(doc: str | None) -> dict[str, str]:
    """The words on each argument.

    >>> arguments("A sum.\\n\\nArgs:\\n    x: One part.\\n    y: The other.\\n")
    {'x': 'One part.', 'y': 'The other.'}
    """
    block = _ARGS.search(inspect.cleandoc(doc or "") + "\n")
    return dict(_ENTRY.findall(block.group())) if block else {}


def with_arguments(doc: str | None, words: Mapping[str, str]) -> str:
    """The docstring with these words on its arguments, in this order, in the place of its own."""
    text = inspect.cleandoc(doc or "") + "\n"
    if not words:
        return text
    block = "Args:\n" + "".join(f"    {name}: {words[name]}\n" for name in words) + "\n"
    if _ARGS.search(text):
        return _ARGS.sub(lambda _: block, text, count=1)
    section = _AFTER_ARGS.search(text)
    place = section.start() if section else len(text)
    return f"{text[:place].rstrip()}\n\n{block}{text[place:]}"
