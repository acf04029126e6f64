"""Beyond Table 3: more methods on MNIST, each with the same search on validation images.

The paper's three step sizes differ by a factor of fifty, and its static weighting has neither its
weights nor its step size tuned. Here every method has as many trials (`table3_beyond.toml`): static
weighting over its weights, the others over their own hyper-parameters, each with several step
sizes, kept or falling. The choice is made on images held out of training, with seeds of its own,
and the chosen setting is then run with ten others and measured as in Table 3. The paper's three
methods; with ``--full`` all that the file lists.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

import polars

from trimol.methods._registry import BASELINE
from trimol.paper import _printed_mnist as paper
from trimol.paper import table3
from trimol.paper._studies import Context, get
from trimol.report._numbers import number
from trimol.runs._over_seeds import at_end, run_over_seeds
from trimol.runs.comparison import Difference, columns, judged_together, numbers
from trimol.runs.config import RunConfig
from trimol.runs.statistics import Paired
from trimol.runs.store import StoredRun
from trimol.runs.study import Row, Study
from trimol.search._grid import GridSampler, exhaust, find_edges
from trimol.search._problem import Failure, Outcome, Training
from trimol.search._setting import Setting
from trimol.search._study import BudgetStudy
from trimol.search._trial import mean_point
from trimol.tasks.task import Better
from trimol.training import Diverged

VALIDATION = "validation_loss/"
SCORE, ACCURACY = "mean_log_loss", "validation_accuracy"
COMPARED = ("cross-entropy", "MSE", "Huber", "accuracy")
MOST = 6  # times that a grid is extended; beyond, the study says that the choice is at its edge


def beyond(context: Context) -> Study:
    """Run the study."""
    study = search(context)
    final = {m: _configure(study.best(m).setting, _steps(context)) for m in study.trials}
    table = paper.paper()["table3"]
    tables = table3.measured(final, context.pick(table["runs"], 2), context)
    found = against_first(tables)
    return Study(
        name="table3-beyond",
        title=get("table3-beyond").title,
        rows=[row for name in final for row in _rows(final[name], tables[name], found)],
        notes=[*_how(study), *_remaining(found), conflict(tables), table3.speed(tables)],
        tables={"runs": table3.joined(tables), "tuning": tabulate_trials(study)},
    )


@cache
def stated() -> dict[str, Any]:
    """Read what is tried: ``table3_beyond.toml``."""
    text = files("trimol.paper").joinpath("table3_beyond.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def search(context: Context) -> BudgetStudy:
    """Try every method's grid, and step sizes beyond an edge that is the best."""
    seeds = stated()["seeds"][:1] if context.quick else stated()["seeds"]
    extend = 0 if context.quick else MOST
    samplers = {
        method: GridSampler(grid, extend=extend, axes={"lr": _extend_ladder(grid)})
        for method, grid in list_grids(context).items()
    }
    most = sum(len(grid) + extend for grid in list_grids(context).values())
    study = BudgetStudy(MnistProblem(context), samplers, most * len(seeds), seeds=seeds)
    exhaust(study, list(samplers))
    return study


def list_grids(context: Context) -> dict[str, list[Setting]]:
    """List what is tried for each method at first.

    The paper's three methods; all that the file lists where hours are no matter.
    """
    tried = stated()
    lrs = tried["lr"][:2] if context.quick else tried["lr"]
    return {
        method: [
            Setting(
                method,
                _rounded(lr * own.get("times", 1.0)),
                {name: value for name, value in own.items() if name != "times"},
                None if schedule == "constant" else schedule,
            )
            for own in options
            for schedule in tried["schedules"]
            for lr in lrs
        ]
        for method, options in tried["methods"].items()
        if context.full or context.quick or method in paper.methods()
    }


def _extend_ladder(grid: Sequence[Setting]) -> list[float]:
    """Continue a grid's step sizes by the file's factor, upwards and downwards."""
    factor, lrs = stated()["factor"], sorted({setting.lr for setting in grid})
    for _ in range(MOST):
        lrs = [_rounded(lrs[0] / factor), *lrs, _rounded(lrs[-1] * factor)]
    return lrs


def _rounded(lr: float) -> float:
    return float(f"{lr:.3g}")


def _steps(context: Context) -> int:
    return 20 if context.quick else int(paper.paper()["table3"]["steps"])


def _configure(setting: Setting, steps: int, **others: Any) -> RunConfig:
    """Return the run of a setting, as in Table 3."""
    if setting.schedule is not None:
        others["schedule"] = setting.schedule
    return table3.setting(setting.method, setting.lr, setting.hyperparameters, steps, **others)


class MnistProblem:
    """Table 3's task, judged by the mean logarithm of the losses on validation images."""

    objectives: Sequence[str] = ()
    ways: Mapping[str, Better] = {SCORE: "lower"}
    spread = False

    def __init__(self, context: Context) -> None:
        self.context, self.steps = context, _steps(context)

    def rate(self, method: str) -> float:
        """Return the paper's learning rate of static weights."""
        return float(paper.paper()["table3"][BASELINE]["lr"])

    def train(self, trainings: Sequence[Training]) -> list[Outcome]:
        """Train with every seed; what is on disk is read."""
        settings = {training.setting.key: training.setting for training in trainings}
        seeds = list(dict.fromkeys(training.seed for training in trainings))
        configs = [_configure(own, self.steps, validation_only=True) for own in settings.values()]
        context = self.context
        runs = run_over_seeds(configs, seeds, context.parts, context.watch, on=context.on)
        by_key = dict(zip(settings, runs, strict=True))
        return [_judge(by_key[each.setting.key][seeds.index(each.seed)]) for each in trainings]


