"""What a search may try, as a user types it: ``--lr log:1e-3..1 --set modo.gamma=0.1,1,10``."""

from collections.abc import Callable, Sequence
from typing import Any

from trimol._failures import BadValue
from trimol.cli import _hyperparameters as hyperparameters
from trimol.cli._method_list import OF_THE_RUN, by_method
from trimol.cli._reporting import UsageError
from trimol.cli._values import outside_brackets
from trimol.search._ranges import Choice, Dimension, parse_dimension


def read(text: str, one: Callable[[str], Any]) -> Dimension:
    """Read a range, a simplex, or a choice of values, each by itself.

    >>> read("0.1,1", float), read("lin:0..1", float)
    (Choice(options=(0.1, 1.0)), Range(low=0.0, high=1.0, kind='lin', points=None))
    """
    parts = [part.strip() for part in outside_brackets(text)]
    return parse_dimension(text) or Choice(tuple(one(part) for part in parts))


def by_setting(set_texts: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, Dimension]]:
    """Read what may be tried, by method and setting, from ``METHOD.NAME=SPACE`` texts.

    >>> by_setting(["stch.mu=0.1,1"], ["stch"])
    {'stch': {'mu': Choice(options=(0.1, 1.0))}}
    """
    return {
        method: {_named(name): _space(method, name, text) for name, text in own.items()}
        for method, own in by_method(set_texts, methods).items()
    }


def _named(name: str) -> str:
    """A setting as it is in Python; an objective's name stays as it is."""
    setting, dot, objective = name.removeprefix(hyperparameters.PREFIX).partition(".")
    prefix = hyperparameters.PREFIX if name.startswith(hyperparameters.PREFIX) else ""
    return prefix + setting.replace("-", "_") + dot + objective


def _space(method: str, name: str, text: str) -> Dimension:
    by = f"--set {method}.{name}"
    try:
        if name in OF_THE_RUN:
            return read(text, OF_THE_RUN[name])
        if parse_dimension(text) is not None:
            _check_known(method, name)
        return read(text, lambda part: _value(method, name, part))
    except BadValue as error:
        raise UsageError(f"{by} {error}") from None


def _check_known(method: str, name: str) -> None:
    """A range says nothing of its hyper-parameter: there must be one of the name."""
    setting, known = _named(name).removeprefix(hyperparameters.PREFIX), hyperparameters.of(method)
    if setting.partition(".")[0] not in known:
        raise UsageError(f"--set {method}.{name} is unknown: {method} has {', '.join(known)}")


def _value(method: str, name: str, text: str) -> Any:
    (found,) = hyperparameters.read(method, {name: text}, by=f"--set {method}.").values()
    return next(iter(found.values())) if isinstance(found, dict) else found
