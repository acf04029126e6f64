"""Tables 4, 5, 6 and the appendix's: multi-task learning, beside the cells that the paper prints.

Office-31 and Office-Home (Tables 4 and 5), one domain an objective, in two regimes. *Frozen*:
features of a pretrained MobileNetV2, computed once, and the neck and heads trained on them; two CPU
cores are enough. *Finetune*: ResNet-18 trained end to end at 224 pixels, as in the paper; for a
GPU. NYU-v2 (Table 6), three tasks on one image, needs its data and a GPU; `scenes` asks the same of
rooms that are generated on the spot, on two CPU cores: the paper has no such table.

Every method is tuned on validation data, run with several seeds and judged on test data at the
epochs that validation data chose (`trimol.compare.compare_tuned`). Here the numbers get their
intervals and the paper's cells; `trimol.paper._multitask_report` has the words and the figures.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import polars
import torch

from trimol.compare import TunedResults, TuningPlan, compare_tuned, drop
from trimol.compare._tuned_problem import ALONE, PAPERS_BUDGET
from trimol.paper import _multitask_report as report
from trimol.paper._multitask_report import DROP
from trimol.paper._printed_mnist import Printed, printed, verdict
from trimol.paper._studies import Context, get
from trimol.runs import study as results
from trimol.runs._judging import flat_goals
from trimol.runs.statistics import interval
from trimol.runs.study import Row, Study
from trimol.search._setting import Setting
from trimol.tasks import load
from trimol.tasks.task import Goals

Key = tuple[str, str]  # method, metric
# What a reader has to know first, by regime; and what a quick run is there.
_ABOUT = {
    "frozen": "Frozen regime: a neck and heads trained on features of an ImageNet MobileNetV2 that "
    "stays as it is. The paper trains ResNet-18 end to end (--regime finetune): its numbers beside "
    "ours are of another experiment, and are not judged.",
    "finetune": "Finetune regime: the whole network is trained, as in the paper.",
    "nyuv2": "The paper's epochs were picked on the test set; here part of the training set is "
    "held out for that, so that ours are trained on fewer images.",
    "scenes": "Generated rooms, not in the paper: there are no printed numbers to compare with.",
}
_QUICK = "A quick run: {}. It shows that it works, not what is true."
_QUICKLY = {
    "frozen": "a few epochs, nothing tuned",
    "finetune": "a few epochs, nothing tuned; a smaller network on smaller images than without "
    "--quick",
    "nyuv2": "a few epochs of a small network, nothing tuned",
    "scenes": "a few epochs of a small network, nothing tuned",
}


def table4(context: Context) -> Study:
    """Table 4: Office-31."""
    return study("table4", context, context.regime)


def table5(context: Context) -> Study:
    """Table 5: Office-Home."""
    return study("table5", context, context.regime)


def appendix_office31(context: Context) -> Study:
    """The appendix's comparison with other methods on Office-31."""
    return study("table-appendix-office31", context, context.regime)


def appendix_officehome(context: Context) -> Study:
    """The appendix's comparison with other methods on Office-Home."""
    return study("table-appendix-officehome", context, context.regime)


def table6(context: Context) -> Study:
    """Table 6: NYU-v2."""
    return study("table6", context, "nyuv2")


def appendix_nyuv2(context: Context) -> Study:
    """The appendix's comparison with other methods on NYU-v2."""
    return study("table-appendix-nyuv2", context, "nyuv2")


def scenes(context: Context) -> Study:
    """Static weighting, MGDA and MoDo on generated scenes."""
    return study("scenes", context, "scenes")


def study(name: str, context: Context, regime: str) -> Study:
    """Run a table of ``multitask_paper.toml`` in one of its regimes."""
    planned = planned_comparison(name, context, regime)
    jobs = 1 if torch.cuda.is_available() else None  # a GPU is not shared between runs
    outcome = compare_tuned(planned, context.folder, jobs=jobs, watch=context.watch, on=context.on)
    goals = load(planned.task, planned.options).goals
    table = tidy(outcome.seeds, goals, planned.reference)
    shown = {key: cell.mean for key, cell in _cells_by_label(name, table).items()}
    judge = stated()["regimes"][regime]["as_paper"] and not context.quick
    home = context.folder.name
    return Study(
        name=home,
        title=get(name).title + ("" if home == name else f" ({regime})"),
        rows=rows(name, table, settings(outcome, goals), judge=judge),
        notes=[*about(regime, context), *report.notes(planned, table, goals, outcome)],
        tables={
            "seeds": table,
            "tuning": outcome.tuning,
            "curves": outcome.curves,
            "scores": outcome.scores,
        },
        figures=report.draw(home, table, outcome.curves, shown, context.folder),
    )


