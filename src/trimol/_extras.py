"""Packages that only an extra installs: imported where they are used, missed in one clear line."""

from importlib import import_module
from typing import Any

from trimol._failures import UserError


class MissingExtra(UserError, ImportError):
    """A package that an extra of trimol installs is not there."""


def require(module: str, *, extra: str, purpose: str) -> Any:
    """Import an optional package, or say which extra of trimol installs it, and what needs it.

    >>> require("nowhere.to_be_found", extra="studies", purpose="the demo")
    Traceback (most recent call last):
    trimol._extras.MissingExtra: the demo needs nowhere: pip install 'trimol[studies]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0].replace("sklearn", "scikit-learn")
        raise MissingExtra(f"{purpose} needs {package}: pip install 'trimol[{extra}]'") from error
