"""How good a multi-task model is: its drop against a baseline, and the epoch it is judged at.

Scores are a run's ``scores.parquet``: one row an epoch, ``validation_loss/<objective>``,
``validation/<metric>`` and ``test/<metric>``. Epochs are chosen on validation data alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import polars

from trimol._failures import BadValue
from trimol.runs._judging import SIGNS, checked_goals, flat_goals
from trimol.runs.store import StoredRun
from trimol.search._trial import Point
from trimol.tasks.task import Better, Goals


def drop(values: Mapping[str, float], baseline: Mapping[str, float], goals: Goals) -> float:
    r"""Return ΔA %: how much worse than a baseline, on average over the objectives.

    Lower is better.

    .. math:: \Delta\mathcal{A}\,\% = \frac{100}{M} \sum_{m=1}^{M} \frac{1}{|K_m|}
       \sum_{k \in K_m} (-1)^{\ell_k} \frac{S_k - B_k}{B_k}

    with the metrics K_m of objective m and ℓ = 1 where higher is better. By objective first: an
    objective with many metrics counts no more than one with a single metric. (So the paper's
    numbers for NYU-v2 come out; a mean over all nine metrics gives others.)

    Args:
        values: S, by metric.
        baseline: B, by metric; not negative. Nothing is relative to 0: the result is then NaN.
        goals: For each objective its metrics, and which way is better (`Task.goals`).

    Example:
        >>> goals = {"a": {"accuracy": "higher"}, "b": {"error": "lower"}}
        >>> drop({"accuracy": 0.75, "error": 3.0}, {"accuracy": 1.0, "error": 2.0}, goals)
        37.5

    Reference:
        Three-way trade-off, ΔA_id of the multi-task experiments.
    """
    return 100 * fmean(
        fmean(_relative_drop(metric, way, values, baseline) for metric, way in metrics.items())
        for metrics in checked_goals(goals).values()
    )


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

    validation: Point
    test: Point
    epochs: dict[str, int] = field(default_factory=dict)
    joint: Point = field(default_factory=dict)
    joint_epoch: int | None = None


def judge_run(run: StoredRun, goals: Goals, baseline: Point | None = None) -> Judged:
    """Return a run's metrics at the epochs that validation data choose."""
    epoch = run.config.score_every
    rows = {
        metric: row
        for objective, metrics in goals.items()
        for row in [choose_epoch(run.scores, goals, objective)]
        for metric in metrics
    }
    joint = None if baseline is None else choose_joint_epoch(run.scores, goals, baseline)
    return Judged(
        validation={metric: row[f"validation/{metric}"] for metric, row in rows.items()},
        test={metric: row[f"test/{metric}"] for metric, row in rows.items()},
        epochs={metric: row["step"] // epoch for metric, row in rows.items()},
        joint={} if joint is None else {metric: joint[f"test/{metric}"] for metric in rows},
        joint_epoch=None if joint is None else joint["step"] // epoch,
    )


def choose_epoch(scores: polars.DataFrame, goals: Goals, objective: str) -> dict[str, Any]:
    """Return the row of the epoch that is best for one objective on validation data.

    Epochs are compared by `rank`. Of equals (on a hundred images accuracies often are) it is the
    one with the lowest validation loss of the objective, where that is known; then the earliest.

    Example:
        >>> table = polars.DataFrame({"step": [5, 10, 15], "validation/accuracy": [0.6, 0.8, 0.8]})
        >>> choose_epoch(table, {"a": {"accuracy": "higher"}}, "a")["step"]
        10
    """
    ranks = rank(read_validation_points(scores, goals[objective]), goals[objective])
    best = [row for row, value in enumerate(ranks) if value == max(ranks)]
    loss = f"validation_loss/{objective}"
    if loss in scores.columns:
        best.sort(key=scores[loss].to_list().__getitem__)
    return scores.row(best[0], named=True)


def choose_joint_epoch(scores: polars.DataFrame, goals: Goals, baseline: Point) -> dict[str, Any]:
    """Return the row of the one epoch that is best for all: the smallest ΔA on validation data.

    The rule of the paper's experiments (and of LibMTL): one model for all tasks.

    Example:
        >>> goals = {"a": {"accuracy": "higher"}, "b": {"error": "lower"}}
        >>> table = {"step": [5, 10], "validation/accuracy": [0.6, 0.9], "validation/error": [1, 2]}
        >>> base = {"accuracy": 1.0, "error": 1.0}
        >>> choose_joint_epoch(polars.DataFrame(table), goals, base)["step"]
        5
    """
    points = read_validation_points(scores, flat_goals(goals))
    drops = [drop(point, baseline, goals) for point in points]
    known = [math.inf if math.isnan(lost) else lost for lost in drops]
    return scores.row(known.index(min(known)), named=True)


def rank(points: Sequence[Point], ways: Mapping[str, Better]) -> list[float]:
    """Return one number per point, larger for the better.

    With one metric it is the value, with several the mean over them of the value relative to its
    mean size; where lower is better with a minus sign.
    """
    scales = dict.fromkeys(ways, 1.0)
    if len(ways) > 1:
        scales = {name: fmean(abs(point[name]) for point in points) or 1.0 for name in ways}
    return [
        fmean(-SIGNS[way] * point[name] / scales[name] for name, way in ways.items())
        for point in points
    ]


def read_validation_points(scores: polars.DataFrame, names: Iterable[str]) -> list[Point]:
    """Return the metrics on validation data, epoch by epoch; a metric may be absent."""
    columns = {name: f"validation/{name}" for name in names}
    return [
        {name: row[own] for name, own in columns.items() if row.get(own) is not None}
        for row in scores.iter_rows(named=True)
    ]


def _relative_drop(
    metric: str, way: str, values: Mapping[str, float], baseline: Mapping[str, float]
) -> float:
    """Return the signed relative drop of one metric."""
    for name, found in (("values", values), ("baseline", baseline)):
        if metric not in found:
            raise BadValue(f"{name} must have {metric}, found {', '.join(found) or 'nothing'}")
        if not math.isfinite(found[metric]):
            raise BadValue(f"{metric} of {name} must be finite, found {found[metric]}")
    before = baseline[metric]
    if before < 0:
        raise BadValue(f"{metric} of baseline must be at least 0, found {before}")
    return SIGNS[way] * (values[metric] - before) / before if before else math.nan
