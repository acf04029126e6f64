"""What the source of a class says, read without importing it: help and errors wait for no torch.

The reader knows what the classes here use: constants, tuples of them, names of either (imported
from another module of ours, too), type aliases, and base classes. The tests hold it to what the
imported classes say, for every method and task.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from trimol._docstrings import arguments
from trimol._lazy import source_of

_Node = ast.expr | ast.ClassDef


@dataclass(frozen=True)
class Parameter:
    """A parameter of a class's constructor.

    Attributes:
        name: As in the signature.
        types: The members of its annotation, each as text: ``("float", "None")``.
        default: Its default; None where there is none.
        required: Whether it has no default.
        keyword: Whether it must be given by name.
    """

    name: str
    types: tuple[str, ...]
    default: Any
    required: bool
    keyword: bool


class Outline:
    """A class as its source has it.

    Args:
        place: Where it is: ``package.module:Class``.

    Example:
        >>> modo = Outline("trimol.methods.modo:MoDo")
        >>> modo.value("draws"), modo.value("reference"), modo.parameters[3].name
        (2, 'chen2023three', 'rho')
    """

    def __init__(self, place: str) -> None:
        module, _, name = place.partition(":")
        self.place = place
        self._lineage = list(_lineage(module, ast.Name(name)))

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return first_line(self._lineage[0][1])

    def value(self, attribute: str) -> Any:
        """What the class, or the nearest base that has it, assigns to a class attribute."""
        for module, node in self._lineage:
            for name, value in _assigned(node):
                if name == attribute:
                    return _value(module, value)
        raise AttributeError(f"{self.place} has no {attribute}")

    @property
    def arguments(self) -> dict[str, str]:
        """What the docstrings say about each argument: the class's own words, else its bases'."""
        told: dict[str, str] = {}
        for _, node in reversed(self._lineage):
            told |= arguments(ast.get_docstring(node))
        return told

    @property
    def takes_others(self) -> bool:
        """Whether the constructor takes keywords that its signature does not name."""
        for _, node in self._lineage:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    return method.args.kwarg is not None
        return False

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those of the constructor but ``self``; ``**others`` stands for the bases' own."""
        named: dict[str, Parameter] = {}
        for module, node in self._lineage:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    own = {p.name: p for p in _parameters(module, method.args)}
                    named = {**named, **{n: p for n, p in own.items() if n not in named}}
                    if method.args.kwarg is None:
                        return tuple(named.values())
        return tuple(named.values())


def first_line(node: str | ast.Module | ast.ClassDef) -> str:
    """The first line of the docstring of a class or module, the latter also by its name.

    >>> first_line("trimol._outline")[:38]
    'What the source of a class says, read '
    """
    documented = _tree(node) if isinstance(node, str) else node
    return (ast.get_docstring(documented) or "").partition("\n")[0]


def _lineage(module: str, base: ast.expr) -> Iterator[tuple[str, ast.ClassDef]]:
    """A class of ours and its bases, nearest first, each with its module."""
    home, node = _followed(module, base)
    if isinstance(node, ast.ClassDef):
        yield home, node
        for above in node.bases:
            yield from _lineage(home, above)


def _parameters(module: str, arguments: ast.arguments) -> Iterator[Parameter]:
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        if argument is not positional[0]:
            yield Parameter(
                argument.arg,
                tuple(_types(module, argument.annotation)) if argument.annotation else (),
                None if default is None else _value(module, default),
                required=default is None,
                keyword=argument in arguments.kwonlyargs,
            )


def _types(module: str, annotation: ast.expr) -> Iterator[str]:
    """The members of a union, aliases resolved."""
    home, node = _followed(module, annotation)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _types(home, node.left)
        yield from _types(home, node.right)
    else:
        yield node.name if isinstance(node, ast.ClassDef) else ast.unparse(node)


def _value(module: str, node: ast.expr) -> Any:
    """A constant, by its name, too; or the keys of a mapping, ``tuple(MAPPING)``."""
    home, value = _followed(module, node)
    match value:
        case ast.Call(func=ast.Name(id="tuple"), args=[names]):
            _, mapping = _followed(home, names)
            keys = mapping.keys if isinstance(mapping, ast.Dict) else []
            return tuple(ast.literal_eval(key) for key in keys if key is not None)
        case ast.ClassDef():
            return value.name
    return ast.literal_eval(value)


def _followed(module: str, node: ast.expr) -> tuple[str, _Node]:
    """What a name stands for, and where, through our modules; what is no such name, as it is."""
    if not isinstance(node, ast.Name):
        return module, node
    match _definitions(module).get(node.id):
        case str(place):
            home, _, name = place.partition(":")
            return _followed(home, ast.Name(name))
        case ast.ClassDef() as kind:
            return module, kind
        case ast.expr() as value:
            return _followed(module, value)
    return module, node


@cache
def _definitions(module: str) -> dict[str, str | _Node]:
    """A module's classes, assigned values, and the places that it imports from ours."""
    names: dict[str, str | _Node] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trimol"):
            names |= {a.asname or a.name: f"{node.module}:{a.name}" for a in node.names}
    return {**names, **dict(_assigned(_tree(module)))}


def _assigned(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in scope.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(source_of(module).read_text(encoding="utf-8"))
