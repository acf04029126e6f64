"""What runs are compared by, seed by seed."""

import math
from collections.abc import Mapping, Sequence

from trimol.runs.statistics import Paired
from trimol.runs.store import StoredRun

ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca", "E_caw")


def numbers(record: Mapping[str, float]) -> dict[str, float]:
    """What a run is compared by: test losses and metrics by name, then the errors."""
    named = {
        name.partition("/")[2]: value
        for kind in ("test_loss/", "metric/")
        for name, value in record.items()
        if name.startswith(kind)
    }
    # |R_gen| of each run, as in the paper.
    errors = {name: abs(record[name]) for name in ERRORS if name in record}
    return {**named, **errors}


def columns(each: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Every number by its name, over the runs that have it.

    >>> columns([{"a": 1.0}, {"a": 2.0, "b": 3.0}])
    {'a': [1.0, 2.0], 'b': [3.0]}
    """
    values: dict[str, list[float]] = {}
    for own in each:
        for name, value in own.items():
            values.setdefault(name, []).append(value)
    return values


def paired(first: Sequence[StoredRun], second: Sequence[StoredRun]) -> dict[str, Paired]:
    """First and second, seed by seed, of every number that both have.

    A metric that is NaN says that there is none.
    """
    before = {run.config.seed: numbers(run.record) for run in first}
    pairs = [(before.get(run.config.seed, {}), numbers(run.record)) for run in second]
    base = columns([{name: old[name] for name in own if name in old} for old, own in pairs])
    other = columns([{name: own[name] for name in own if name in old} for old, own in pairs])
    both = {name: Paired(base[name], other[name]) for name in other}
    return {name: pair for name, pair in both.items() if all(map(math.isfinite, pair.apart))}
