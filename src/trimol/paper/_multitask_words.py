"""What a multi-task study found, in words: which differences are larger than their noise."""

import math
import statistics
from collections.abc import Sequence

import polars

from trimol.report._numbers import count, number
from trimol.runs.comparison import Difference
from trimol.runs.statistics import holm, interval, p_value
from trimol.runs.tuning import ALONE, PAPERS_BUDGET, Outcome, TuningPlan
from trimol.tasks.task import Goals

DROP = "ΔA_id"
WAYS = {"higher": 1, "lower": -1}
WEIGHT = "weight/"
AT_REST = 0.01  # weights that stay so near to where they began are said not to move


def notes(planned: TuningPlan, table: polars.DataFrame, goals: Goals, found: Outcome) -> list[str]:
    """What to make of the numbers: differences first, then how they came about.

    Args:
        planned: What was run.
        table: What `tidy` gave.
        goals: `Task.goals`.
        found: What became of it.
    """
    return [
        *compared(differences(table, planned.reference), goals),
        *_budgets(planned, table, goals),
        *resting(found.curves, planned.reference),
        _joint(table),
        _measures(planned),
        *undefined(table),
        *_tuned(planned, found.tuning),
    ]


def compared(found: Sequence[Difference], goals: Goals) -> list[str]:
    """Which differences are larger than their noise, and which are not: a sentence a method.

    Args:
        found: The differences.
        goals: `Task.goals`, for better and worse.
    """
    if not found:
        return []
    if found[0].n < 2:
        return ["One seed: no interval, and no telling a difference from luck."]
    said = [
        f"Differences from {found[0].baseline}, run by run over {found[0].n} seeds, ± half their "
        "95 % interval. “Larger than its noise” is p < 5 % in the paired t test after Holm's "
        f"adjustment for all {len(found)} differences of this table."
    ]
    for method in dict.fromkeys(each.method for each in found):
        own = [each for each in found if each.method == method]
        clear = [_said(each, goals) for each in own if each.clear]
        open_ = [_said(each, goals) for each in own if not each.clear]
        larger = f"larger than its noise: {'; '.join(clear)}" if clear else ""
        begin = "Not" if clear else "not"
        not_ = f"{begin} told apart from noise: {'; '.join(open_)}" if open_ else ""
        said.append(f"{method}: {'. '.join(filter(None, (larger, not_)))}.")
    return said


def _said(each: Difference, goals: Goals) -> str:
    digits = 2 if each.metric.startswith("ΔA") or abs(each.mean) >= 1 else 4
    text = f"{each.metric} {each.mean:+.{digits}f} ± {each.ci:.{digits}f}".replace("-", "−")
    return f"{text} ({_worth(each, goals)})" if each.clear else text


def _worth(each: Difference, goals: Goals) -> str:
    ways = {metric: way for metrics in goals.values() for metric, way in metrics.items()}
    better = each.mean * WAYS[ways.get(each.metric, "lower")] > 0
    return "better" if better else "worse"


def _budgets(planned: TuningPlan, table: polars.DataFrame, goals: Goals) -> list[str]:
    """What the paper's larger budget made of a difference, where it was run."""
    said = []
    for method in planned.methods:
        larger = PAPERS_BUDGET.format(method)
        if larger not in table["method"]:
            continue
        found = differences(table.filter(polars.col("method").is_in([method, larger])), method)
        sentences = compared(found, goals)[1:] or ["one seed each."]
        said.append(
            f"The paper's budget: as many times the steps as {method} has draws, so that it sees "
            f"more samples than the others. Against {method} at equal budget, {sentences[0]}"
        )
    return said


def resting(curves: polars.DataFrame, reference: str) -> list[str]:
    """Which methods weigh as the reference does all the time: they are then the same method.

    Args:
        curves: `Outcome.curves`.
        reference: A method whose weights never change.
    """
    weights = [polars.col(name) for name in curves.columns if name.startswith(WEIGHT)]
    start = curves.filter(polars.col("method") == reference).select(weights).row(0)
    found = []
    for (method,), own in curves.group_by(["method"], maintain_order=True):
        far = max(
            abs(value - first)
            for row in own.select(weights).iter_rows()
            for value, first in zip(row, start, strict=True)
        )
        if method != reference and far < AT_REST:
            found.append(f"{method} (at most {number(far, 1)} away)")
    if not found:
        return []
    return [
        f"λ hardly moves, in any run or at any time that was measured: {', '.join(found)}. With "
        f"these settings that is {reference} weighting: what else differs between the two is not "
        "the weights' doing (weight decay, samples in halves, noise)."
    ]


