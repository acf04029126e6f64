"""How long the steps of compared methods are: one step size is not one step."""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import torch
from torch import optim

from trimol.cli import _hyperparameters as hyperparameters
from trimol.report._numbers import number, short
from trimol.runs.comparison import Comparison
from trimol.runs.config import RunConfig, task_of
from trimol.runs.store import StoredRun, records
from trimol.tasks import _answers as answers
from trimol.training._optimizers import named
from trimol.training.records import Record

_MUCH = 3.0  # times


def lines(compared: Comparison) -> list[str]:
    """A line for every step size at which one method's direction is much longer than another's."""
    groups: dict[float, dict[str, float]] = {}
    for method, runs in compared.runs.items():
        if not runs or not _as_long_as_its_gradient(runs[0].config):
            continue
        if found := [length for run in runs if (length := of_run(run))]:
            groups.setdefault(runs[0].config.lr, {})[method] = fmean(found)
    return [line for lr, found in groups.items() if (line := _line(lr, found))]


def _as_long_as_its_gradient(config: RunConfig) -> bool:
    """Whether the optimizer's step grows with the gradient: that of Adam and its kin does not."""
    params = [torch.zeros(1, requires_grad=True)]
    if config.optimizer is not None:
        made = named(config.optimizer, params, config.lr)
    else:
        task = task_of(config.task, config.task_options)
        with torch.random.fork_rng(devices=[]):
            made = answers.optimizer(task, answers.model(task).parameters(), config.lr)
    return isinstance(made, optim.SGD | optim.ASGD)


def of_run(run: StoredRun) -> float | None:
    """‖∇F_S λ‖ at the first measurement, as the method hands it on; None where it is not known."""
    measured = records(run.metrics)
    return of_record(measured[0], run.objectives, _options(run)) if measured else None


def of_record(record: Record, objectives: Sequence[str], options: dict[str, Any]) -> float | None:
    """‖∇F_S λ‖ from the norms, the cosines and λ of a record.

    >>> record = {"norm/a": 3.0, "norm/b": 4.0, "cosine/a/b": 0.0, "weight/a": 1.0, "weight/b": 1.0}
    >>> of_record(record, ["a", "b"], {}), of_record(record, ["a", "b"], {"max_norm": 1.0})
    (5.0, 1.0)
    >>> of_record(record, ["a", "b"], {"length": "mean gradient"})
    2.5
    """
    uniform = options.get("length") == "mean gradient"
    try:
        sizes = {
            name: record[f"norm/{name}"]
            * (1 / len(objectives) if uniform else record[f"weight/{name}"])
            for name in objectives
        }
        # A zero gradient has no cosine, and no share.
        crossed = [
            sizes[a] * sizes[b] * record[f"cosine/{a}/{b}"]
            for a, b in combinations(objectives, 2)
            if sizes[a] and sizes[b]
        ]
    except KeyError:
        return None
    squared = sum(size**2 for size in sizes.values()) + 2 * sum(crossed)
    most = options.get("max_norm")
    return min(math.sqrt(max(squared, 0.0)), math.inf if most is None else most)


def _options(run: StoredRun) -> dict[str, Any]:
    """The method's `length` and `max_norm`, its own defaults where they were not given."""
    known = hyperparameters.of(run.config.method)
    defaults = {name: known[name].default for name in ("length", "max_norm")}
    return {**defaults, **run.config.hyperparameters}


def _line(lr: float, found: dict[str, float]) -> str:
    longest, shortest = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    ratio = found[longest] / found[shortest]
    if not ratio > _MUCH:
        return ""
    return (
        f"At the step size {short(lr)} that they share, the direction of {longest} is "
        f"{number(ratio, digits=2)} times as long as that of {shortest} (at the first "
        "measurement): compare at step sizes of their own, or at one length, --set "
        f"'{longest.partition(':')[0]}.length=mean gradient' and so for each"
    )
