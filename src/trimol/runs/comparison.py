"""Compare methods on a task: the same starts and the same samples for all, several seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

from torch import Tensor

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.errors._conflict import conflict_over_runs
from trimol.runs._journal import Watch
from trimol.runs._pool import execute_all
from trimol.runs._variants import Variant, variants
from trimol.runs.config import RunConfig, configure, equal_steps, task_of
from trimol.runs.statistics import LEVEL, Paired, holm, interval
from trimol.runs.store import StoredRun
from trimol.runs.study import Row, row
from trimol.training import Diverged

Value = TypeVar("Value")
ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca", "E_caw")
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
        task: The task, as it was given.
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
    """How a method differs from the first one, seed by seed: same start, same samples.

    Attributes:
        method: The method's name.
        baseline: The first method's name.
        metric: What was measured, as `summarise` calls it.
        mean: The mean over seeds of this method's number minus the baseline's.
        ci: Half the width of its 95 % confidence interval (Student's t); None for a single seed.
        n: How many seeds both methods finished.
        p: The p value of the paired t test, adjusted by Holm for all differences of the table.
    """

    method: str
    baseline: str
    metric: str
    mean: float
    ci: float | None
    n: int
    p: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether this interval, taken alone, excludes 0."""
        return self.ci is not None and abs(self.mean) > self.ci

    @property
    def clear(self) -> bool:
        """Whether it is larger than its noise, also in view of how many were looked at."""
        return self.p is not None and self.p < 1 - LEVEL


def compare(
    task: str,
    methods: Sequence[str | Variant],
    *,
    folder: Path | str,
    seeds: int,
    steps: int,
    batch_size: int = 64,
    task_options: Mapping[str, Any] | None = None,
    hyperparameters: Mapping[str, Mapping[str, Any]] | None = None,
    lr: float | Mapping[str, float] | None = None,
    schedule: str | Mapping[str, str] | None = None,
    rho: float = 0.0,
    measure_every: int = 0,
    score_every: int = 0,
    checkpoint_every: int | None = None,
    precision: str = "no",
    optimizer: str | None = None,
    watch_every: int = 0,
    watch_full_every: int = 0,
    jobs: int | None = None,
    watch: Watch | None = None,
    together: bool = False,
    retry: bool = False,
    say: Callable[[str], None] | None = None,
    on: str | None = None,
) -> Comparison:
    """Train a task with each method, ``seeds`` times, at equal samples.

    Run i of every method starts from the same parameters and sees the same samples. A method whose
    batches grow takes as many steps as the samples of the others allow. Runs are executed in
    folders of their own below ``folder``: finished ones are not run again, killed ones go on.

    Args:
        task: A task's name, or ``path/to/file.py:Class``; its settings say how to run each method.
        methods: The methods' names, or `Variant` for settings of one; the first is the one that
            the others are compared with.
        folder: Where the runs are stored.
        seeds: Runs of each method.
        steps: Steps of each run.
        batch_size: Samples per step.
        task_options: Keyword arguments of the task's constructor.
        hyperparameters: Of some methods, by name; they go before the task's settings.
        lr: α of all methods, or of some, by name.
        schedule: How α falls to 0 over the steps (``"constant"``, ``"linear"``, ``"cosine"``), for
            all methods, or for some, by name.
        rho: ρ of the conflict-avoiding weights that λ is measured against.
        measure_every: Measure at every so many steps; with 0 at the end only.
        score_every: After every so many steps, the metrics on validation and test data.
        checkpoint_every: Steps between checkpoints; a fifth of the run by default.
        precision: ``"no"``, ``"bf16"`` or ``"fp16"``.
        optimizer: The same for all methods, by its name (`RunConfig`); None: the task's own.
        watch_every: Look at every so many steps whether it raised a loss; with 0 never.
        watch_full_every: At every so many of these looks, the same on all training data.
        jobs: How many runs at a time, in processes of their own; by default one, and on a cluster
            as many as it has CPUs.
        watch: Called with a run's configuration, its steps done and, after a measurement, the
            record.
        together: Whether runs that differ in their seed only train together, where the model is
            small and task and method allow it: faster, and to rounding only what `execute` makes
            of each.
        retry: Whether runs that diverged before are trained again.
        say: Told, in a line each, of runs that failed before for another reason: these are tried
            again.
        on: A Ray cluster to run them on (`execute_all`).

    Raises:
        Diverged: Every run diverged. Where some did, the others go on: see `Comparison.failed`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     both = compare("digits", ["static", "modo"], folder=folder, seeds=2, steps=10)
        >>> {method: len(runs) for method, runs in both.runs.items()}
        {'static': 2, 'modo': 2}
    """
    compared = variants(methods)
    counts = {
        v.method: equal_steps(task, v.method, steps, batch_size, task_options) for v in compared
    }
    configs = [
        configure(
            task,
            v.method,
            task_options=task_options,
            hyperparameters={**(hyperparameters or {}).get(v.method, {}), **v.hyperparameters},
            lr=_first_given(v.lr, lr, v.method),
            schedule=_first_given(v.schedule, schedule, v.method),
            steps=counts[v.method],
            batch_size=batch_size,
            seed=seed,
            rho=rho,
            measure_every=measure_every,
            score_every=score_every,
            checkpoint_every=max(1, steps // 5) if checkpoint_every is None else checkpoint_every,
            precision=precision,
            optimizer=optimizer,
            watch_every=watch_every,
            watch_full_every=watch_full_every,
        )
        for seed in range(whole_number("seeds", seeds, least=1))  # all methods, seed by seed
        for v in compared
    ]
    labels = _all_different(compared, configs)
    jobs_ = [(config, Path(folder) / folder_name(config)) for config in configs]
    executed = execute_all(
        jobs_, jobs=jobs, watch=watch, together=together, retry=retry, say=say, on=on
    )
    return _comparison(task, labels, configs, executed)


def _first_given(own: Value | None, given: Value | Mapping[str, Value] | None, method: str) -> Any:
    """A variant's own, else what is given for all methods, or for this one."""
    if own is not None:
        return own
    return given.get(method) if isinstance(given, Mapping) else given


def _all_different(compared: Sequence[Variant], configs: Sequence[RunConfig]) -> dict[str, str]:
    """The labels by the runs' keys: no two methods may be the same runs under two names."""
    labels: dict[str, str] = {}
    for variant, config in zip(cycle(compared), configs, strict=False):
        other = labels.setdefault(config.key, variant.label)
        if other != variant.label:
            raise BadValue(
                f"methods must be different, found {other} and {variant.label}, the same runs"
            )
    return labels


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
        metric of the task, on test data, an error, R_gen by its size, or a share of the steps that
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


def differences(compared: Comparison) -> list[Difference]:
    """How each method differs from the first, metric by metric, over the seeds that both finished.

    The interval is that of each difference alone. The p values are adjusted by Holm over all
    differences that are returned, as a table with many invites to look for the largest.
    """
    first, *others = compared.runs
    pairs = [
        (method, metric, pair)
        for method in others
        for metric, pair in paired(compared.runs[first], compared.runs[method]).items()
    ]
    return judged_together(first, pairs)


def judged_together(baseline: str, pairs: Sequence[tuple[str, str, Paired]]) -> list[Difference]:
    """Differences of (method, metric, both seed by seed), with Holm's p for all."""
    adjusted = holm([pair.p for _, _, pair in pairs])
    return [
        Difference(method, baseline, metric, mean(pair.apart), pair.ci, len(pair.apart), p)
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
    # |R_gen| of each run, as in the paper.
    errors = {name: abs(record[name]) for name in ERRORS if name in record}
    return {**named, **errors}


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


def _comparison(
    task: str,
    labels: Mapping[str, str],
    configs: Sequence[RunConfig],
    executed: Sequence[StoredRun | Diverged],
) -> Comparison:
    runs: dict[str, list[StoredRun]] = {label: [] for label in labels.values()}
    failed = []
    for config, result in zip(configs, executed, strict=True):
        if isinstance(result, Diverged):
            failed.append((config, str(result)))
        else:
            runs[labels[config.key]].append(result)
    if len(failed) == len(configs):
        raise Diverged(f"every run diverged; {labels[failed[0][0].key]}: {failed[0][1]}")
    return Comparison(task, runs, failed, labels)


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
