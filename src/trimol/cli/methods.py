"""List the methods, or say what one does and which hyper-parameters it has."""

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional

from trimol.cli._parse import parse
from trimol.cli._reporting import UsageError
from trimol.cli._values import typed


@dataclass(frozen=True)
class Options:
    """List the methods, or say what one does and which hyper-parameters it has."""

    method: Positional[Annotated[str | None, typed(str, "METHOD", unset="all")]] = None
    """One method."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    from trimol import methods

    options = parse(Options, arguments, "methods")
    chosen = [checked_method(options.method)] if options.method else methods.names()
    found = [_described(name) for name in chosen]
    if options.json:
        print(json_format.dumps(found, indent=1))
    elif options.method:
        _show(found[0])
    else:
        _list(found)
    return 0


def checked_method(name: str) -> str:
    """The name of a method, or one line that lists them all."""
    from trimol import methods

    if name not in methods.names():
        known = ", ".join(methods.names())
        raise UsageError(f"unknown method {name!r}: the methods are {known}")
    return name


def _described(name: str) -> dict[str, Any]:
    from trimol import methods
    from trimol.cli import _hyperparameters as hyperparameters

    kind = methods.get(name)
    own = {p.name: p.default for p in hyperparameters.of(name).values()}
    return {"method": name, "summary": kind.summary, "draws": kind.draws, "hyperparameters": own}


def _list(found: Sequence[dict[str, Any]]) -> None:
    for method in found:
        print(f"{method['method']:<11} {method['summary']}")


def _show(method: dict[str, Any]) -> None:
    from trimol.methods import citation

    print(f"{method['method']}: {method['summary']}")
    print(f"Independent mini-batches a step: {method['draws']}")
    print("Hyper-parameters, with their defaults:")
    for name, default in method["hyperparameters"].items():
        print(f"  --{name.replace('_', '-'):<14} {default}")
    print()
    citation(method["method"])
