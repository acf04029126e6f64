"""Compare methods on a task: the same starts and the same samples for all, several seeds."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from trimol._checks import number_of_runs, whole_number
from trimol._failures import BadValue
from trimol.runs._journal import Watch
from trimol.runs._pool import execute_all
from trimol.runs._variants import Variant, variants
from trimol.runs.comparison import Comparison, folder_name
from trimol.runs.config import RunConfig, configure, equal_steps, task_of, usual_batch_size
from trimol.runs.store import StoredRun
from trimol.training import Diverged

Value = TypeVar("Value")


def compare(
    task: str,
    methods: Sequence[str | Variant],
    *,
    folder: Path | str,
    seeds: int,
    steps: int,
    first_seed: int = 0,
    batch_size: int | None = None,
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
        first_seed: The seeds are those from here on.
        batch_size: Samples per step; None: the task's own.
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
    for what, own in (("hyperparameters", hyperparameters), ("lr", lr), ("schedule", schedule)):
        _check_names(what, own, [v.method for v in compared])
    first = whole_number("first_seed", first_seed, least=0)
    size = usual_batch_size(task, task_options) if batch_size is None else batch_size
    counts = {v.method: equal_steps(task, v.method, steps, size, task_options) for v in compared}
    number_of_runs("seeds × methods", whole_number("seeds", seeds, least=1) * len(compared))
    configs = [
        configure(
            task,
            v.method,
            task_options=task_options,
            hyperparameters={**(hyperparameters or {}).get(v.method, {}), **v.hyperparameters},
            lr=first_given(v.lr, lr, v.method),
            schedule=first_given(v.schedule, schedule, v.method),
            steps=counts[v.method],
            batch_size=size,
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
        for seed in range(first, first + seeds)  # then by method
        for v in compared
    ]
    labels = _all_different(compared, configs)
    jobs_ = [(config, Path(folder) / folder_name(config)) for config in configs]
    executed = execute_all(
        jobs_, jobs=jobs, watch=watch, together=together, retry=retry, say=say, on=on
    )
    name = task_of(task, task_options).name
    return _comparison(name, labels, configs, executed)


def _check_names(what: str, given: object, methods: Sequence[str]) -> None:
    """Refuse what is given for a method that is not compared: it would have no effect."""
    for name in given if isinstance(given, Mapping) else ():
        if name not in methods:
            raise BadValue(
                f"{what} must name compared methods ({', '.join(dict.fromkeys(methods))}), "
                f"found {name!r}"
            )


def first_given(own: Value | None, given: Value | Mapping[str, Value] | None, method: str) -> Any:
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
