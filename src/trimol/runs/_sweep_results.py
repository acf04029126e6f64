"""What a search found: the best trials, the front, and all of it as a study."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import polars

from trimol.maths.fronts import nondominated
from trimol.runs import _spaces as spaces
from trimol.runs._environment import environment
from trimol.runs._judging import flat_goals, gains
from trimol.runs._significance import FEWEST
from trimol.runs._spaces import GOAL, SETTING, Point, Range
from trimol.runs._trials import SweepPlan, Trial
from trimol.runs.study import Row, Study, row

# What 100 % of a score are: of metrics, how far apart the good ones lie (`_judging.units`).
OF_LOSSES = "the median"
OF_METRICS = "how far apart the trials lie that no other is better than in all"


@dataclass(frozen=True)
class Sweep:
    """What a search found.

    Attributes:
        plan: What was searched.
        trials: All trials, in the order in which they were begun.
        folder: Where it is stored.
    """

    plan: SweepPlan
    trials: tuple[Trial, ...]
    folder: Path

    @property
    def scores(self) -> list[float | None]:
        """By trial how much better than the median trial of all methods it is, in per cent."""
        ended = [trial.values for trial in self.trials if trial.values]
        found = iter(gains(ended, self.plan.goals, spread=self.plan.spread))
        return [next(found) if trial.values else None for trial in self.trials]

    @property
    def best(self) -> dict[str, Trial]:
        """The trial of each method with the best score; the first of equals."""
        best: dict[str, tuple[float, Trial]] = {}
        for trial, score in zip(self.trials, self.scores, strict=True):
            if score is not None and (trial.method not in best or score > best[trial.method][0]):
                best[trial.method] = score, trial
        return {method: best[method][1] for method in self.plan.spaces if method in best}

    @property
    def front(self) -> list[Trial]:
        """The trials that no other is at least as good as in all goals and better in one."""
        ways = flat_goals(self.plan.goals)
        ended = [trial for trial in self.trials if trial.values]
        costs = [[_cost(t.values[goal], way) for goal, way in ways.items()] for t in ended]
        return list(compress(ended, nondominated(costs))) if ended else []

    def edges(self, trial: Trial) -> list[str]:
        """The settings of a trial that are at an end of what could be tried."""
        own = self.plan.spaces[trial.method]
        return [name for name, at in trial.setting.items() if spaces.at_edge(at, own[name])]


def study(found: Sweep) -> Study:
    """All of it, to be saved: a row for every trial and goal, and the tables behind the figures."""
    made = found.plan.made.name
    return Study(
        name=f"sweep {made}",
        title=f"Settings of {', '.join(found.plan.methods)} on {made}, tried on validation data",
        rows=_rows(found),
        notes=["; ".join(_best(found)), *notes(found)],
        tables={"trials": trials(found), "axes": axes(found)},
        command=command(found.plan),
        environment=environment(),
    )


def trials(found: Sweep) -> polars.DataFrame:
    """One row a trial: its settings, what was found, its score, and whether it was chosen."""
    best, front = found.best.values(), found.front
    rows = [
        {
            "method": trial.method,
            "trial": trial.number,
            **{SETTING + name: value for name, value in _flat(found, trial.setting).items()},
            **{GOAL + name: trial.values.get(name) for name in flat_goals(found.plan.goals)},
            "score": score,
            "best": trial in best,
            "front": trial in front,
            "note": trial.note,
            "run": trial.folders[0].name if trial.folders else "",
        }
        for trial, score in zip(found.trials, found.scores, strict=True)
    ]
    names = dict.fromkeys(name for each in rows for name in each)
    return polars.DataFrame({name: _column([each.get(name) for each in rows]) for name in names})


def axes(found: Sweep) -> polars.DataFrame:
    """What the columns of `trials` are: a setting's scale, or which way of a goal is better."""
    scales: dict[str, str] = {}
    for own in found.plan.spaces.values():
        for name, space in own.items():
            tried = spaces.ends(space, len(found.plan.made.objectives))
            scale = space.kind if isinstance(space, Range) else _scale(tried)
            scales |= dict.fromkeys(_flat(found, {name: tried[0]}), scale)
    goals = flat_goals(found.plan.goals)
    return polars.DataFrame(
        {
            "name": [*(SETTING + name for name in scales), *(GOAL + name for name in goals)],
            "scale": [*scales.values(), *("" for _ in goals)],
            "better": [*("" for _ in scales), *goals.values()],
        },
        schema=dict.fromkeys(("name", "scale", "better"), polars.String),
    )


def notes(found: Sweep) -> list[str]:
    """What to know before believing it, a sentence or two each."""
    plan = found.plan
    counts = Counter(trial.method for trial in found.trials)
    each = ", ".join(f"{method} {count}" for method, count in counts.items())
    said = [
        f"Searched by {plan.how}; trials: {each}. Each is {plan.steps} steps of "
        f"{plan.batch_size} samples with {plan.seeds} seed{'s' * (plan.seeds > 1)}, judged on "
        f"validation data at its end by {', '.join(flat_goals(plan.goals))}. The score says how "
        "much better than the median of all a trial is, the mean over the objectives; 100 % are "
        f"{OF_METRICS if plan.spread and len(flat_goals(plan.goals)) > 1 else OF_LOSSES}."
    ]
    if plan.held_out:
        said.append(
            f"The task has no validation data: {plan.held_out} samples of train served as such."
        )
    if len(set(counts.values())) > 1:
        said.append("The methods had different numbers of trials: more trials are more luck.")
    said += [_came_to_no_end(found, method) for method in counts]
    for method, best in found.best.items():
        if at := found.edges(best):
            said.append(
                f"The best {method} is at the edge of what was tried of {', '.join(at)}: better "
                "settings may lie beyond."
            )
    said.append(
        "The best of many trials looks better than it is. What it is worth on test data, with "
        f"several seeds: {comparison(found)}"
    )
    return [sentence for sentence in said if sentence]


