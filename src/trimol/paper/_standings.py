"""What the leaderboard's final runs come to: scores, ranks, verdicts, and the words for them."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import polars

from trimol._failures import Diverged
from trimol.methods._registry import BASELINE
from trimol.runs.comparison import Difference, judged_together
from trimol.runs.statistics import Paired
from trimol.runs.study import Row, row

SCORE, RANK, TRIALS = "score", "rank", "trials"
MARGIN = 0.5  # of a score: what differs by less is alike, however sure
VERDICTS = BETTER, WORSE, ALIKE, OPEN = "better", "worse", "alike", "open"
Tables = Mapping[str, polars.DataFrame]


def scores(runs: polars.DataFrame) -> dict[str, dict[int, float]]:
    """One number a method and seed, in per cent of the metrics' sizes: larger is better.

    A method of which a final run has no number, or is missing, has no score: what is left would
    flatter it.

    Example:
        >>> cell = {"metric": "loss", "way": "lower", "scale": 2.0}
        >>> runs = [{"method": m, "seed": 0, "value": v} | cell for m, v in (("a", 1.0), ("b", 3))]
        >>> scores(polars.DataFrame(runs, strict=False))
        {'a': {0: -50.0}, 'b': {0: -150.0}}
    """
    signed = polars.when(polars.col("way") == "higher").then(100.0).otherwise(-100.0)
    each = (
        runs.with_columns(share=signed * polars.col("value") / polars.col("scale"))
        .group_by("method", "seed", maintain_order=True)
        .agg(polars.col("share").mean())
    )
    found: dict[str, dict[int, float]] = {}
    for method, seed, share in each.iter_rows():
        found.setdefault(method, {})[seed] = share
    whole = max(map(len, found.values()))
    kept = {
        method: own
        for method, own in found.items()
        if len(own) == whole and all(map(math.isfinite, own.values()))
    }
    if BASELINE in found and BASELINE not in kept:
        raise Diverged(f"a final run of {BASELINE} has no number: there is nothing to compare with")
    return kept


def judged(board: Mapping[str, Tables]) -> list[Difference]:
    """How each method differs from static weighting on each task, with Holm's p for all."""
    pairs = [
        (method, task, Paired(list(each[BASELINE].values()), list(own.values())))
        for task, tables in board.items()
        for each in [scores(tables["runs"])]
        for method, own in each.items()
        if method != BASELINE
    ]
    return judged_together(BASELINE, pairs)


def verdict(one: Difference) -> str:
    """What a difference of scores is, in view of how many were looked at.

    >>> verdict(Difference("modo", "static", "digits", mean=2.0, ci=0.5, n=10, p=0.001))
    'better'
    >>> verdict(Difference("modo", "static", "digits", mean=0.1, ci=0.01, n=10, p=0.001))
    'alike'
    """
    if one.clear and abs(one.mean) > MARGIN:
        return BETTER if one.mean > 0 else WORSE
    return ALIKE if one.ci is not None and abs(one.mean) + one.ci <= MARGIN else OPEN


def rows(board: Mapping[str, Tables], found: Sequence[Difference]) -> list[Row]:
    """The scores, with ranks and verdicts, and below them the metrics they come from."""
    beside = {(one.metric, one.method): one for one in found}
    made = []
    for task, tables in board.items():
        each, setting = scores(tables["runs"]), _settings(tables["tuning"])
        base = fmean(each[BASELINE].values())
        ranked = sorted(each, key=lambda name: -fmean(each[name].values()))
        for place, method in enumerate(ranked, 1):
            values = [value - base for value in each[method].values()]
            own = row(method, SCORE, values, task=task, rank=place, of=len(ranked))
            if method != BASELINE:
                one = beside[task, method]
                own |= {"ci": one.ci, "p": one.p, "verdict": verdict(one)}
            made.append(own | setting[method])
        for (method, metric), runs in tables["runs"].group_by(
            "method", "metric", maintain_order=True
        ):
            made.append(row(str(method), str(metric), runs["value"].to_list(), task=task))
    return made


def ranking(board: Mapping[str, Tables]) -> list[Row]:
    """The mean rank of every method over the tasks; first those that were ranked on most."""
    ranks: dict[str, list[float]] = {}
    for tables in board.values():
        each = scores(tables["runs"])
        for place, method in enumerate(sorted(each, key=lambda n: -fmean(each[n].values())), 1):
            ranks.setdefault(method, []).append(place)
    made = [row(method, RANK, own, task="all") for method, own in ranks.items()]
    return sorted(made, key=lambda own: (-own["n"], own["mean"]))


def _settings(tuning: polars.DataFrame) -> dict[str, Row]:
    """What was chosen of each method, and of how many."""
    counts = dict(tuning.group_by("method").len().iter_rows())
    return {
        own["method"]: {"lr": own["lr"], "schedule": own["schedule"] or "constant"}
        | {"hyperparameters": own["hyperparameters"], TRIALS: counts[own["method"]]}
        for own in tuning.filter("chosen").to_dicts()
    }


def summary(board: Mapping[str, Tables], found: Sequence[Difference]) -> list[str]:
    """What survives the correction, first over all and then task by task."""
    if not found:
        return []
    kinds = [verdict(one) for one in found]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in VERDICTS)
    said = [
        f"{len(found)} differences from tuned static weighting on {len(board)} tasks: {counts}."
    ]
    for task in board:
        own = {kind: [] for kind in VERDICTS}  # type: dict[str, list[str]]
        for one in found:
            if one.metric == task:
                own[verdict(one)].append(one.method)
        words = [f"{kind}: {', '.join(own[kind]) or 'none'}" for kind in (BETTER, WORSE)]
        said.append(f"{task}: {'; '.join(words)}; neither: {len(own[ALIKE]) + len(own[OPEN])}.")
    return said
