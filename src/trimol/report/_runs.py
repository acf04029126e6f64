"""Stored runs, sorted for a reader: by task, then by method and its setting, seeds together."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimol import methods
from trimol.methods._movement import HARDLY
from trimol.report._numbers import listed, short
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun

# What does not tell two settings of a method apart: the task (which tells comparisons apart), the
# seed, and when a run was measured and saved.
ASIDE = (
    *("task", "task_options", "source", "seed"),
    *("measure_every", "measure_at", "validation_only"),
    *("watch_every", "watch_full_every", "checkpoint_every"),
)


@dataclass(frozen=True)
class Setting:
    """A method with its step sizes on a task: runs that differ in their seed only."""

    label: str  # the method's name, with what tells it from the method's other settings
    method: str
    runs: tuple[StoredRun, ...]  # those that count: the finished ones, or all if none is
    left_out: tuple[StoredRun, ...] = ()  # unfinished beside finished ones
    finished: bool = True  # whether the runs that count are

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs that count."""
        return tuple(run.config.seed for run in self.runs)


@dataclass(frozen=True)
class Comparison:
    """All runs of one task."""

    title: str  # the task's name, with its options where two tasks share the name
    slug: str  # the same for file names; distinct on the page
    objectives: tuple[str, ...]
    settings: tuple[Setting, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The settings' labels."""
        return tuple(setting.label for setting in self.settings)

    @property
    def ranked(self) -> tuple[Setting, ...]:
        """The settings that are called better or worse: the finished, or else those that go on.

        One that failed early has the small errors of a network that has not begun to learn.
        """
        finished = tuple(setting for setting in self.settings if setting.finished)
        return finished or tuple(s for s in self.settings if s.runs[0].state.name != "failed")


def comparisons(runs: Iterable[StoredRun]) -> list[Comparison]:
    """The runs by task, method and setting; a seed that was run twice with one counts once."""
    by_task = _grouped(runs, _task_key)
    firsts = [max(group, key=lambda run: run.finished) for group in by_task]
    names = [run.task for run in firsts]
    titles = [_title(run, alone=names.count(run.task) == 1) for run in firsts]
    return [
        Comparison(title, slug, _objectives(group), _settings(group))
        for title, slug, group in zip(titles, slugs(titles), by_task, strict=True)
    ]


def trajectory(runs: Iterable[StoredRun], column: str) -> dict[int, list[float]]:
    """A measured number over all runs, by step; ``|R_gen|`` is R_gen without its sign."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for step, value in _column(run, column):
            values.setdefault(step, []).append(value)
    return dict(sorted(values.items()))


def last(runs: Iterable[StoredRun], column: str) -> list[float]:
    """The last value of a number in each run that measured it."""
    series = [_column(run, column) for run in runs]
    return [values[-1][1] for values in series if values]


def columns(comparison: Comparison, prefix: str) -> list[str]:
    """What follows a prefix in the names of the recorded numbers, in the order found."""
    names: dict[str, None] = {}
    for setting in comparison.settings:
        for run in setting.runs:
            names |= dict.fromkeys(
                name.removeprefix(prefix) for name in run.metrics.columns if name.startswith(prefix)
            )
    return list(names)


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which some configurations differ, nested ones by their own name.

    >>> differing([{"lr": 1, "hyperparameters": {"gamma": 1}}, {"lr": 1, "hyperparameters": {}}])
    ['gamma']
    """
    flat = [flattened(config) for config in configs]
    names = dict.fromkeys(name for config in flat for name in config)
    return [name for name in names if len({_text(config.get(name)) for config in flat}) > 1]


def weights_told(runs: Mapping[str, Sequence[StoredRun]]) -> list[str]:
    """Whose λ hardly moved in any run, and whose is all on one objective: in words."""
    told = []
    if still := [label for label, own in runs.items() if own and all(map(unmoved, own))]:
        told.append(
            f"λ stayed within 1 % of its start in every run of {listed(still)}: in effect, weights "
            "that do not change."
        )
    favourites = {label: {favourite(run) for run in own} for label, own in runs.items()}
    return told + [
        f"{label} puts all weight on {name!r} (at the end of every run)."
        for label, found in favourites.items()
        if len(found) == 1 and (name := next(iter(found))) is not None
    ]


def favourite(run: StoredRun) -> str | None:
    """The objective that has all weight (to 1 %) at the last measurement, of a λ that may move."""
    names = _weights_measured(run)
    last = run.metrics.select(names).row(-1) if names and len(run.metrics) else ()
    found = (n for n, weight in zip(names, last, strict=False) if (weight or 0) >= 1 - HARDLY)
    return next((name.removeprefix("weight/") for name in found), None)


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what does not decide it, its hyper-parameters among the others."""
    flat = {k: v for k, v in config.items() if k not in (*ASIDE, "hyperparameters")}
    return {**flat, **{_free(k, flat): v for k, v in config.get("hyperparameters", {}).items()}}


def unmoved(run: StoredRun) -> bool:
    """Whether λ of a method that moves it was within 1 % of its start whenever it was measured.

    One per cent of a uniform weight, 1/M. One measurement cannot say, nor can one objective.
    """
    names = _weights_measured(run)
    if not names or len(run.metrics) < 2:
        return False
    start = run.config.hyperparameters.get("weights") or [1 / len(names)] * len(names)
    rows = run.metrics.select(names).rows()
    return len(start) == len(names) and all(
        weight is not None and abs(weight - first) * len(names) <= HARDLY
        for row in rows
        for weight, first in zip(row, start, strict=True)
    )


def _weights_measured(run: StoredRun) -> list[str]:
    """The columns of λ; none where there is one objective, or a method that does not move it."""
    names = [f"weight/{objective}" for objective in run.objectives]
    method = run.config.method
    moves = method in methods.names() and methods.get(method).needs != "nothing"
    return names if moves and len(names) > 1 and {*names} <= {*run.metrics.columns} else []


def command(config: RunConfig) -> str:
    """What to type to get this run again.

    >>> command(RunConfig(task="digits", method="modo", lr=1.0, steps=9, seed=3))
    'trimol run digits --method modo --lr 1.0 --steps 9 --batch-size 64 --seed 3 \
--measure-every 0 --measure-rho 0.0'
    """
    flags = {
        "method": config.method,
        "lr": config.lr,
        "steps": config.steps,
        "batch-size": config.batch_size,
        "seed": config.seed,
        "measure-every": config.measure_every,
        "measure-rho": config.rho,
    }
    if config.score_every:
        flags["score-every"] = config.score_every
    if config.watch_every:
        flags["watch-every"] = config.watch_every
    if config.watch_full_every:
        flags["watch-full-every"] = config.watch_full_every
    flags |= config.movement
    if config.precision != "no":
        flags["precision"] = config.precision
    # With the prefix, a hyper-parameter is never taken for a flag of the command.
    own = {f"method.{name}": value for name, value in config.hyperparameters.items()}
    words = ["trimol", "run", config.task]
    for name, value in {**flags, **own}.items():
        parts = value if isinstance(value, Mapping) else {"": value}
        for objective, part in parts.items():  # a bound for each of some objectives
            words += [f"--{name}.{objective}".removesuffix("."), _typed(part)]
    for name, value in config.task_options.items():
        words += ["--option", f"{name}={_typed(value)}"]
    return shlex.join(words)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """A hyper-parameter may share its name with a setting of the run: ρ of the measure."""
    return f"method's {name}" if name in taken else name


def _grouped(runs: Iterable[StoredRun], key: Callable[[StoredRun], str]) -> list[list[StoredRun]]:
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _typed(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_typed, value))
    return str(value)


def _task_key(run: StoredRun) -> str:
    """A user's task is its file's content, wherever the file lies."""
    return _text([Path(run.config.task).name, run.config.task_options, run.config.source])


def _title(run: StoredRun, *, alone: bool) -> str:
    config, name = run.config, run.task
    if alone or not (config.task_options or config.source):
        return name
    options = [f"{option}={value}" for option, value in config.task_options.items()]
    source = [f"source {config.source[:8]}"] if config.source else []
    return f"{name} ({', '.join(options + source)})"


def slugs(titles: Sequence[str]) -> list[str]:
    """Short names of plain letters, distinct also where case is not told apart."""
    slugs: list[str] = []
    for title in titles:
        base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "task"
        slug, i = base, 2
        while slug in slugs:
            slug, i = f"{base}-{i}", i + 1
        slugs.append(slug)
    return slugs


def _objectives(runs: Sequence[StoredRun]) -> tuple[str, ...]:
    """Those of the first run that has measured something."""
    return next((tuple(run.objectives) for run in runs if run.objectives), ())


def _settings(runs: Sequence[StoredRun]) -> tuple[Setting, ...]:
    groups = _grouped(runs, lambda run: _text(flattened(run.config.model_dump())))
    by_method = _grouped((group[0] for group in groups), lambda run: run.config.method)
    labels = {
        id(run): _label(run, names)
        for same in by_method
        for names in [_telling(same)]
        for run in same
    }
    ordered = sorted(groups, key=lambda group: _place(group[0]))
    return tuple(_setting(labels[id(group[0])], group) for group in ordered)


def _telling(runs: Sequence[StoredRun]) -> list[str]:
    """What tells a method's runs apart: how often was looked, only where nothing else does."""
    every = list(differing([run.config.model_dump() for run in runs]))
    few = [name for name in every if not name.endswith("_every")]
    return few if len({_label(run, few) for run in runs}) == len(runs) else every


def _place(run: StoredRun) -> tuple[Any, ...]:
    """Methods in the one order that they are listed in everywhere, their settings by size."""
    known = {name: i for i, name in enumerate(methods.names())}
    values = flattened(run.config.model_dump()).items()
    sized = [(k, *((0, v) if isinstance(v, int | float) else (1, _text(v)))) for k, v in values]
    return known.get(run.config.method, len(known)), run.config.method, sorted(sized)


def _label(run: StoredRun, names: Sequence[str]) -> str:
    flat = flattened(run.config.model_dump())
    return " ".join(
        [run.config.method, *(f"{name}={short(flat[name])}" for name in names if name in flat)]
    )


def _setting(label: str, runs: Sequence[StoredRun]) -> Setting:
    done = _by_seed(run for run in runs if run.summary is not None)
    going = _by_seed(run for run in runs if run.summary is None)
    method = runs[0].config.method
    if not done:
        return Setting(label, method, tuple(going.values()), finished=False)
    left_out = tuple(run for seed, run in going.items() if seed not in done)
    return Setting(label, method, tuple(done.values()), left_out)


def _by_seed(runs: Iterable[StoredRun]) -> dict[int, StoredRun]:
    first: dict[int, StoredRun] = {}
    for run in runs:
        first.setdefault(run.config.seed, run)
    return dict(sorted(first.items()))


def _column(run: StoredRun, column: str) -> list[tuple[int, float]]:
    absolute = column == "|R_gen|"
    name = "R_gen" if absolute else column
    if name not in run.metrics.columns or "step" not in run.metrics.columns:
        return []
    steps, values = run.metrics["step"].to_list(), run.metrics[name].to_list()
    measured = [(s, float(v)) for s, v in zip(steps, values, strict=True) if v is not None]
    return [(step, abs(value)) for step, value in measured] if absolute else measured
