"""List the methods, or say what one does and which hyper-parameters it has."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional

from trimol.cli import _hyperparameters as hyperparameters
from trimol.cli._lines import echo, explain, plain, say, stream
from trimol.cli._parse import parse
from trimol.cli._reporting import print_json
from trimol.cli._setup import checked_method
from trimol.cli._values import Maybe, typed
from trimol.methods._citation import citation
from trimol.methods._registry import names, outline


@dataclass(frozen=True)
class Options:
    """List the methods, or say what one does and which hyper-parameters it has."""

    method: Positional[Annotated[Maybe[str], typed(str, "METHOD", unset="all")]] = None
    """One method."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "methods")
    chosen = [checked_method(options.method)] if options.method is not None else names()
    described = [_described(name) for name in chosen]
    if options.json:
        print_json(described)
    elif options.method:
        _show(described[0])
    else:
        for method in described:
            say(f"{method['method']:<11} {method['summary']}", indent=12)
    return 0


def _described(name: str) -> dict[str, Any]:
    source = outline(name)
    return {
        "method": name,
        "summary": source.value("summary"),
        "draws": source.value("draws"),
        "hyperparameters": {p.name: p.default for p in hyperparameters.of(name).values()},
        "meaning": {p: plain(source.arguments.get(p, "")) for p in hyperparameters.of(name)},
    }


def _show(method: dict[str, Any]) -> None:
    say(f"{method['method']}: {method['summary']}")
    echo(f"Independent mini-batches a step: {method['draws']}")
    echo("Hyper-parameters, with their defaults:")
    for name, default in method["hyperparameters"].items():
        shown = "none" if default is None else default
        explain(f"--{name.replace('_', '-')} {shown}", method["meaning"][name])
    echo()
    with redirect_stdout(stream()):
        citation(method["method"])