def _judge(run: StoredRun | Diverged) -> Outcome:
    """Return the mean logarithm of the validation losses, and the accuracy; or why there is none.

    In logarithms, halving a small loss counts as much as halving a large one.
    """
    if isinstance(run, Diverged):
        return Failure(run)
    losses = [value for name, value in run.record.items() if name.startswith(VALIDATION)]
    if not all(0 < loss < math.inf for loss in losses):
        return Failure("a validation loss is not positive and finite")
    accuracy = float(run.record["validation/accuracy"])
    return {SCORE: fmean(map(math.log, losses)), ACCURACY: accuracy}


def tabulate_trials(study: BudgetStudy) -> polars.DataFrame:
    """List every trial with its validation losses and accuracy; none where a run diverged."""
    rows = []
    for trial in (trial for trials in study.trials.values() for trial in trials):
        setting = trial.setting
        means = mean_point(trial) if trial.is_complete else {SCORE: None, ACCURACY: None}
        rows.append(
            {"method": setting.method, "lr": setting.lr}
            | {"schedule": setting.schedule or "constant"}
            | {"hyperparameters": json.dumps(dict(setting.hyperparameters)), **means}
        )
    return polars.DataFrame(rows, infer_schema_length=None)


def against_first(tables: Mapping[str, polars.DataFrame]) -> list[Difference]:
    """How each method differs from the first, seed by seed, with Holm's p for all of them."""
    seen = {
        name: columns([numbers(record) for record in at_end(table).sort("seed").to_dicts()])
        for name, table in tables.items()
    }
    first, *others = seen
    return judged_together(
        first,
        [
            (name, metric, Paired(seen[first][metric], seen[name][metric]))
            for name in others
            for metric in COMPARED
        ],
    )


def _rows(config: RunConfig, table: polars.DataFrame, found: Sequence[Difference]) -> list[Row]:
    """The rows of a method, those that are compared with their difference from the first."""
    beside = {
        one.metric: {"difference": one.mean, "difference_ci": one.ci, "p": one.p}
        for one in found
        if one.method == config.method
    }
    how = {"schedule": config.schedule or "constant"}
    return [
        {**row, **how, **beside.get(row["metric"], {})} for row in table3.rows_of(config, table)
    ]


def _how(study: BudgetStudy) -> list[str]:
    tried, counts = stated(), {method: len(own) for method, own in study.trials.items()}
    least = min(counts.values())
    further = {method: count - least for method, count in counts.items() if count > least}
    edge = [
        method
        for method, trials in study.trials.items()
        if find_edges(study.best(method).setting, [trial.setting for trial in trials], {"lr"})
    ]
    notes = [
        f"{least} trials of every method: {', '.join(f'{lr:g}' for lr in tried['lr'])} as step "
        f"sizes, {' and '.join(tried['schedules'])}, and three settings of its own (weights for "
        "static weighting; a finer grid of step sizes where a method has none: "
        "table3_beyond.toml). "
        + (
            "More, as the best step size was the first or the last: "
            f"{', '.join(f'{method} {count}' for method, count in further.items())}. "
            if further
            else ""
        )
        + "Chosen by the mean logarithm of the three losses on 10 000 validation images, mean of "
        f"{len(tried['seeds'])} seeds; the numbers here are on test images, of ten other seeds.",
        "Every method sees 64 000 images: 1000 steps of 64, or fewer steps where batches grow.",
    ]
    if edge:
        notes.append(f"Still at the edge of the grid: {', '.join(edge)}.")
    return notes


def _remaining(found: Sequence[Difference]) -> list[str]:
    """What is left of each difference from the first method."""
    return [
        f"{method} against {own[0].baseline}: {', '.join(map(_difference, own))}."
        for method in dict.fromkeys(one.method for one in found)
        for own in [[one for one in found if one.method == method]]
    ]


def _difference(one: Difference) -> str:
    """One difference in words."""
    shown = f"{one.metric} {one.mean:+.2g}" + ("" if one.ci is None else f" ± {one.ci:.1g}")
    if one.p is None:
        return shown
    return f"{shown} ({'clear' if one.clear else 'not clear'}, p = {number(one.p, 2)})"


def conflict(tables: Mapping[str, polars.DataFrame]) -> str:
    """Whether any two gradients over all training images conflict at the end of a run."""
    ends = polars.concat([at_end(table) for table in tables.values()], how="diagonal")
    cosines = ends.select(name for name in ends.columns if name.startswith("cosine/"))
    least = {name.removeprefix("cosine/"): float(cosines[name].min()) for name in cosines.columns}  # type: ignore[arg-type]
    runs = int((ends["conflicting"] > 0).sum())
    shown = ", ".join(f"{name.replace('/', ' and ')} {value:.2g}" for name, value in least.items())
    if not runs:
        return (
            f"No pair of gradients conflicts at the end of any of the {len(ends)} runs: the least "
            f"cosines, over all training images, are {shown}."
        )
    return (
        f"A pair of gradients conflicts at the end of {runs} of {len(ends)} runs; the least "
        f"cosines, over all training images, are {shown}."
    )
