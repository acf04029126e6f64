"""What the runs of `steps.py` come to: means, paired differences, one Holm correction over all.

Runs of earlier sittings may be gone, and only their rows be left, in a file of results. `joined`
puts such rows beside new ones: a row keeps the p of its own comparison (``"p alone"``; of rows
without it, it is found from the difference and its interval), so that the correction is made anew
over all.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trimol.runs.statistics import Paired, holm, p_of_t, quantile

Row = dict[str, Any]
Place = tuple[str, str, str]

MEANS = (
    "batch direction",
    "batch step",
    "batch step, all losses",
    "batch step, worst cosine",
    "data direction",
    "data step",
    "R_opt",
    "E_ca",
    "E_ca in the metric",
    "score",
)
POOLED = ("task", "optimizer", "variant")


def summary(found: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """A row for every combination, with its difference from published; and means over methods.

    Args:
        found: Combinations, each with its ``"runs"``, in the order of their seeds.
    """
    base = {place_of(row): row for row in found if row["variant"] == "published"}
    rows = [_means(row) for row in found]
    apart: dict[Place, list[Paired]] = {}
    for row, full in zip(rows, found, strict=True):
        if row["variant"] != "published" and place_of(row) in base:
            paired = _paired(base[place_of(row)], full)
            row |= _compared(paired)
            if not row["diverged"]:
                apart.setdefault(_named(row), []).append(paired)
    pooled = [dict(zip(POOLED, key, strict=True)) | _pooled(own) for key, own in apart.items()]
    return rows, pooled


def place_of(row: Row) -> Place:
    """What the variants of a row's method have in common."""
    return row["task"], row["method"], row["optimizer"]


def _named(row: Row) -> Place:
    return row["task"], row["optimizer"], row["variant"]


def _pooled(pairs: Sequence[Paired]) -> Row:
    """The difference in the mean over methods, seed by seed: of the seeds that all have."""
    seeds = min(len(paired.base) for paired in pairs)
    base, own = (
        [statistics.mean(values) for values in zip(*(one[:seeds] for one in side), strict=True)]
        for side in ([p.base for p in pairs], [p.own for p in pairs])
    )
    return {"methods": len(pairs), "n": seeds} | _compared(Paired(base, own))


def _means(row: Row) -> Row:
    """What a combination is, and its means over the seeds that did not diverge."""
    ended = [found for found in row["runs"] if not found["diverged"]]
    what = {name: row[name] for name in ("task", "method", "optimizer", "variant", "lr", "weights")}
    means: Row = {name: _average(found[name] for found in ended) for name in MEANS}
    for kind in ("losses", "metrics"):
        names = ended[0][kind] if ended else ()
        means[kind] = {name: _average(found[kind][name] for found in ended) for name in names}
    outcomes = [found["outcomes"] for found in ended]
    total = sum(sum(each.values()) for each in outcomes)
    if total:
        changed = sum(each.get("changed", 0) for each in outcomes)
        means["changed"] = changed / total
        means["failed"] = sum(each.get("failed", 0) for each in outcomes)
    least = [found["batch step, least cosine"] for found in ended]
    means["least cosine"] = min(least, default=None)
    diverged = len(row["runs"]) - len(ended)
    return what | {"n": row["n"], "diverged": diverged} | means


def _average(values: Iterator[float]) -> float | None:
    own = list(values)
    return statistics.mean(own) if own else None


def _paired(base: Row, row: Row) -> Paired:
    """The scores of seeds that both have, and that diverged in neither."""
    pairs = [
        (one["score"], other["score"])
        for one, other in zip(base["runs"], row["runs"], strict=False)
        if not one["diverged"] and not other["diverged"]
    ]
    return Paired([one for one, _ in pairs], [other for _, other in pairs])


def _compared(paired: Paired) -> Row:
    """The difference with its interval, and the p of this comparison alone."""
    if len(paired.base) < 2:
        return {"difference": None, "difference_ci": None, "p alone": None}
    difference = statistics.mean(paired.apart)
    return {"difference": difference, "difference_ci": paired.ci, "p alone": paired.p}


