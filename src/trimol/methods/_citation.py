"""BibTeX of what you ran."""

import re
from importlib.resources import files
from typing import ClassVar, Protocol

from trimol.methods._registry import outline


class Cited(Protocol):
    """A method, by all that matters here: without it, names and hints need no torch."""

    reference: ClassVar[str]


def citation(method: str | Cited | type[Cited]) -> None:
    """Print the BibTeX entry of a method.

    Args:
        method: A method, its class or its name.

    Example:
        >>> import trimol
        >>> trimol.citation("mgda")  # doctest: +ELLIPSIS
        @article{desideri2012multiple,
          title = {Multiple-gradient descent algorithm (MGDA) for multiobjective optimization},
        ...
    """
    key = outline(method).value("reference") if isinstance(method, str) else method.reference
    print(_entries()[key])


def _entries() -> dict[str, str]:
    text = files("trimol.methods").joinpath("references.bib").read_text(encoding="utf-8")
    blocks = re.findall(r"^@.*?^}$", text, re.DOTALL | re.MULTILINE)
    return {re.findall(r"^@\w+{([^,]+),", block)[0]: block for block in blocks}
