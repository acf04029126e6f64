"""What is announced to the library from outside it: tasks and commands, found without an import.

A registration is a module with two mappings, ``TASKS`` (``{"mnist": "package.module:Class"}``) and
``COMMANDS`` (``{"reproduce": "package.module"}``). Here, and nowhere else outside its folder, that
of the paper is named.
"""

from importlib import import_module
from typing import Literal

REGISTRATIONS = ("trimol.paper.registration",)


def announced(kind: Literal["TASKS", "COMMANDS"]) -> dict[str, str]:
    """Where all that is announced of a kind is, by name.

    >>> announced("COMMANDS")["reproduce"]
    'trimol.paper._commands.reproduce'
    """
    return {
        name: place
        for module in REGISTRATIONS
        for name, place in getattr(import_module(module), kind).items()
    }