def command(plan: SweepPlan) -> str:
    """What to type to search again."""
    words = ["trimol", "sweep", plan.task, "--methods", ",".join(plan.methods)]
    common = {"lr": plan.lr, "schedule": plan.schedule}
    for name, own in common.items():
        words += [] if own is None else [f"--{name}", spaces.text(spaces.space(own))]
    for method, settings in plan.settings.items():
        for name, own in settings.items():
            words += ["--set", f"{method}.{name}={spaces.text(spaces.space(own))}"]
    words += ["--search", plan.how]
    words += [] if plan.how == "grid" else ["--trials", str(plan.count), "--seed", str(plan.seed)]
    words += [] if plan.prune == "none" else ["--prune", plan.prune]
    return shlex.join([*words, "--seeds", str(plan.seeds), *_budget(plan)])


def comparison(found: Sweep) -> str:
    """What to type to compare the best on test data, with seeds that the search has not seen."""
    labels = ",".join(label(method, best.setting) for method, best in found.best.items())
    words = ["trimol", "compare", found.plan.task, "--methods", labels]
    fresh = ["--seeds", str(FEWEST), "--first-seed", str(found.plan.seeds)]
    return shlex.join([*words, *fresh, *_budget(found.plan)])


def label(method: str, setting: Point) -> str:
    """A setting of a method as `trimol compare` takes it.

    >>> label("static", {"lr": 0.3, "weights": [0.5, 0.5]})
    'static:lr=0.3:weights=[0.5,0.5]'
    """
    return ":".join([method, *(f"{name}={spaces.typed(own)}" for name, own in setting.items())])


def best_of(found: Sweep) -> dict[str, Any]:
    """What machines are told of the best trial of each method."""
    scores = {id(t): score for t, score in zip(found.trials, found.scores, strict=True)}
    return {
        method: {
            "trial": trial.number,
            "score": scores[id(trial)],
            "setting": trial.setting,
            "values": trial.values,
            "edges": found.edges(trial),
            "label": label(method, trial.setting),
            "runs": [str(folder) for folder in trial.folders],
        }
        for method, trial in found.best.items()
    }


def _best(found: Sweep) -> list[str]:
    return [
        f"best of {method}: {own['label']} (trial {own['trial']}, score {own['score']:+.1f} %)"
        for method, own in best_of(found).items()
    ]


def _rows(found: Sweep) -> list[Row]:
    best = found.best.values()
    return [
        {
            **trial.setting,
            **row(trial.method, goal, [own[goal] for own in trial.each]),
            "trial": trial.number,
            "best": trial in best,
        }
        for trial in found.trials
        if trial.values
        for goal in trial.values
    ]


def _came_to_no_end(found: Sweep, method: str) -> str:
    own = [trial for trial in found.trials if trial.method == method and not trial.values]
    pruned = sum(trial.note.startswith("pruned") for trial in own)
    lost = [f"{pruned} were pruned by successive halving"] if pruned else []
    lost += [f"{len(own) - pruned} diverged"] if len(own) > pruned else []
    return f"Of the trials of {method}, {' and '.join(lost)}." if lost else ""


def _budget(plan: SweepPlan) -> list[str]:
    words = ["--steps", str(plan.steps), "--batch-size", str(plan.batch_size)]
    words += [] if plan.optimizer is None else ["--optimizer", plan.optimizer]
    for name, value in plan.options.items():
        words += ["--option", f"{name}={spaces.typed(value)}"]
    return words


def _flat(found: Sweep, setting: Point) -> dict[str, Any]:
    """Settings as single values: weights by objective."""
    flat: dict[str, Any] = {}
    objectives = found.plan.made.objectives
    for name, value in setting.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            places = [str(place) for place in range(len(value))]
            named = objectives if len(value) == len(objectives) else places
            flat |= {f"{name}.{each}": own for each, own in zip(named, value, strict=True)}
        else:
            flat[name] = value
    return flat


def _scale(tried: Sequence[Any]) -> str:
    """The axis of some values: by ratio where they are far apart."""
    first = tried[0]
    if isinstance(first, Sequence) and not isinstance(first, str):
        return "lin"
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in tried):
        return "choice"
    return "log" if min(tried) > 0 and max(tried) >= 10 * min(tried) else "lin"


def _column(values: Sequence[Any]) -> Sequence[Any]:
    """Values of one kind: all numbers, all true or false, or all text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) < 2:
        return [float(v) if kinds == {int, float} and v is not None else v for v in values]
    return [None if value is None else str(value) for value in values]


def _cost(value: float, way: str) -> float:
    return -value if way == "higher" else value
