"""What a sweep came to: the best trials, the front, and all of it as rows and tables."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import polars

from trimol.maths.fronts import nondominated
from trimol.runs._environment import environment
from trimol.runs._significance import FEWEST
from trimol.runs.study import Row, Study, row
from trimol.search._plan import SweepPlan
from trimol.search._problem import TaskProblem, Training
from trimol.search._ranges import Range, make_dimension, write_value
from trimol.search._trial import Trial, TrialState, mean_point

# How columns of the table of trials begin.
SETTING, GOAL = "setting/", "goal/"
# What 100 % of a score are: of metrics, how far apart the good ones lie (`_judging.units`).
OF_LOSSES = "the median"
OF_METRICS = "how far apart the trials lie that no other is better than in all"


@dataclass(frozen=True)
class Sweep:
    """What a sweep came to.

    Attributes:
        plan: What was searched.
        problem: What was trained.
        trials: All trials, method by method. Their scores are relative to the median trial of all
            methods: 0.1 is 10 % better.
    """

    plan: SweepPlan
    problem: TaskProblem
    trials: tuple[Trial, ...]

    @property
    def folder(self) -> Path:
        """Where it is stored."""
        return self.problem.folder

    @property
    def best(self) -> dict[str, Trial]:
        """The trial of each method with the best score; the first of equals."""
        each = {m: [t for t in self.trials if t.setting.method == m] for m in self.plan.methods}
        return {method: max(own, key=lambda trial: trial.score) for method, own in each.items()}

    @property
    def front(self) -> list[Trial]:
        """The trials that no other is at least as good as in all goals and better in one."""
        signs = {"higher": -1, "lower": 1}
        complete = [trial for trial in self.trials if trial.is_complete]
        points = map(mean_point, complete)
        costs = [[signs[way] * p[name] for name, way in self.problem.ways.items()] for p in points]
        return list(compress(complete, nondominated(costs))) if complete else []

    def settings(self, trial: Trial) -> dict[str, Any]:
        """Return what was tried, by name."""
        return self.plan.spaces[trial.setting.method].values(trial.setting)

    def edges(self, trial: Trial) -> list[str]:
        """Return the settings of a trial that are at an end of what could be tried."""
        return self.plan.spaces[trial.setting.method].edges(trial.setting)

    def values(self, trial: Trial) -> dict[str, float]:
        """Return the means over seeds on validation data, by goal; empty unless complete."""
        point = mean_point(trial) if trial.is_complete else {}
        return {self.plan.columns[name]: value for name, value in point.items()}

    def folders(self, trial: Trial) -> list[Path]:
        """Return the folders of a trial's runs, one per seed."""
        each = [Training(trial.setting, seed) for seed in range(self.plan.seeds)]
        return [self.problem.folder_of(training) for training in each]

    def label(self, trial: Trial) -> str:
        """Return the setting as `trimol compare` takes it: ``static:lr=0.3:weights=[0.5,0.5]``."""
        named = [f"{name}={write_value(own)}" for name, own in self.settings(trial).items()]
        return ":".join([trial.setting.method, *named])


def make_study(sweep: Sweep) -> Study:
    """Make a study to be saved: a row for every trial and goal, and the tables behind figures."""
    name = sweep.problem.made.name
    best = [
        f"best of {method}: {own['label']} (trial {own['trial']}, score {own['score']:+.1f} %)"
        for method, own in summarise_best(sweep).items()
    ]
    return Study(
        name=f"sweep {name}",
        title=f"Settings of {', '.join(sweep.plan.methods)} on {name}, tried on validation data",
        rows=_rows(sweep),
        notes=["; ".join(best), *write_notes(sweep)],
        tables={"trials": tabulate_trials(sweep), "axes": tabulate_axes(sweep)},
        command=write_command(sweep.plan),
        environment=environment(),
    )


def summarise_best(sweep: Sweep) -> dict[str, Any]:
    """Summarise the best trial of each method, for machines."""
    return {
        method: {
            "trial": trial.number,
            "score": 100 * trial.score,
            "setting": sweep.settings(trial),
            "values": sweep.values(trial),
            "edges": sweep.edges(trial),
            "label": sweep.label(trial),
            "runs": [str(folder) for folder in sweep.folders(trial)],
        }
        for method, trial in sweep.best.items()
    }


def tabulate_trials(sweep: Sweep) -> polars.DataFrame:
    """Return one row per trial: settings, metrics, score, and whether it was chosen."""
    best, front = sweep.best.values(), sweep.front
    columns = sweep.plan.columns.values()
    rows = []
    for trial in sweep.trials:
        settings, values = _flatten(sweep, sweep.settings(trial)), sweep.values(trial)
        rows.append(
            {
                "method": trial.setting.method,
                "trial": trial.number,
                **{SETTING + name: value for name, value in settings.items()},
                **{GOAL + name: values.get(name) for name in columns},
                "score": 100 * trial.score if math.isfinite(trial.score) else None,
                "best": trial in best,
                "front": trial in front,
                "note": trial.note,
                "run": str(sweep.folders(trial)[0].relative_to(sweep.folder)),
            }
        )
    return polars.DataFrame(rows, infer_schema_length=None, strict=False)


