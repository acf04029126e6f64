"""A multi-task table of the paper as a study: tuned methods compared, beside the printed cells.

Every method is tuned on validation data, run with several seeds and judged on test data at the
epochs that validation data chose (:mod:`trimol.runs.tuning`). Here the numbers get their
intervals, the paper's cells and the words: which differences are larger than their noise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars
import torch

from trimol.paper import _draw_multitask as multitask_draw
from trimol.paper import _printed_multitask as paper
from trimol.paper._multitask_words import DROP, notes
from trimol.paper._printed_mnist import Printed, verdict
from trimol.paper._studies import Context, get
from trimol.runs import study as results
from trimol.runs._judging import drop
from trimol.runs.statistics import interval
from trimol.runs.study import Row, Study
from trimol.runs.tuning import ALONE, PAPERS_BUDGET, Candidate, Outcome, TuningPlan, compare_tuned
from trimol.tasks import load
from trimol.tasks.task import Goals


def study(name: str, context: Context, regime: str, about: Sequence[str] = ()) -> Study:
    """Run a table.

    Args:
        name: The table, as in ``multitask_paper.toml``.
        context: Where and how.
        regime: How it is run: a regime of ``multitask_paper.toml``.
        about: What a reader has to know first, a paragraph each.
    """
    planned, how = planned_comparison(name, context, regime), paper.stated()["regimes"][regime]
    jobs = 1 if torch.cuda.is_available() else None  # a GPU is not shared between runs
    found = compare_tuned(planned, context.folder, jobs=jobs, watch=context.watch)
    goals = load(planned.task, planned.options).goals
    table = tidy(found.seeds, goals, planned.reference)
    printed = {key: cell.mean for key, cell in _cells(name, table).items()}
    home = context.folder.name
    return Study(
        name=home,
        title=get(name).title + ("" if home == name else f" ({regime})"),
        rows=rows(name, table, settings(found, goals), judge=how["as_paper"] and not context.quick),
        notes=[*about, *notes(planned, table, goals, found)],
        tables={
            "seeds": table,
            "tuning": found.tuning,
            "curves": found.curves,
            "scores": found.scores,
        },
        figures=multitask_draw.draw(home, table, found.curves, printed, context.folder),
    )


def planned_comparison(name: str, context: Context, regime: str) -> TuningPlan:
    """What is run for a table.

    Args:
        name: The table.
        context: Where and how.
        regime: A regime of ``multitask_paper.toml``.
    """
    said, how = paper.table(name), paper.stated()["regimes"][regime]
    now = {**how, **how["quick"]} if context.quick else how
    grid = (how["grid"] or context.full) and not context.quick
    seeds = context.pick(said["runs"], how["quick"]["seeds"])
    tried = paper.stated()["grids"][said["grid"]]
    return TuningPlan(
        task=said["task"],
        methods={
            method: [candidate(flat) for flat in paper.candidates(name, method, grid=grid)]
            for method in paper.methods(name)
        },
        epochs=now["epochs"],
        batch_size=said["batch_size"],
        options={**how["options"], **now["options"]},
        seeds=seeds,
        tuning_seeds=min(seeds, tried["tuning_seeds"]) if grid else 1,
        budget=context.budget,
        measure_epochs=max(1, now["epochs"] // now["points"]),
        reference=paper.methods(name)[0],
        baselines={
            f"paper's baselines, {kind}": values
            for kind, values in paper.baselines(said["task"]).items()
        },
    )


def candidate(flat: Mapping[str, float]) -> Candidate:
    """A setting from its numbers: the weight decay is the task's, the rest the method's.

    >>> candidate({"lr": 0.1, "weight_decay": 0.01, "gamma": 1.0}).hyperparameters
    {'gamma': 1.0}
    """
    own = {key: value for key, value in flat.items() if key not in ("lr", "weight_decay")}
    return Candidate(flat["lr"], own, {"weight_decay": flat["weight_decay"]})


# --- tables ---------------------------------------------------------------------------------------


def tidy(seeds: polars.DataFrame, goals: Goals, reference: str) -> polars.DataFrame:
    """One row a method, seed and metric, with two columns more.

    ``kind`` is ``"task"`` for a metric of a task, ``"overall"`` for ΔA and ``"share"`` for the ΔA
    of one objective; ``drop`` is the signed relative drop in per cent against the mean of the
    reference method, lower is better whatever the metric; null for ΔA.

    Args:
        seeds: `Outcome.seeds`.
        goals: `Task.goals`.
        reference: The method that drops are against.
    """
    ways = {metric: way for metrics in goals.values() for metric, way in metrics.items()}
    own = seeds.filter(polars.col("method") == reference)
    means = dict(own.group_by("metric").agg(polars.col("value").mean()).iter_rows())

    def against(metric: str, value: float) -> float | None:
        if metric not in ways or means[metric] <= 0:
            return None
        return drop({metric: value}, {metric: means[metric]}, {metric: {metric: ways[metric]}})

    pairs = zip(seeds["metric"], seeds["value"], strict=True)
    drops = [against(metric, value) for metric, value in pairs]
    kinds = [
        "task" if metric in ways else "share" if "/" in metric else "overall"
        for metric in seeds["metric"]
    ]
    return seeds.with_columns(
        polars.Series("kind", kinds), polars.Series("drop", drops, dtype=polars.Float64)
    )


def settings(found: Outcome, goals: Goals) -> dict[tuple[str, str], dict[str, Any]]:
    """What each number was measured with, by method and metric; nothing where it is from many.

    Args:
        found: What became of the comparison.
        goals: `Task.goals`.
    """
    objective = {metric: name for name, metrics in goals.items() for metric in metrics}
    by_key = {}
    for method, metric in found.seeds.select("method", "metric").unique().iter_rows():
        label = f"{ALONE}-{objective.get(metric)}" if method == ALONE else method
        known = found.settings.get(label)
        by_key[method, metric] = {} if known is None else known.numbers
    return by_key


def rows(
    name: str,
    table: polars.DataFrame,
    chosen: Mapping[tuple[str, str], Mapping[str, Any]],
    *,
    judge: bool,
) -> list[Row]:
    """Mean, spread and 95 % interval over seeds, the paper's cell beside them.

    Args:
        name: The table of the paper.
        table: What `tidy` gave.
        chosen: The settings, by method and metric.
        judge: Whether to say if ours agree with the paper's: the same experiment at full length.
    """
    printed = _cells(name, table)
    found = []
    for (method, metric), group in table.group_by(["method", "metric"], maintain_order=True):
        key = (str(method), str(metric))
        values = group["value"].to_list()
        beside = _beside(values, printed[key], judge=judge) if key in printed else {}
        who, budget = _who(key[0])
        more = {"ci": interval(values), **beside, "budget": budget, **chosen.get(key, {})}
        found.append(results.row(who, key[1], values, **more))
    return found


def _who(label: str) -> tuple[str, str]:
    """A method's name and its budget, from how it is called in tables.

    >>> _who("mgda"), _who("modo (paper's budget)")
    (('mgda', 'equal'), ('modo', 'paper'))
    """
    longer = PAPERS_BUDGET.format("")
    return label.removesuffix(longer), "paper" if label.endswith(longer) else "equal"


def _cells(name: str, table: polars.DataFrame) -> dict[tuple[str, str], Printed]:
    """The paper's cells by our labels; both budgets of a method have the same one.

    The printed ΔA_id is against the paper's own baselines: it also stands beside ours against
    those. Single-task learning has the paper's baseline, on test data where it is known.
    """
    said = paper.table(name)
    found: dict[tuple[str, str], Printed] = {}
    for method in paper.methods(name):
        own = paper.cells(name, method)
        own |= {metric: own[DROP] for metric in _against_paper(table) if DROP in own}
        for label in (method, PAPERS_BUDGET.format(method)):
            found |= {(label, metric): cell for metric, cell in own.items()}
    for values in paper.baselines(said["task"]).values():  # validation first, then test
        found |= {(ALONE, m): Printed(value, math.nan, 0.0, 1) for m, value in values.items()}
    return found


def _against_paper(table: polars.DataFrame) -> list[str]:
    """The names of ΔA_id against the baseline that the paper's own column is against."""
    metrics = table["metric"].unique(maintain_order=True).to_list()
    against = [metric for metric in metrics if metric.startswith(f"{DROP} (")]
    return against[:1]


def _beside(values: Sequence[float], cell: Printed, *, judge: bool) -> dict[str, Any]:
    if math.isnan(cell.std):
        return {"paper": cell.mean}
    found: dict[str, Any] = {"paper": cell.mean, "paper_std": cell.std}
    return found | ({"verdict": verdict(values, cell)} if judge and len(values) > 1 else {})