def undefined(table: polars.DataFrame) -> list[str]:
    """Which ΔA cannot be said, because a baseline is 0.

    Args:
        table: What `tidy` gave.
    """
    drops = table.filter(polars.col("metric").str.starts_with("ΔA"))
    found = drops.filter(polars.col("value").is_nan())["metric"].unique(maintain_order=True)
    if found.is_empty():
        return []
    return [
        f"Not defined: {', '.join(found)}. A metric of the baseline is 0, and nothing is relative "
        "to 0: too short a training."
    ]


def _joint(table: polars.DataFrame) -> str:
    """The same numbers at the one epoch that is best for all tasks together."""
    shown = table.filter(
        ((polars.col("kind") == "task") | (polars.col("metric") == DROP))
        & (polars.col("method") != ALONE)
    )
    parts = []
    for (method,), group in shown.group_by(["method"], maintain_order=True):
        means = group.group_by("metric", maintain_order=True).agg(polars.col("joint").mean())
        numbers = ", ".join(
            f"{metric} {number(value, 4)}"
            for metric, value in means.iter_rows()
            if not math.isnan(value)
        )
        parts.append(f"{method}: {numbers}")
    return (
        "Shown is the test number at the epoch that is best for that task on validation data. At "
        f"the one epoch that is best for all tasks together (the paper's rule): {'; '.join(parts)}."
    )


def _measures(planned: TuningPlan) -> str:
    stated = " and ".join(f"{DROP} ({name})" for name in planned.baselines)
    against = f"; against what the paper's authors got from it ({stated})" if stated else ""
    return (
        "Accuracies and other shares are fractions. ΔA is in per cent, lower is better: the mean "
        "over tasks of the relative drop (mean over the task's metrics) against single-task "
        f"learning by the same code (ΔA_id){against}; against the mean of "
        f"{planned.reference} (ΔA_st). Intervals are over the method's seeds; a baseline is taken "
        "as it is, without its own noise."
    )


def _tuned(planned: TuningPlan, tuning: polars.DataFrame) -> list[str]:
    tried_of = {method: len(tried) for method, tried in planned.methods.items()}
    run = (
        f"Every run: {count(planned.epochs, 'epoch')} at {planned.batch_size} samples a step (of "
        "each data set, where a task has one per objective), split between the draws of a method "
        "that has several: equal samples and equal steps for all."
    )
    if max(tried_of.values()) == 1:
        return [f"{run} Settings as the paper chose them; nothing was tuned."]
    chosen = tuning.filter(polars.col("chosen"))
    edges = [
        f"{method} ({edge})" for method, edge in chosen.select("method", "edge").iter_rows() if edge
    ]
    listed = ", ".join(f"{method} {how_many}" for method, how_many in tried_of.items())
    said = (
        f"{run} Settings were chosen on validation data (ΔA_id, mean of "
        f"{count(planned.tuning_seeds, 'seed')}) among so many candidates: {listed}; single-task "
        f"learning has {planned.reference}'s."
    )
    beyond = "Chosen at the edge of what was tried, so that better ones may lie beyond"
    return [said, f"{beyond}: {'; '.join(edges)}."] if edges else [said]


def differences(table: polars.DataFrame, reference: str) -> list[Difference]:
    """How each method differs from the reference, seed by seed, in every metric and in ΔA_id.

    The p values are adjusted by Holm for all of them together.

    Args:
        table: What `tidy` gave.
        reference: The method that the others are compared with.
    """
    judged = table.filter((polars.col("kind") == "task") | (polars.col("metric") == DROP))
    pairs = []
    for method in table["method"].unique(maintain_order=True):
        if method in (reference, ALONE):
            continue
        for metric in judged["metric"].unique(maintain_order=True):
            values = _paired(judged, metric, method, reference)
            if values and all(map(math.isfinite, values)):  # no ΔA against a baseline of 0
                pairs.append((method, metric, values))
    adjusted = holm([p_value(values) for _, _, values in pairs])
    return [
        Difference(
            method, reference, metric, statistics.fmean(values), interval(values), len(values), p
        )
        for (method, metric, values), p in zip(pairs, adjusted, strict=True)
    ]


def _paired(table: polars.DataFrame, metric: str, first: str, second: str) -> list[float]:
    """First minus second, of the seeds that both have."""
    one, two = (
        dict(
            table.filter((polars.col("method") == method) & (polars.col("metric") == metric))
            .select("seed", "value")
            .iter_rows()
        )
        for method in (first, second)
    )
    return [one[seed] - two[seed] for seed in sorted(set(one) & set(two))]
