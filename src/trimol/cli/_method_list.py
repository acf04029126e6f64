"""The methods of a command and their settings: ``static,stch:mu=0.1`` and ``--set modo.lr=1``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimol._failures import BadValue
from trimol.cli import _hyperparameters as hyperparameters
from trimol.cli._parse import pairs
from trimol.cli._reporting import UsageError
from trimol.cli._setup import checked_method
from trimol.cli._values import positive, schedule_name
from trimol.runs._variants import Variant

# What is the run's, not the method's; a method's own of the same name is ``method.lr``.
OF_THE_RUN: dict[str, Callable[[str], Any]] = {"lr": positive, "schedule": schedule_name}


def read(
    labels: Sequence[str], set_texts: Sequence[str], *, flag: str = "methods"
) -> list[Variant]:
    """What is compared. The settings in a label go before those of ``--set``, as more special.

    ``flag`` is the one that the labels were given by.

    >>> read(["static", "stch:mu=0.1:lr=3"], ["stch.lr=1"])[1].lr
    3.0
    """
    typed = [_split(label, flag) for label in labels]
    common = by_method(set_texts, [method for method, _ in typed])
    return [
        Variant(
            method,
            label,
            **_settings(method, common.get(method, {}), own, by=f"--{flag} {label}: "),
        )
        for label, (method, own) in zip(labels, typed, strict=True)
    ]


def by_method(set_texts: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, str]]:
    """``METHOD.NAME=VALUE`` texts by method, then by name.

    >>> by_method(["modo.gamma=0.1", "preference.bounds.ctr=0.2"], ["modo", "preference"])
    {'modo': {'gamma': '0.1'}, 'preference': {'bounds.ctr': '0.2'}}
    """
    found: dict[str, dict[str, str]] = {}
    for key, text in pairs(set_texts, "set").items():
        method, _, name = key.partition(".")
        if method not in methods:
            known = ", ".join(dict.fromkeys(methods))
            raise UsageError(f"--set must name one of {known}, found {key!r}")
        found.setdefault(method, {})[name] = text
    return found


def _split(label: str, flag: str) -> tuple[str, dict[str, str]]:
    """The method, and its settings as text."""
    method, *settings = label.split(":")
    checked_method(method)
    own = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(
                f"--{flag} must be METHOD or METHOD:NAME=VALUE, found {text!r} in {label!r}"
            )
        own[name] = value
    return method, own


def _settings(
    method: str, common: Mapping[str, str], own: Mapping[str, str], *, by: str
) -> dict[str, Any]:
    """Step size, schedule and hyper-parameters of a variant."""
    first = _read(method, common, f"--set {method}.")
    second = _read(method, own, by)
    merged = {**first.pop("hyperparameters"), **second.pop("hyperparameters")}
    return {**first, **second, "hyperparameters": merged}


def _read(method: str, texts: Mapping[str, str], by: str) -> dict[str, Any]:
    others = {name: text for name, text in texts.items() if name not in OF_THE_RUN}
    values: dict[str, Any] = {"hyperparameters": hyperparameters.read(method, others, by=by)}
    for name in texts.keys() & OF_THE_RUN:
        try:
            values[name] = OF_THE_RUN[name](texts[name])
        except BadValue as error:
            raise UsageError(f"{by}{name} {error}") from None
    return values
