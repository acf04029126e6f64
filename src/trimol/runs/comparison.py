"""What came of the runs of a comparison: means over seeds, and differences run by run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from torch import Tensor

from trimol.errors._conflict import conflict_over_runs
from trimol.methods._registry import BASELINE
from trimol.runs._significance import is_clear, p_values
from trimol.runs.config import RunConfig, task_of
from trimol.runs.statistics import Paired, interval
from trimol.runs.store import StoredRun
from trimol.runs.study import Row, row

ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca", "E_caw")
# R_gen without its sign, of each run: what runs are compared by, as less of it is better.
GAP, SIZE = "R_gen", "|R_gen|"
JUDGED = tuple(SIZE if name == GAP else name for name in ERRORS)
# What steps that were looked at did (:mod:`trimol.training.records`).
STEPS = (
    *("steps_raise_some", "steps_raise_all", "steps_worst_cosine"),
    *("full_raise_some", "full_raise_all", "full_worst_cosine"),
)
# Over seeds, the definition of E_ca (and an estimate of it without bias): see `summarise`.
DEFINITION, UNBIASED = "E_ca_definition", "E_ca_unbiased"


@dataclass(frozen=True)
class Comparison:
    """What became of the runs of a comparison.

    Attributes:
        task: The task's name.
        runs: The finished runs of each method, by its label, in the order of the seeds.
        failed: The configurations of runs that diverged, each with what was said about it.
        labels: The labels of runs that are of a variant, by the run's key.
    """

    task: str
    runs: dict[str, list[StoredRun]]
    failed: list[tuple[RunConfig, str]]
    labels: Mapping[str, str] = field(default_factory=dict)

    def label(self, config: RunConfig) -> str:
        """What the method of a run is called here."""
        return self.labels.get(config.key, config.method)


@dataclass(frozen=True)
class Difference:
    """How a method differs from the baseline, seed by seed: same start, same samples.

    Attributes:
        method: The method's name.
        baseline: The baseline's name.
        metric: What was measured, as `summarise` calls it.
        mean: The mean over seeds of this method's number minus the baseline's.
        ci: Half the width of its 95 % confidence interval (Student's t); None for a single seed.
        n: How many seeds both methods finished.
        p: Its p value in view of all differences of the table (`trimol.runs._significance`);
            None where the seeds are too few.
        fixed: Whether all seeds gave the same numbers.
    """

    method: str
    baseline: str
    metric: str
    mean: float
    ci: float | None
    n: int
    p: float | None
    fixed: bool = False

    @property
    def excludes_zero(self) -> bool:
        """Whether this interval, taken alone, excludes 0."""
        return self.ci is not None and abs(self.mean) > self.ci

    @property
    def clear(self) -> bool:
        """Whether it is larger than its noise, also in view of how many were looked at."""
        return is_clear(self.p)


def folder_name(config: RunConfig) -> str:
    """What to call a run's folder: for people, and different for different configurations.

    >>> folder_name(RunConfig(task="digits", method="modo", lr=1.0, steps=10, seed=3))[:18]
    'digits-modo-seed3-'
    """
    task = task_of(config.task, config.task_options).name
    safe = "".join(letter if letter.isalnum() else "-" for letter in task)
    return f"{safe}-{config.method}-seed{config.seed}-{config.key}"


def summarise(compared: Comparison) -> list[Row]:
    """Mean, standard deviation and confidence interval over seeds of every number.

    E_ca has two readings. ``E_ca`` is the mean over seeds of ‖∇F_S(λ − λ*)‖², as in the paper's
    experiments. ``E_ca_definition`` is the paper's definition, with the mean over seeds inside the
    norm; n seeds leave Var/n of noise in it, which ``E_ca_unbiased`` is free of on average.

    Returns:
        One dict a number (`trimol.runs.study.row`): ``method``, ``metric`` (an objective or a
        metric of the task, on test data, an error, ``|R_gen|``, or a share of the steps that
        were looked at), ``mean``, ``std`` (None
        for a single seed), ``n``, ``paper``, ``ci`` (half the width of the 95 % interval of the
        mean, by Student's t), and the settings: step size, hyper-parameters and steps; of a variant
        also ``variant_of``, the method's name.
    """
    rows = []
    for method, runs in compared.runs.items():
        settings = settings_of(runs[0].config) if runs else {}
        if runs and method != runs[0].config.method:
            settings["variant_of"] = runs[0].config.method
        each = [numbers(run.record) | _looked(run.record) for run in runs]
        for metric, values in columns(each).items():
            # A number goes before a setting of the same name.
            rows.append({**settings, **row(method, metric, values), "ci": interval(values)})
        for metric, value in readings([run.direction for run in runs]).items():
            own = {**row(method, metric, [value]), "n": len(runs), "ci": None}
            rows.append({**settings, **own})
    return rows


def readings(directions: Sequence[Tensor]) -> dict[str, float]:
    """What only several seeds together can say: E_ca with the mean over them inside the norm.

    Args:
        directions: ∇F_S(λ − λ*_ρ), one vector a seed.
    """
    if len(directions) < 2:
        return {}
    over = conflict_over_runs(directions)
    assert over.unbiased is not None  # more than one run
    return {DEFINITION: over.definition, UNBIASED: over.unbiased}


def differences(compared: Comparison, baseline: str | None = None) -> list[Difference]:
    """How each method differs from the baseline, by metric, over the seeds that both finished.

    The interval is that of each difference alone. The p values are adjusted by Holm over all
    differences that are returned, as a table with many invites to look for the largest.

    Args:
        compared: The runs.
        baseline: What the others are compared with; by default static weighting, where it is
            among them, else the first.
    """
    first = baseline or usual_baseline(compared.runs)
    return judged_together(first, all_paired(compared.runs, first))


def usual_baseline(runs: Mapping[str, Sequence[StoredRun]]) -> str:
    """What runs are compared with where nobody says it: static weighting, else the first."""
    named = (name for name, own in runs.items() if own and own[0].config.method == BASELINE)
    return next(named, next(iter(runs)))


def all_paired(
    runs: Mapping[str, Sequence[StoredRun]], baseline: str
) -> list[tuple[str, str, Paired]]:
    """Method, number, and baseline and method seed by seed: of all of them."""
    return [
        (method, metric, pair)
        for method in runs
        if method != baseline
        for metric, pair in paired(runs[baseline], runs[method]).items()
    ]


def judged_together(baseline: str, pairs: Sequence[tuple[str, str, Paired]]) -> list[Difference]:
    """Differences of (method, metric, both seed by seed), with p values for all together."""
    adjusted = p_values([pair for _, _, pair in pairs])
    return [
        Difference(
            method, baseline, metric, mean(pair.apart), pair.ci, len(pair.apart), p, pair.fixed
        )
        for (method, metric, pair), p in zip(pairs, adjusted, strict=True)
    ]


def numbers(record: Mapping[str, float]) -> dict[str, float]:
    """What a run is compared by: test losses and metrics by name, then the errors."""
    named = {
        name.partition("/")[2]: value
        for kind in ("test_loss/", "metric/")
        for name, value in record.items()
        if name.startswith(kind)
    }
    errors = {name: record[name] for name in ERRORS if name in record}
    size = {SIZE: abs(errors[GAP])} if GAP in errors else {}
    return {**named, **errors, **size}


def _looked(record: Mapping[str, float]) -> dict[str, float]:
    return {name: record[name] for name in STEPS if name in record}


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


def settings_of(config: RunConfig) -> dict[str, Any]:
    """What rows say of how a run was made."""
    return {"lr": config.lr, **config.movement, **config.hyperparameters, "steps": config.steps}


def paired(first: Sequence[StoredRun], second: Sequence[StoredRun]) -> dict[str, Paired]:
    """First and second, seed by seed, of every number that both have, R_gen by its size.

    A metric that is NaN says that there is none.
    """
    before = {run.config.seed: numbers(run.record) for run in first}
    pairs = [(before.get(run.config.seed, {}), numbers(run.record)) for run in second]
    base = columns([{name: old[name] for name in own if name in old} for old, own in pairs])
    other = columns([{name: own[name] for name in own if name in old} for old, own in pairs])
    both = {name: Paired(base[name], other[name]) for name in other if name != GAP}
    return {name: pair for name, pair in both.items() if all(map(math.isfinite, pair.apart))}
