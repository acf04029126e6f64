"""A method's hyper-parameters as flags: named and typed as in its constructor."""

import ast
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from trimol._failures import BadValue
from trimol._outline import Parameter
from trimol.cli._reporting import UsageError
from trimol.cli._values import choice, numbers, real_number, truth, whole
from trimol.methods._registry import outline

if TYPE_CHECKING:
    from trimol.runs.config import RunConfig

PREFIX = "method."
# How to read a value from text, by its type.
_READERS: dict[str, Callable[[str], Any]] = {
    "bool": truth,
    "int": whole,
    "float": real_number,
    "str": str,
    "Sequence[float]": numbers,
}


def of(method: str) -> dict[str, Parameter]:
    """The hyper-parameters of a method that can be flags, by name.

    >>> [(p.name, p.default) for p in of("modo").values()][:2]
    [('gamma', 0.01), ('rho', 0.0)]
    """
    parameters = outline(method).parameters
    return {p.name: p for p in parameters if p.keyword and _reader(p) is not None}


def read(
    method: str, flags: Mapping[str, str | None], *, taken: Collection[str] = ()
) -> dict[str, Any]:
    """Values for a method's constructor from flags, each by its name or as ``method.NAME``.

    Args:
        method: The method's name.
        flags: Text by flag; None for a flag without a value, which is true.
        taken: The command's own flags, which hide hyper-parameters of the same name.

    Example:
        >>> read("modo", {"gamma": "0.1", "simultaneous": None, "weights": "0.2,0.8"})
        {'gamma': 0.1, 'simultaneous': True, 'weights': [0.2, 0.8]}
    """
    known = of(method)
    values = {}
    for flag, text in flags.items():
        name = flag.removeprefix(PREFIX)
        if name not in known:
            raise UsageError(_unknown(method, flag, known, taken))
        values[name] = _value(known[name], "true" if text is None else text, flag)
    return values


def check(config: "RunConfig") -> None:
    """Let a method look at its hyper-parameters before there is a model: a ValueError says why not.

    >>> from trimol.runs.config import configure
    >>> check(configure("digits", "modo", steps=1, hyperparameters={"gamma": -1.0}))
    Traceback (most recent call last):
    trimol._failures.BadValue: gamma must be a finite number of at least 0, found -1.0
    """
    import torch

    from trimol import methods, tasks

    objectives = tasks.load(config.task, config.task_options).objectives
    stand_in = [torch.zeros(1, requires_grad=True)]
    methods.get(config.method)(stand_in, len(objectives), **config.hyperparameters)


def _value(parameter: Parameter, text: str, flag: str) -> Any:
    reader = _reader(parameter)
    if reader is None or ("None" in parameter.types and text.lower() == "none"):
        return None
    try:
        return reader(text)
    except BadValue as error:
        raise UsageError(f"--{flag} {error}") from None


def _unknown(method: str, flag: str, known: Collection[str], taken: Collection[str]) -> str:
    own = ", ".join(f"--{PREFIX}{name}" if name in taken else f"--{name}" for name in known)
    flags = [name.replace("_", "-") for name in taken]
    near = [f" (did you mean --{name}?)" for name in get_close_matches(flag, flags, n=1)]
    return f"unknown flag --{flag}{''.join(near)}: the hyper-parameters of {method} are {own}"


def _reader(parameter: Parameter) -> Callable[[str], Any] | None:
    """How to read a value from text; None for types that no text can give."""
    for kind in parameter.types:
        if kind in _READERS:
            return _READERS[kind]
        if kind.startswith("Literal["):
            words = ast.literal_eval(kind.removeprefix("Literal"))
            return partial(choice, choices=words)
    return None
