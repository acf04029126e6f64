"""Arguments are written down once: signatures and docstrings take the rest from the base class.

A constructor that ends in ``**options: Unpack[Options]`` has, for ``inspect.signature``, ``help()``
and the command line, the keywords that its base class has. A docstring need not tell an argument
that means what it means in the base class.
"""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar

from trimol._docstrings import arguments, with_arguments
from trimol._failures import BadType, meant

Function = TypeVar("Function", bound=Callable[..., Any])


def inherit_arguments(cls: type) -> None:
    """Complete the signature and the docstring of a class from those of its bases."""
    own = vars(cls).get("__init__")
    if isinstance(own, FunctionType):
        _complete_signature(own, next(b.__init__ for b in cls.__mro__[1:] if "__init__" in vars(b)))  # type: ignore[misc]
    if "__doc__" in vars(cls) and cls.__doc__:
        cls.__doc__ = _completed(cls)


def without_rest(function: Function) -> Function:
    """Hide ``**unknown``, which is there to be refused, from ``inspect.signature`` and help."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return function


def refuse_unknown(cls: type, unknown: Mapping[str, object]) -> None:
    """Say what a method is called with that it does not know, and what it knows."""
    known = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in unknown:
        raise BadType(
            f"{cls.__name__} has no argument {name!r}{meant(name, known)}: it has "
            f"{', '.join(known)}"
        )


def _complete_signature(own: FunctionType, above: FunctionType) -> None:
    """Put the keywords of the constructor above in the place of ``**options``."""
    signature = inspect.signature(own)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    if len(named) == len(signature.parameters):
        return
    inherited = [
        p
        for p in inspect.signature(above).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in signature.parameters
    ]
    own.__signature__ = signature.replace(parameters=[*named, *inherited])  # type: ignore[attr-defined]
    hints = {p.name: p.annotation for p in [*named, *inherited] if p.annotation is not p.empty}
    own.__annotations__ = {**hints, "return": signature.return_annotation}


def _completed(cls: type) -> str:
    """The docstring, its Args those of the signature: its own words, else those of the bases."""
    known: dict[str, str] = {}
    for kind in reversed(cls.__mro__):
        known |= arguments(vars(kind).get("__doc__"))
    names = inspect.signature(cls).parameters
    return with_arguments(cls.__doc__, {name: known[name] for name in names if name in known})
