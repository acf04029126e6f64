"""What the final runs of a comparison of tuned methods come to, as tables."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import polars

from trimol.compare._epochs import Judged, drop, judge_run
from trimol.compare._tuned_problem import ALONE, EpochScorer
from trimol.compare._tuning_plan import TuningPlan
from trimol.runs._significance import is_clear, p_values
from trimol.runs.statistics import Paired
from trimol.runs.store import StoredRun
from trimol.search._grid import find_edges
from trimol.search._study import BudgetStudy
from trimol.search._trial import Point, Trial
from trimol.tasks.task import Goals

Runs = Mapping[str, Sequence[StoredRun]]  # by label
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


def average(each: Iterable[Judged]) -> Judged:
    """Return the means over runs of what each has (a single-task run has its own metrics only)."""
    runs = list(each)
    return Judged(
        validation=_mean([run.validation for run in runs]),
        test=_mean([run.test for run in runs]),
        joint=_mean([run.joint for run in runs]),
    )


def tabulate_seeds(
    runs: Runs, plan: TuningPlan, goals: Goals, baseline: Judged
) -> polars.DataFrame:
    """List one row per method, seed and metric, the drops ΔA included."""
    by_seed = {
        label: {run.config.seed: judge_run(run, goals, baseline.validation) for run in own}
        for label, own in runs.items()
    }
    alone = {AGAINST_ALONE: baseline.test}
    alone |= {f"{AGAINST_ALONE} ({name})": dict(own) for name, own in plan.baselines.items()}
    level = average(by_seed[plan.reference].values())
    against = {name: (values, values) for name, values in alone.items()}
    against[AGAINST_REFERENCE] = level.test, level.joint
    rows = [
        row
        for label, own in by_seed.items()
        for seed, run in own.items()
        for row in _rows(label, seed, run, goals, against)
    ]
    return polars.DataFrame(rows, schema=_SCHEMA, orient="row")


def tabulate_alone(runs: Runs, goals: Mapping[str, Goals]) -> polars.DataFrame:
    """List the rows of single-task learning: each objective from runs of its own."""
    rows = [
        (ALONE, run.config.seed, metric, value, value, best.epochs[metric], best.epochs[metric])
        for label, own in runs.items()
        for run in own
        for best in [judge_run(run, goals[label])]
        for metric, value in best.test.items()
    ]
    return polars.DataFrame(rows, schema=_SCHEMA, orient="row").sort("seed", maintain_order=True)


def tabulate_trials(study: BudgetStudy, scorer: EpochScorer) -> polars.DataFrame:
    """List one row per trial: its setting, its score, and what another seed would make of it."""
    rows = []
    for trials in study.trials.values():
        complete = [trial for trial in trials if trial.is_complete]
        scores = [[-math.inf] * len(study.seeds) for _ in trials]
        for trial, own in zip(complete, scorer.score_seeds(complete), strict=True):
            scores[trial.number] = own
        rows += describe_trials(trials, scores)
    return polars.DataFrame(rows, infer_schema_length=None)


def describe_trials(
    trials: Sequence[Trial], scores: Sequence[Sequence[float]]
) -> list[dict[str, Any]]:
    """Return the rows of one label; scores are by trial, then by seed, −∞ where a trial failed."""
    levels, settings = [fmean(each) for each in scores], [trial.setting for trial in trials]
    best = max(levels)
    first = levels.index(best)
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
            "method": setting.method,
            "candidate": number,
            "lr": setting.lr,
            "hyperparameters": json.dumps(dict(setting.hyperparameters)),
            "task_options": json.dumps(dict(setting.task_options)),
            "schedule": setting.schedule,
            "seeds": len(scores[number]),
            "score": levels[number],
            "chosen": number == first,
            "tied": levels.count(best) if levels[number] == best else 0,
            "edge": ", ".join(find_edges(setting, settings)),
            "behind": None if pair is None else fmean(pair.apart),
            "behind_ci": None if pair is None else pair.ci,
            "worse": worse.get(number),
            "first_of_seeds": firsts.count(number),
            "note": trials[number].note,
        }
        for number, (setting, pair) in enumerate(zip(settings, behind, strict=True))
    ]


def join_records(runs: Runs, what: Literal["metrics", "scores"]) -> polars.DataFrame:
    """Join the records or the scores of all runs, with ``method``, ``seed`` and ``epoch``."""
    tables: list[polars.DataFrame] = [
        getattr(run, what).select(
            polars.lit(label).alias("method"),
            polars.lit(run.config.seed, polars.Int64).alias("seed"),
            (polars.col("step") / run.config.score_every).alias("epoch"),
            polars.all(),
        )
        for label, own in runs.items()
        for run in own
    ]
    return polars.concat(tables, how="diagonal")


def _rows(
    label: str, seed: int, run: Judged, goals: Goals, against: Mapping[str, tuple[Point, Point]]
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


def _mean(runs: Sequence[Point]) -> Point:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: fmean(run[name] for run in runs if name in run) for name in names}