def about(regime: str, context: Context) -> list[str]:
    """What a reader has to know first, a paragraph each."""
    quick = [_QUICK.format(_QUICKLY[regime])] if context.quick else []
    return [*quick, _ABOUT[regime]]


def planned_comparison(name: str, context: Context, regime: str) -> TuningPlan:
    """What is run for a table."""
    said = stated()["tables"][name]
    how = {**stated()["regimes"][regime], **said.get("regimes", {}).get(regime, {})}
    now = {**how, **how["quick"]} if context.quick else how
    grid = (how["grid"] or context.full) and not context.quick
    seeds = context.pick(said["runs"], how["quick"]["seeds"])
    tried = stated()["grids"][said["grid"]]
    return TuningPlan(
        task=said["task"],
        settings=[
            make_setting(method, values)
            for method in methods(name)
            for values in list_values(name, method, grid=grid)
        ],
        epochs=now["epochs"],
        batch_size=said["batch_size"],
        options={**how["options"], **now["options"]},
        seeds=seeds,
        tuning_seeds=min(seeds, tried["tuning_seeds"]) if grid else 1,
        extend=tried["extend"] if grid else 0,
        budget=context.budget,
        measure_epochs=max(1, now["epochs"] // now["points"]),
        reference=methods(name)[0],
        baselines={
            f"paper's baselines, {kind}": values for kind, values in baselines(said["task"]).items()
        },
    )


def make_setting(method: str, values: Mapping[str, float]) -> Setting:
    """Return a setting from its numbers: the weight decay is the task's, the rest the method's.

    >>> make_setting("modo", {"lr": 0.1, "weight_decay": 0.01, "gamma": 1.0}).hyperparameters
    {'gamma': 1.0}
    """
    own = {name: value for name, value in values.items() if name not in ("lr", "weight_decay")}
    return Setting(method, values["lr"], own, task_options={"weight_decay": values["weight_decay"]})


# --- what the paper states ------------------------------------------------------------------------


@cache
def stated() -> dict[str, Any]:
    """All that ``multitask_paper.toml`` says."""
    file = Path(__file__).with_name("multitask_paper.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def methods(name: str) -> list[str]:
    """The methods of a table, in its order; the first is what the others are compared with.

    >>> methods("table4")
    ['static', 'mgda', 'modo']
    """
    return list(stated()["tables"][name]["methods"])


def cells(name: str, method: str) -> dict[str, Printed]:
    """The printed row of a method, by metric, in plain units: accuracies are fractions.

    A cell without a standard deviation is of one run: its ``std`` is NaN.

    >>> cells("table4", "modo")["amazon accuracy"]
    Printed(mean=0.8513, std=0.0058, rounding=5e-05, runs=5)
    """
    said = stated()["tables"][name]
    return {
        metric: _printed(cell, unit=_unit(said, metric), runs=said["runs"])
        for metric, cell in said["methods"][method]["cells"].items()
    }


def baselines(task: str) -> dict[str, dict[str, float]]:
    """The paper's single-task baselines of a task, by what they were measured on, then by metric.

    >>> baselines("office-31")["test"]["dslr accuracy"]
    0.9426
    """
    said = stated()["baselines"].get(task, {})
    return {
        kind: {m: float(Decimal(text) * _unit(said, m)) for m, text in said[kind].items()}
        for kind in ("validation", "test")
        if kind in said
    }


def list_values(name: str, method: str, *, grid: bool) -> list[dict[str, float]]:
    """What is tried for a method: the table's grid, or else what the paper chose.

    >>> list_values("table4", "static", grid=False)
    [{'lr': 0.0001, 'weight_decay': 0.001}]
    >>> len(list_values("table4", "modo", grid=True))
    12
    """
    table = stated()["tables"][name]
    chosen: dict[str, float] = table["methods"][method]["chosen"]
    if not grid:
        return [dict(chosen)]
    said = stated()["grids"][table["grid"]]
    tried = {"lr": said["lr"], "weight_decay": said["weight_decay"]}
    tried |= said.get("methods", {}).get(method, {})
    # What the grid does not vary is as printed.
    kept = {key: value for key, value in chosen.items() if key not in tried}
    return [
        {**dict(zip(tried, values, strict=True)), **kept} for values in product(*tried.values())
    ]


def _unit(said: Mapping[str, Any], metric: str) -> Decimal:
    """What a printed number is a multiple of, as a decimal: 84.62 of 0.01 is 0.8462."""
    return Decimal(str(said.get("units", {}).get(metric, said["unit"])))


def _printed(cell: str, *, unit: Decimal, runs: int) -> Printed:
    if "±" in cell:
        return printed(cell, unit=float(unit), runs=runs)
    once = printed(f"{cell} ± 0", unit=float(unit), runs=1)
    return Printed(once.mean, math.nan, once.rounding, runs=1)


# --- tables ---------------------------------------------------------------------------------------


def tidy(seeds: polars.DataFrame, goals: Goals, reference: str) -> polars.DataFrame:
    """`TunedResults.seeds`, one row a method, seed and metric, with two columns more.

    ``kind`` is ``"task"`` for a metric of a task, ``"overall"`` for ΔA and ``"share"`` for the ΔA
    of one objective; ``drop`` is the signed relative drop in per cent against the mean of the
    reference method, lower is better whatever the metric; null for ΔA.
    """
    ways = flat_goals(goals)
    own = seeds.filter(polars.col("method") == reference)
    means = dict(own.group_by("metric").agg(polars.col("value").mean()).iter_rows())

    def against(metric: str, value: float) -> float | None:
        if metric not in ways or means[metric] <= 0:
            return None
        return drop({metric: value}, {metric: means[metric]}, {metric: {metric: ways[metric]}})

    drops = [against(*pair) for pair in seeds.select("metric", "value").iter_rows()]
    kinds = [
        "task" if metric in ways else "share" if "/" in metric else "overall"
        for metric in seeds["metric"]
    ]
    return seeds.with_columns(
        polars.Series("kind", kinds), polars.Series("drop", drops, dtype=polars.Float64)
    )


def settings(outcome: TunedResults, goals: Goals) -> dict[Key, dict[str, Any]]:
    """What each number was measured with, by method and metric; nothing where it is from many."""
    objective = {metric: name for name, metrics in goals.items() for metric in metrics}
    by_key = {}
    for method, metric in outcome.seeds.select("method", "metric").unique().iter_rows():
        label = f"{ALONE}-{objective.get(metric)}" if method == ALONE else method
        known = outcome.settings.get(label)
        by_key[method, metric] = {} if known is None else known.values
    return by_key


def rows(
    name: str, table: polars.DataFrame, chosen: Mapping[Key, Mapping[str, Any]], *, judge: bool
) -> list[Row]:
    """Mean, spread and 95 % interval over seeds, with the ``chosen`` settings and the paper's cell.

    ``judge`` says whether ours agree with the paper's: of the same experiment at full length.
    """
    beside, listed = _cells_by_label(name, table), []
    for (method, metric), group in table.group_by(["method", "metric"], maintain_order=True):
        key = (str(method), str(metric))
        values = group["value"].to_list()
        papers = _beside(values, beside[key], judge=judge) if key in beside else {}
        who, budget = _who(key[0])
        more = {"ci": interval(values), **papers, "budget": budget, **chosen.get(key, {})}
        listed.append(results.row(who, key[1], values, **more))
    return listed


def _who(label: str) -> tuple[str, str]:
    """A method's name and its budget, from how it is called in tables.

    >>> _who("mgda"), _who("modo (paper's budget)")
    (('mgda', 'equal'), ('modo', 'paper'))
    """
    longer = PAPERS_BUDGET.format("")
    return label.removesuffix(longer), "paper" if label.endswith(longer) else "equal"


def _cells_by_label(name: str, table: polars.DataFrame) -> dict[Key, Printed]:
    """The paper's cells by our labels; both budgets of a method have the same one.

    The printed ΔA_id is against the paper's own baselines: it also stands beside ours against
    the first of those. Single-task learning has the paper's baseline, on test data where it is
    known.
    """
    metrics = table["metric"].unique(maintain_order=True).to_list()
    against_paper = [metric for metric in metrics if metric.startswith(f"{DROP} (")][:1]
    by_label: dict[Key, Printed] = {}
    for method in methods(name):
        own = cells(name, method)
        own |= {metric: own[DROP] for metric in against_paper if DROP in own}
        for label in (method, PAPERS_BUDGET.format(method)):
            by_label |= {(label, metric): cell for metric, cell in own.items()}
    for values in baselines(stated()["tables"][name]["task"]).values():  # validation, then test
        by_label |= {(ALONE, m): Printed(value, math.nan, 0.0, 1) for m, value in values.items()}
    return by_label


def _beside(values: Sequence[float], cell: Printed, *, judge: bool) -> dict[str, Any]:
    if math.isnan(cell.std):
        return {"paper": cell.mean}
    shown: dict[str, Any] = {"paper": cell.mean, "paper_std": cell.std}
    return shown | ({"verdict": verdict(values, cell)} if judge and len(values) > 1 else {})
