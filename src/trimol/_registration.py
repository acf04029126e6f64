"""What is announced to the library from outside it: tasks and commands, found without an import.

A room is a module with two mappings, ``TASKS`` (``{"mnist": "package.module:Class"}``) and
``COMMANDS`` (``{"reproduce": "package.module"}``). Here, and nowhere else outside its folder, the
paper's room is named.
"""

from importlib import import_module
from typing import Literal

ROOMS = ("trimol.paper.registration",)


def announced(kind: Literal["TASKS", "COMMANDS"]) -> dict[str, str]:
    """Where all that is announced of a kind is, by name.

    >>> announced("COMMANDS")["reproduce"]
    'trimol.paper._commands.reproduce'
    """
    return {
        name: place for room in ROOMS for name, place in getattr(import_module(room), kind).items()
    }