def tabulate_axes(sweep: Sweep) -> polars.DataFrame:
    """Return what the columns of trials are: a setting's scale, or a goal's better way."""
    scales: dict[str, str] = {}
    for space in sweep.plan.spaces.values():
        for name, dimension in space.dimensions.items():
            ends = dimension.ends(len(space.objectives))
            scale = dimension.kind if isinstance(dimension, Range) else _scale(ends)
            scales |= dict.fromkeys(_flatten(sweep, {name: ends[0]}), scale)
    ways = {sweep.plan.columns[name]: way for name, way in sweep.problem.ways.items()}
    return polars.DataFrame(
        {
            "name": [*(SETTING + name for name in scales), *(GOAL + name for name in ways)],
            "scale": [*scales.values(), *("" for _ in ways)],
            "better": [*("" for _ in scales), *ways.values()],
        },
        schema=dict.fromkeys(("name", "scale", "better"), polars.String),
    )


def write_notes(sweep: Sweep) -> list[str]:
    """Write what to know before believing it, a sentence or two each."""
    plan = sweep.plan
    counts = {m: sum(t.setting.method == m for t in sweep.trials) for m in plan.methods}
    each = ", ".join(f"{method} {count}" for method, count in counts.items())
    notes = [
        f"Searched by {plan.how}; trials: {each}. Each is {plan.steps} steps of "
        f"{plan.batch_size} samples with {plan.seeds} seed{'s' * (plan.seeds > 1)}, judged on "
        f"validation data at its end by {', '.join(plan.columns.values())}. The score says how "
        "much better than the median of all a trial is, the mean over the objectives; 100 % are "
        f"{OF_METRICS if sweep.problem.spread and len(plan.columns) > 1 else OF_LOSSES}."
    ]
    if held_out := sweep.problem.hold_out:
        notes.append(
            f"The task has no validation data: {held_out} samples of train served as such."
        )
    if len(set(counts.values())) > 1:
        notes.append("The methods had different numbers of trials: more trials are more luck.")
    notes += [note for method in counts if (note := _lost(sweep, method))]
    for method, best in sweep.best.items():
        if at := sweep.edges(best):
            notes.append(
                f"The best {method} is at the edge of what was tried of {', '.join(at)}: better "
                "settings may lie beyond."
            )
    notes.append(
        "The best of many trials looks better than it is. What it is worth on test data, with "
        f"several seeds: {write_comparison(sweep)}"
    )
    return notes


def write_command(plan: SweepPlan) -> str:
    """Write what to type to search again."""
    words = ["trimol", "sweep", plan.task, "--methods", ",".join(plan.methods)]
    for name, own in {"lr": plan.lr, "schedule": plan.schedule}.items():
        words += [] if own is None else [f"--{name}", str(make_dimension(own))]
    for method, settings in plan.settings.items():
        for name, own in settings.items():
            words += ["--set", f"{method}.{name}={make_dimension(own)}"]
    words += ["--search", plan.how]
    if plan.how != "grid":
        words += ["--trials", str(max(plan.counts.values())), "--seed", str(plan.seed)]
    words += [] if plan.prune == "none" else ["--prune", plan.prune]
    return shlex.join([*words, "--seeds", str(plan.seeds), *_budget(plan)])


def write_comparison(sweep: Sweep) -> str:
    """Write what to type to compare the best on test data, with seeds that are new."""
    labels = ",".join(map(sweep.label, sweep.best.values()))
    words = ["trimol", "compare", sweep.plan.task, "--methods", labels]
    fresh = ["--seeds", str(FEWEST), "--first-seed", str(sweep.plan.seeds)]
    return shlex.join([*words, *fresh, *_budget(sweep.plan)])


def _rows(sweep: Sweep) -> list[Row]:
    best = sweep.best.values()
    return [
        {
            **sweep.settings(trial),
            **row(trial.setting.method, column, [own[name] for own in trial.points.values()]),
            "trial": trial.number,
            "best": trial in best,
        }
        for trial in sweep.trials
        if trial.is_complete
        for name, column in sweep.plan.columns.items()
    ]


def _lost(sweep: Sweep, method: str) -> str:
    """Return how many trials of a method are not complete, and why; empty if all are."""
    own = [trial for trial in sweep.trials if trial.setting.method == method]
    pruned = sum(trial.state is TrialState.PRUNED for trial in own)
    failed = [trial.note for trial in own if trial.state is TrialState.FAILED]
    parts = [f"{pruned} were pruned by successive halving"] if pruned else []
    parts += [f"{len(failed)} failed (the first: {failed[0]})"] if failed else []
    return f"Of the trials of {method}, {' and '.join(parts)}." if parts else ""


def _budget(plan: SweepPlan) -> list[str]:
    words = ["--steps", str(plan.steps), "--batch-size", str(plan.batch_size)]
    words += [] if plan.optimizer is None else ["--optimizer", plan.optimizer]
    for name, value in plan.options.items():
        words += ["--option", f"{name}={write_value(value)}"]
    return words


def _flatten(sweep: Sweep, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as single values: weights by objective."""
    flat: dict[str, Any] = {}
    objectives = sweep.problem.objectives
    for name, value in settings.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            places = [str(place) for place in range(len(value))]
            named = objectives if len(value) == len(objectives) else places
            flat |= {f"{name}.{each}": own for each, own in zip(named, value, strict=True)}
        else:
            flat[name] = value
    return flat


def _scale(values: Sequence[Any]) -> str:
    """Return the scale of an axis: by ratio where values are far apart."""
    first = values[0]
    if isinstance(first, Sequence) and not isinstance(first, str):
        return "lin"
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        return "choice"
    return "log" if min(values) > 0 and max(values) >= 10 * min(values) else "lin"
