"""A method's hyper-parameters as flags: named and typed as in its constructor."""

from collections.abc import Collection, Mapping
from typing import Any

from trimol._failures import BadValue, meant
from trimol._outline import Parameter
from trimol.cli._reporting import UsageError
from trimol.cli._values import by_objective, of_types, reader, real_number
from trimol.methods._registry import outline
from trimol.training._optimizers import GIVEN

PREFIX = "method."


def of(method: str) -> dict[str, Parameter]:
    """The hyper-parameters of a method that can be flags, by name.

    >>> [(p.name, p.default) for p in of("modo").values()][:2]
    [('gamma', 'auto'), ('rho', 0.0)]
    """
    parameters = outline(method).parameters
    return {
        p.name: p
        for p in parameters
        if p.keyword and p.name not in GIVEN and any(map(reader, p.types))
    }


def read(
    method: str, flags: Mapping[str, str | None], *, taken: Collection[str] = (), by: str = "--"
) -> dict[str, Any]:
    """Values for a method's constructor from flags, each by its name or as ``method.NAME``.

    ``NAME.OBJECTIVE`` is the value for one objective, where there is one for each or some. A flag
    without a value is true. The command's own flags, which are taken, hide hyper-parameters of the
    same name. ``by`` is what a user types before a name.

    >>> read("modo", {"gamma": "0.1", "simultaneous": None, "weights": "0.2,0.8"})
    {'gamma': 0.1, 'simultaneous': True, 'weights': [0.2, 0.8]}
    >>> read("preference", {"bounds.click-rate": "0.2"})
    {'bounds': {'click-rate': 0.2}}
    """
    known = of(method)
    values: dict[str, Any] = {}
    for flag, text in flags.items():
        name, dot, objective = flag.removeprefix(PREFIX).partition(".")
        name = name.replace("-", "_")
        if name not in known:
            if by != "--":
                near = meant(flag, known, by)
                raise UsageError(f"{by}{flag} is unknown{near}: {method} has {', '.join(known)}")
            raise UsageError(_unknown(method, flag, known, taken))
        try:
            if dot:
                _add(values, known[name], objective, text)
            else:
                values[name] = of_types("true" if text is None else text, known[name].types)
        except BadValue as error:
            raise UsageError(f"{by}{flag} {error}") from None
    return values


def _add(values: dict[str, Any], parameter: Parameter, objective: str, text: str | None) -> None:
    """Add one objective's value to those that were read."""
    if not any(map(by_objective, parameter.types)):
        raise BadValue(f"must be without a dot: {parameter.name} is not by objective")
    if not isinstance(values.setdefault(parameter.name, {}), dict):
        raise BadValue(f"must be given by objective or as a whole, found both of {parameter.name}")
    values[parameter.name][objective] = real_number(text or "")


def _unknown(method: str, flag: str, known: Collection[str], taken: Collection[str]) -> str:
    names = [f"{PREFIX}{name}" if name in taken else name for name in known]
    own = ", ".join(f"--{name.replace('_', '-')}" for name in names)
    near = meant(flag, [name.replace("_", "-") for name in (*names, *taken)], "--")
    return f"unknown flag --{flag}{near}: the hyper-parameters of {method} are {own}"
