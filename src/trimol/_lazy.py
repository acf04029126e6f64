"""Names that load when they are first used (PEP 562).

A package that does so has a stub beside its ``__init__.py``. The stub is what type checkers read,
and here it is read for where each name comes from: names and types are written down once.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from trimol._failures import BadValue, meant


def attach(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], Any]:
    """What a lazy module assigns to ``__getattr__, __dir__, __all__``; the stub is beside its file.

    >>> get, names, _ = attach("trimol", import_module("trimol").__file__)
    >>> get("MoDo").__name__, "MoDo" in names()
    ('MoDo', True)
    """
    places = _names(Path(file).with_suffix(".pyi"))

    def load(name: str) -> Any:
        if name not in places:
            said = f"module {module!r} has no attribute {name!r}"
            # Python proposes names that differ in a few letters: mgda differs from MGDA in four.
            meant = [known for known in places if known.lower() == name.lower()]
            if meant:  # with its name the error is complete, and Python proposes nothing more
                raise AttributeError(f"{said}. Did you mean: {meant[0]!r}?", name=name)
            raise AttributeError(said)
        try:
            value = resolve(places[name])
        except AttributeError as error:  # which Python would take for "no such name"
            raise ImportError(f"{places[name]} cannot be imported: {error}") from error
        setattr(import_module(module), name, value)
        return value

    return load, lambda: sorted(places), list(places)


def stubbed(stub: Path) -> dict[str, str]:
    """Where the names of a stub come from, in its order: ``{"MoDo": "trimol.methods.modo:MoDo"}``.

    A name that is a module comes from ``package:module``; see `resolve`.
    """
    return dict(_names(stub))


def resolve(place: str) -> Any:
    """What is at a place: ``module:name``, where the name may be a module, too.

    >>> resolve("trimol._lazy:resolve").__name__, resolve("trimol:_lazy").__name__
    ('resolve', 'trimol._lazy')
    """
    module, _, name = place.partition(":")
    home = import_module(module)
    # A module that is there but not loaded is no attribute yet (nor to be asked of a lazy package).
    value = vars(home).get(name)
    if value is not None:
        return value
    try:
        return import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{module}.{name}":
            raise
        return getattr(home, name)


def place_of(places: Mapping[str, str], name: str, kind: str = "name") -> str:
    """The place that has this name; an error that lists all names if there is none."""
    if name not in places:
        near = meant(name, places)
        raise BadValue(f"{kind} must be one of {', '.join(places)}, found {name!r}{near}")
    return places[name]


@cache
def _names(stub: Path) -> dict[str, str]:
    places: dict[str, str] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        for alias in node.names:
            if alias.name == "*":
                places |= _names(source_of(node.module))
            else:
                places[alias.asname or alias.name] = f"{node.module}:{alias.name}"
    return places


def source_of(module: str) -> Path:
    """Where the names of one of our modules are written down: its stub, where it has one.

    >>> [source_of(f"trimol.{name}").name for name in ("tasks", "methods.algorithms", "_lazy")]
    ['__init__.pyi', 'algorithms.pyi', '_lazy.py']
    """
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])
    stem = path / "__init__" if path.is_dir() else path
    stub = stem.with_suffix(".pyi")
    return stub if stub.exists() else stem.with_suffix(".py")
