"""A method's hyper-parameters as flags: named and typed as in its constructor."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from trimol import methods, tasks
from trimol._failures import BadValue
from trimol.cli._reporting import UsageError
from trimol.cli._values import real_number, whole_number

if TYPE_CHECKING:
    from trimol.runs.config import RunConfig

PREFIX = "method."
_NOT_FLAGS = ("params", "objectives")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Hyperparameter:
    """One that can be given as text.

    Attributes:
        name: As in the constructor.
        default: Its default there.
        optional: Whether ``none`` is a value.
        read: From text to the value; a ValueError says what the text must be.
    """

    name: str
    default: Any
    optional: bool
    read: Callable[[str], Any]


def of(method: str) -> dict[str, Hyperparameter]:
    """The hyper-parameters of a method that can be flags, by name.

    >>> [(p.name, p.default) for p in of("modo").values()][:2]
    [('gamma', 0.01), ('rho', 0.0)]
    """
    kind = methods.get(method)
    hints = get_type_hints(kind.__init__)
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        types = _members(hints[name])
        read = next((r for r in map(_reader, types) if r is not None), None)
        if name not in _NOT_FLAGS and read is not None:
            found[name] = Hyperparameter(name, parameter.default, NoneType in types, read)
    return found


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
    objectives = tasks.load(config.task, config.task_options).objectives
    stand_in = [torch.zeros(1, requires_grad=True)]
    methods.get(config.method)(stand_in, len(objectives), **config.hyperparameters)


def _value(parameter: Hyperparameter, text: str, flag: str) -> Any:
    if parameter.optional and text.lower() == "none":
        return None
    try:
        return parameter.read(text)
    except ValueError as error:
        raise UsageError(f"--{flag} {error}") from None


def _unknown(method: str, flag: str, known: Collection[str], taken: Collection[str]) -> str:
    own = ", ".join(f"--{PREFIX}{name}" if name in taken else f"--{name}" for name in known)
    flags = [name.replace("_", "-") for name in taken]
    near = [f" (did you mean --{name}?)" for name in get_close_matches(flag, flags, n=1)]
    return f"unknown flag --{flag}{''.join(near)}: the hyper-parameters of {method} are {own}"


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _reader(kind: Any) -> Callable[[str], Any] | None:
    """How to read a value of a type from text; None for a type that no text can give."""
    if get_origin(kind) is Literal:
        return lambda text: _choice(text, get_args(kind))
    if get_origin(kind) is Sequence:
        return _numbers
    plain: dict[Any, Callable[[str], Any]] = {
        bool: _truth,
        int: lambda text: whole_number(text, least=0),
        float: real_number,
        str: str,
    }
    return plain.get(kind)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise BadValue(f"must be true or false, found {text!r}")
    return _TRUTH[text.lower()]


def _choice(text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise BadValue(f"must be one of {', '.join(choices)}, found {text!r}")
    return text


def _numbers(text: str) -> list[float]:
    try:
        return [real_number(part) for part in text.split(",")]
    except ValueError:
        raise BadValue(f"must be numbers with commas between them, found {text!r}") from None
