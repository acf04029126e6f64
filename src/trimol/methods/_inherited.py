"""Arguments are written down once: signatures and docstrings take the rest from the base class.

A constructor that ends in ``**options: Unpack[Options]`` has, for ``inspect.signature``, ``help()``
and the command line, the keywords that its base class has. A docstring need not tell an argument
that means what it means in the base class.
"""

import inspect
from types import FunctionType

from trimol._docstrings import arguments, with_arguments


def inherit_arguments(cls: type) -> None:
    """Complete the signature and the docstring of a class from those of its bases."""
    own = vars(cls).get("__init__")
    if isinstance(own, FunctionType):
        _complete_signature(own, next(b.__init__ for b in cls.__mro__[1:] if "__init__" in vars(b)))  # type: ignore[misc]
    if "__doc__" in vars(cls) and cls.__doc__:
        cls.__doc__ = _completed(cls)


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
