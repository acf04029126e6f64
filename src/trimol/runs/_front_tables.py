"""A front on disk and in words: a study with its points, its numbers and what to make of them."""

import math
from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

import polars

from trimol.runs import study as results
from trimol.runs._environment import environment
from trimol.runs._front_points import (
    DIFFERENCE,
    INDICATORS,
    KIND,
    KNOWN,
    LOSSES,
    POINTS,
    Front,
    FrontPoint,
)
from trimol.runs.comparison import Difference, judged_together
from trimol.runs.statistics import Paired, interval
from trimol.runs.study import Row, Study, row


def front_study(front: Front, folder: Path, command: str = "") -> Study:
    """The study of a front whose runs are in a folder: rows, tables, and sentences as notes."""
    tables = {POINTS: polars.DataFrame([_listed(p, front, folder) for p in front.points])}
    if front.known:
        tables[KNOWN] = polars.concat(
            polars.DataFrame(at, schema=[*space.axes], orient="row").with_columns(
                polars.lit(space.name).alias("data")
            )
            for space in front.spaces
            if (at := front.known.get(space.name)) is not None
        )
    return Study(
        name=f"{KIND} {front.task}",
        title=f"Front of {front.task}",
        rows=front_rows(front),
        tables=tables,
        command=command,
        environment=environment(),
    )


def save_front(front: Front, folder: Path, command: str = "") -> Study:
    """Write the study of a front beside its runs."""
    return results.save(front_study(front, folder, command), folder)


def front_rows(front: Front) -> list[Row]:
    """What the fronts are worth: one row per method, kind of data and indicator.

    ``metric`` is ``hypervolume`` (higher is better), ``nondominated`` (how many points are),
    ``spacing`` or, where the true front is known, ``igd`` (lower is better); ``data`` is where it
    was taken. The mean is over seeds. Then, for every method but the first, the ``hypervolume
    difference`` from the first, seed by seed, with Holm's ``p``.
    """
    found = [
        {
            **row(method, name, values),
            "ci": interval(values),
            "data": space.name,
            "reference": list(front.references[space.name]),
            "reference_from": "user" if front.given and space.name in LOSSES else "runs",
            "better": ["lower" if sign > 0 else "higher" for sign in space.signs],
        }
        for method in front.methods
        for space in front.spaces
        for name in INDICATORS
        if (values := [v for v in front.indicator(name, method, space) if math.isfinite(v)])
    ]
    return found + [
        {**row(d.method, DIFFERENCE, [d.mean]), "n": d.n, "ci": d.ci, "p": d.p}
        | {"from": d.baseline, "data": front.spaces[0].name}
        for d in front_differences(front)
    ]


def front_differences(front: Front) -> list[Difference]:
    """How the hypervolume of each method differs from the first one's, seed by seed."""
    space = front.spaces[0]
    first, *others = front.methods
    base = front.indicator("hypervolume", first, space)
    pairs = [
        (name, DIFFERENCE, Paired(base, front.indicator("hypervolume", name, space)))
        for name in others
    ]
    return judged_together(first, pairs)


def as_plain(p: FrontPoint, front: Front) -> dict[str, Any]:
    """A point for machines."""
    return {
        "method": p.method,
        "seed": p.seed,
        "point": place(p, front),
        "weights": list(p.preference),
        "member": p.member,
        "refined": p.refined,
        **{s.name: _finite(dict(zip(s.axes, p.values[s.name], strict=True))) for s in front.spaces},
        "metrics": _finite(p.metrics),
        "dominated": dict(p.dominated),
        "folder": str(p.folder),
    }


def place(p: FrontPoint, front: Front) -> int:
    """The number of a point among those of its method, the same for every seed, from 1."""
    order = dict.fromkeys((other.preference, other.member) for other in front.of(p.method))
    return [*order].index((p.preference, p.member)) + 1


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _listed(p: FrontPoint, front: Front, folder: Path) -> dict[str, Any]:
    """A point as a row of a table; where no preference was asked for, its weights are NaN."""
    axes = front.spaces[0].axes
    return {
        "method": p.method,
        "seed": p.seed,
        "point": place(p, front),
        "refined": p.refined,
        "folder": relpath(p.folder, folder),
        **_columns("weight", axes, p.preference or (math.nan,) * len(axes)),
        **{
            name: value
            for space in front.spaces
            for name, value in _columns(space.name, space.axes, p.values[space.name]).items()
        },
        **_columns("metric", tuple(p.metrics), tuple(p.metrics.values())),
        **{f"dominated/{name}": value for name, value in p.dominated.items()},
    }


def _columns(prefix: str, names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in zip(names, values, strict=True)}
