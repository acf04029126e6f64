"""What the final runs of a comparison of tuned methods come to, as tables."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

import polars

from trimol.runs._candidates import Series, edges
from trimol.runs._judging import chosen, drop, jointly
from trimol.runs._significance import is_clear, p_values
from trimol.runs.statistics import Paired
from trimol.runs.store import StoredRun
from trimol.tasks.task import Goals

Values = dict[str, float]
Runs = Mapping[str, Sequence[StoredRun]]
ALONE = "alone"  # what single-task learning is called among the methods
AGAINST_ALONE, AGAINST_REFERENCE = "ΔA_id", "ΔA_st"
_SCHEMA = {
    "method": polars.String,
    "seed": polars.Int64,
    "metric": polars.String,
    "value": polars.Float64,
    "joint": polars.Float64,
    "epoch": polars.Int64,
    "joint_epoch": polars.Int64,
}


@dataclass(frozen=True)
class Judged:
    """The metrics of a run, or means over runs.

    Attributes:
        validation: On validation data, each at the epoch that is best for its objective.
        test: On test data, at the same epochs.
        epochs: These epochs, from 1, by metric.
        joint: On test data, at the one epoch that is best for all; empty without a baseline.
        joint_epoch: That epoch.
    """

    validation: Values
    test: Values
    epochs: dict[str, int] = field(default_factory=dict)
    joint: Values = field(default_factory=dict)
    joint_epoch: int | None = None


def judged(run: StoredRun, series: Series, baseline: Values | None = None) -> Judged:
    """A run at the epochs that validation data choose."""
    rows = {
        metric: row
        for objective, metrics in series.goals.items()
        for row in [chosen(run.scores, series.goals, objective)]
        for metric in metrics
    }
    joint = None if baseline is None else jointly(run.scores, series.goals, baseline)
    return Judged(
        validation={metric: row[f"validation/{metric}"] for metric, row in rows.items()},
        test={metric: row[f"test/{metric}"] for metric, row in rows.items()},
        epochs={metric: row["step"] // series.epoch for metric, row in rows.items()},
        joint={} if joint is None else {metric: joint[f"test/{metric}"] for metric in rows},
        joint_epoch=None if joint is None else joint["step"] // series.epoch,
    )


def means(each: Iterable[Judged]) -> Judged:
    """The means over runs of what each of them has (a single-task run has its own metrics only)."""
    runs = list(each)
    return Judged(
        validation=_mean([run.validation for run in runs]),
        test=_mean([run.test for run in runs]),
        joint=_mean([run.joint for run in runs]),
    )


def of_seeds(
    compared: Sequence[Series],
    runs: Runs,
    *,
    reference: str,
    baseline: Judged,
    others: Mapping[str, Mapping[str, float]],
) -> polars.DataFrame:
    """One row per method, seed and metric, the drops ΔA included."""
    by_seed = {
        series.label: {
            run.config.seed: judged(run, series, baseline.validation) for run in runs[series.label]
        }
        for series in compared
    }
    alone = {AGAINST_ALONE: baseline.test}
    alone |= {f"{AGAINST_ALONE} ({name})": dict(values) for name, values in others.items()}
    level = means(by_seed[reference].values())
    against = {name: (values, values) for name, values in alone.items()}
    against[AGAINST_REFERENCE] = level.test, level.joint
    rows = [
        row
        for series in compared
        for seed, run in by_seed[series.label].items()
        for row in _rows(series.label, seed, run, series.goals, against)
    ]
    return polars.DataFrame(rows, schema=_SCHEMA, orient="row")


def of_alone(all_series: Sequence[Series], runs: Runs) -> polars.DataFrame:
    """The rows of single-task learning: each objective from runs of its own."""
    rows = [
        (ALONE, run.config.seed, metric, value, value, best.epochs[metric], best.epochs[metric])
        for series in all_series
        for run in runs[series.label]
        for best in [judged(run, series)]
        for metric, value in best.test.items()
    ]
    return polars.DataFrame(rows, schema=_SCHEMA, orient="row").sort("seed", maintain_order=True)


def of_candidates(
    series: Series,
    scores: Sequence[Sequence[float]],
    notes: Sequence[str],
    chosen: int | None = None,
) -> list[dict[str, Any]]:
    """One row per candidate: its setting, its score, and what another seed would make of it.

    ``scores`` are by candidate, then by seed; larger is better, −∞ where the ``notes`` say why. The
    best is chosen, unless ``chosen`` says which.
    """
    levels = [fmean(each) for each in scores]
    first = levels.index(max(levels)) if chosen is None else chosen
    best = levels[first]
    behind = [
        Paired(each, scores[first]) if math.isfinite(level) else None
        for each, level in zip(scores, levels, strict=True)
    ]
    others = {i: pair for i, pair in enumerate(behind) if pair is not None and i != first}
    worse = dict(zip(others, map(is_clear, p_values([*others.values()])), strict=True))
    # With each seed alone: the first of those that are best.
    firsts = [
        max(range(len(scores)), key=by_seed.__getitem__) for by_seed in zip(*scores, strict=True)
    ]
    return [
        {
            "method": series.label,
            "candidate": number,
            "lr": candidate.lr,
            "hyperparameters": json.dumps(dict(candidate.hyperparameters)),
            "task_options": json.dumps(dict(candidate.task_options)),
            "schedule": candidate.schedule,
            "seeds": len(scores[number]),
            "score": levels[number],
            "chosen": number == first,
            "tied": levels.count(best) if levels[number] == best else 0,
            "edge": ", ".join(edges(candidate, series.candidates)),
            "behind": None if pair is None else fmean(pair.apart),
            "behind_ci": None if pair is None else pair.ci,
            "worse": worse.get(number),
            "first_of_seeds": firsts.count(number),
            "note": notes[number],
        }
        for number, (candidate, pair) in enumerate(zip(series.candidates, behind, strict=True))
    ]


def over_training(
    all_series: Sequence[Series], runs: Runs, what: Literal["metrics", "scores"]
) -> polars.DataFrame:
    """The records or the scores of all runs, with ``method``, ``seed`` and ``epoch``."""
    tables: list[polars.DataFrame] = [
        getattr(run, what).select(
            polars.lit(series.label).alias("method"),
            polars.lit(run.config.seed, polars.Int64).alias("seed"),
            (polars.col("step") / series.epoch).alias("epoch"),
            polars.all(),
        )
        for series in all_series
        for run in runs[series.label]
    ]
    return polars.concat(tables, how="diagonal")


def _rows(
    label: str, seed: int, run: Judged, goals: Goals, against: Mapping[str, tuple[Values, Values]]
) -> list[tuple[Any, ...]]:
    measured = [
        (label, seed, metric, value, run.joint[metric], run.epochs[metric], run.joint_epoch)
        for metric, value in run.test.items()
    ]
    wanted = [(name, name, goals) for name in against] + [
        (f"{name}/{objective}", name, {objective: metrics})
        for name in (AGAINST_ALONE, AGAINST_REFERENCE)
        for objective, metrics in goals.items()
    ]
    drops = [
        (label, seed, called, drop(run.test, own, of), drop(run.joint, joint, of), None, None)
        for called, name, of in wanted
        for own, joint in [against[name]]
    ]
    return measured + drops


def _mean(runs: Sequence[Values]) -> Values:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: fmean(run[name] for run in runs if name in run) for name in names}
