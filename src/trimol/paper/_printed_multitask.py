"""The paper's printed numbers about multi-task learning, and the settings that we try."""

import math
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from trimol.paper._printed_mnist import Printed, printed

Flat = dict[str, float]


@cache
def stated() -> dict[str, Any]:
    """All that ``multitask_paper.toml`` says."""
    text = files("trimol.paper").joinpath("multitask_paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def table(name: str) -> dict[str, Any]:
    """What is said about one table.

    >>> table("table4")["label"]
    'tab:office-31-results'
    """
    found: dict[str, Any] = stated()["tables"][name]
    return found


def methods(name: str) -> list[str]:
    """The methods of a table, in its order; the first is what the others are compared with.

    >>> methods("table4")
    ['static', 'mgda', 'modo']
    """
    return list(table(name)["methods"])


def cells(name: str, method: str) -> dict[str, Printed]:
    """The printed row of a method, by metric, in plain units: accuracies are fractions.

    A cell without a standard deviation is of one run: its ``std`` is NaN.

    >>> cells("table4", "modo")["amazon accuracy"]
    Printed(mean=0.8513, std=0.0058, rounding=5e-05, runs=5)
    """
    said = table(name)
    return {
        metric: _printed(cell, unit=_unit(said, metric), runs=said["runs"])
        for metric, cell in said["methods"][method]["cells"].items()
    }


def baselines(task: str) -> dict[str, dict[str, float]]:
    """The paper's single-task baselines of a task, by what they were measured on, then by metric.

    >>> baselines("office-31")["test"]["dslr accuracy"]
    0.9426
    """
    said = stated()["baselines"].get(task, {})
    return {
        kind: {m: float(Decimal(text) * _unit(said, m)) for m, text in said[kind].items()}
        for kind in ("validation", "test")
        if kind in said
    }


def candidates(name: str, method: str, *, grid: bool) -> list[Flat]:
    """What is tried for a method of a table: step size, weight decay and hyper-parameters.

    Args:
        name: The table.
        method: The method.
        grid: Whether to try the table's grid; else what the paper chose.

    Example:
        >>> candidates("table4", "static", grid=False)
        [{'lr': 0.0001, 'weight_decay': 0.001}]
        >>> len(candidates("table4", "modo", grid=True))
        12
    """
    chosen: Flat = table(name)["methods"][method]["chosen"]
    if not grid:
        return [dict(chosen)]
    said = stated()["grids"][table(name)["grid"]]
    tried = {"lr": said["lr"], "weight_decay": said["weight_decay"]}
    tried |= said.get("methods", {}).get(method, {})
    # What the grid does not vary is as printed.
    kept = {key: value for key, value in chosen.items() if key not in tried}
    return [
        {**dict(zip(tried, values, strict=True)), **kept} for values in product(*tried.values())
    ]


def _unit(said: Mapping[str, Any], metric: str) -> Decimal:
    """What a printed number is a multiple of, as a decimal: 84.62 of 0.01 is 0.8462."""
    return Decimal(str(said.get("units", {}).get(metric, said["unit"])))


def _printed(cell: str, *, unit: Decimal, runs: int) -> Printed:
    if "±" in cell:
        return printed(cell, unit=float(unit), runs=runs)
    found = printed(f"{cell} ± 0", unit=float(unit), runs=1)
    return Printed(found.mean, math.nan, found.rounding, runs=1)