# --- rows of earlier sittings --------------------------------------------------------------------


def joined(new: Mapping[str, Any], earlier: Mapping[str, Any]) -> tuple[Row, list[str]]:
    """New results with those rows of earlier ones that they have not.

    A method on a task with an optimizer is taken whole from one of them, so that variants are
    compared within a sitting: from that with more seeds; from the new one if both have as many.

    Args:
        new: Rows, means over methods, settings, trials.
        earlier: The same. Tasks that it has with other settings are left out.

    Returns:
        Results of which nothing is corrected yet, and the names of tasks that were left out.
    """
    if new["trials"] != earlier["trials"]:
        raise ValueError(
            f"earlier results must have {new['trials']} trials a combination, found "
            f"{earlier['trials']}"
        )
    changed = [
        task
        for task, setting in earlier["settings"].items()
        if setting != new["settings"].get(task, setting)
    ]
    old = with_p([row for row in earlier["rows"] if row["task"] not in changed])
    kept = [
        *_places(
            row for row in old if _seeds(old, place_of(row)) > _seeds(new["rows"], place_of(row))
        )
    ]
    rows = [row for row in new["rows"] if place_of(row) not in kept]
    rows += [{"made": earlier["created"], **row} for row in old if place_of(row) in kept]
    means = [_with_p(row, [row["n"]]) for row in earlier["pooled"] if row["task"] not in changed]
    pooled = {_named(row): row for row in means}
    for row in new["pooled"]:
        if row["methods"] >= pooled.get(_named(row), row)["methods"]:
            pooled[_named(row)] = row
    settings = {**earlier["settings"], **new["settings"]}
    return {**new, "rows": rows, "pooled": list(pooled.values()), "settings": settings}, changed


def _places(rows: Iterable[Row]) -> set[Place]:
    return {place_of(row) for row in rows}


def _seeds(rows: Iterable[Row], where: Place) -> int:
    """The seeds that all variants of a place have."""
    return min((row["n"] for row in rows if place_of(row) == where), default=0)


def with_p(rows: Sequence[Row]) -> list[Row]:
    """Rows with the p of each comparison alone, found from the interval where it is not given."""
    base = {place_of(row): row for row in rows if row["variant"] == "published"}
    return [
        _with_p(row, _pairs(base[place_of(row)], row)) if "difference" in row else row
        for row in rows
    ]


def _pairs(base: Row, row: Row) -> range:
    """How many pairs of seeds there may have been: which seeds diverged is not known."""
    seeds = min(base["n"], row["n"])
    lost = [max(0, one["diverged"] - (one["n"] - seeds)) for one in (base, row)]
    most = min(base["diverged"], seeds) + min(row["diverged"], seeds)
    return range(max(2, seeds - most), max(2, seeds - max(lost)) + 1)


def _with_p(row: Row, pairs: Iterable[int]) -> Row:
    if "p alone" in row:
        return row
    difference, ci = row["difference"], row["difference_ci"]
    known = difference is not None and ci is not None
    return row | {"p alone": recovered(difference, ci, pairs) if known else None}


def recovered(difference: float, ci: float, pairs: Iterable[int]) -> float:
    """The paired t test's p from the mean difference and its 95 % interval.

    Args:
        difference: The mean.
        ci: Half the width of its interval.
        pairs: How many there were, or may have been: the largest p counts.

    Example:
        >>> round(recovered(2.0, 2.4841, [3]), 4)  # of 1, 2, 3
        0.0742
    """
    if ci == 0:
        return 1.0 if difference == 0 else 0.0
    times = abs(difference) / ci
    return max(p_of_t(times * quantile(n - 1), n) for n in pairs)


def corrected(results: Mapping[str, Any]) -> Row:
    """Results with Holm's p: one family, whatever the page compares."""
    compared = [row for row in (*results["rows"], *results["pooled"]) if "difference" in row]
    adjusted = iter(holm([row["p alone"] for row in compared]))
    rows, pooled = (
        [row | {"p": next(adjusted)} if "difference" in row else row for row in results[kind]]
        for kind in ("rows", "pooled")
    )
    return {**results, "rows": rows, "pooled": pooled}
