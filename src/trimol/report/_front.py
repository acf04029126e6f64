"""What is shown of a front, from its study: points as plain numbers, and what to make of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import polars

from trimol._words import count
from trimol.report._numbers import interval, number, share
from trimol.report._summary import Table
from trimol.runs._front_points import DIFFERENCE, GOALS, KIND, KNOWN, POINTS
from trimol.runs._significance import is_clear, too_few
from trimol.runs.statistics import finite_mean
from trimol.runs.study import Row, Study

WORDS = {GOALS: "the task's goals"}
TITLES = {False: "The front", True: "The front in the task's goals"}
MOST_AXES = 3  # beyond, a line across parallel axes is a point
HOLLOW = "○"
SHORT = 6  # letters of a run's name
NARROW = 1e-3  # of a number, for half of its interval
MARKS = (
    f"+ was added where the front was thin; {HOLLOW} is dominated (of several seeds, in how many)."
)
HOW_TO_READ = (
    "Hypervolume is how much of the space up to the reference point the points dominate: higher is "
    "better, and only numbers with the same reference compare. A point is dominated if another one "
    "of the same method and seed is no worse in anything, and better in something."
)


_COLUMNS = {
    "method": polars.String,
    "folder": polars.String,
    "seed": polars.Int64,
    "point": polars.Int64,
    "refined": polars.Boolean,
}
_SAID = ("reference", "reference_from", "better", "ci")


@dataclass(frozen=True)
class Dots:
    """Points of a method in one space that are drawn alike.

    Attributes:
        label: The method.
        kind: The space: ``"test"``, ``"validation"``, ``"train"`` or ``"goals"``.
        seed: Of their runs.
        dominated: Whether they are.
        at: Where they are, one after another along the front.
        texts: What there is to say about each.
    """

    label: str
    kind: str
    seed: int
    dominated: bool
    at: tuple[tuple[float, ...], ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class FrontFigure:
    """A figure of fronts, on one of several kinds of data.

    Attributes:
        name: In file names.
        title: What it shows.
        caption: How to read it.
        axes: The objectives, or the metrics.
        kinds: What there is to choose from; the first is shown at first.
        dots: The points.
        known: The true front by kind, where it is known.
    """

    name: str
    title: str
    caption: str
    axes: tuple[str, ...]
    kinds: tuple[str, ...]
    dots: tuple[Dots, ...]
    known: dict[str, tuple[tuple[float, ...], ...]]

    @property
    def labels(self) -> list[str]:
        """The methods, in their order."""
        return list(dict.fromkeys(own.label for own in self.dots))

    @property
    def joined(self) -> bool:
        """Whether a staircase shows what the points dominate: two losses, lower is better."""
        return len(self.axes) == 2 and self.name != GOALS

    @property
    def parallel(self) -> bool:
        """Whether there are too many axes for a picture in space."""
        return len(self.axes) > MOST_AXES

    def relative(self, kind: str, point: Sequence[float]) -> list[float]:
        """Where a point is on each axis: 0 at the least value of the kind, 1 at the largest."""
        at = [p for own in self.dots if own.kind == kind for p in own.at]
        ends = [(min(own), max(own)) for own in zip(*at, strict=True)]
        return [
            (value - low) / (high - low) if high > low else 0.5
            for value, (low, high) in zip(point, ends, strict=True)
        ]


def is_front(study: Study) -> bool:
    """Whether a study is of a front, with its points and numbers; one that was edited may not be.

    >>> is_front(Study("toy", "A toy", rows=[]))
    False
    """
    points = study.tables.get(POINTS)
    if study.name.partition(" ")[0] != KIND or points is None or points.is_empty():
        return False
    schema = points.schema
    if any(schema.get(name) != kind for name, kind in _COLUMNS.items()) or not _kinds(study):
        return False
    numbers = [f"{kind}/{axis}" for kind in _kinds(study) for axis in _axes(study, kind)]
    weights = [name for name in schema if name.startswith("weight/")]
    plain = all(schema[name].is_numeric() for name in (*numbers, *weights))
    whole = not sum(points.null_count().row(0))
    return plain and whole and _has_rows(study, points["method"].unique().to_list())


def _has_rows(study: Study, methods: Sequence[str]) -> bool:
    """Whether every method has the numbers that `sentences` speaks of."""
    found = {(r["method"], r.get("data"), r["metric"]) for r in study.rows if {*_SAID} <= {*r}}
    wanted = product(methods, _kinds(study), ("hypervolume", "nondominated"))
    return {*wanted} <= found


def figures(study: Study) -> list[FrontFigure]:
    """The front in the losses, on each kind of data, and in the goals, where there are some."""
    return [
        FrontFigure(
            name=GOALS if goals else "front",
            title=TITLES[goals],
            caption=_caption(kinds, study),
            axes=_titles(study, kinds[0]),
            kinds=kinds,
            dots=tuple(dots for kind in kinds for dots in _dots(study, kind)),
            known={kind: at for kind in kinds if (at := _known(study, kind))},
        )
        for goals in (False, True)
        if (kinds := tuple(kind for kind in _kinds(study) if (kind == GOALS) is goals))
    ]


def sentences(study: Study) -> list[str]:
    """What came out, the most important first."""
    kind = _kinds(study)[0]
    own = [row for row in study.rows if row.get("data") == kind]
    values = {(row["method"], row["metric"]): row for row in own}
    methods = list(dict.fromkeys(row["method"] for row in own))
    said = [_sentence(method, values, study, kind) for method in methods]
    apart = [row for row in own if row["metric"] == DIFFERENCE]
    said += [_difference(row, len(apart)) for row in apart]
    return [*said, _about_reference(values[methods[0], "hypervolume"])]


def listing(study: Study, method: str) -> Table:
    """The points of a method, with means over seeds: preference, losses, and which run."""
    kind = _kinds(study)[0]
    axes = _axes(study, kind)
    rows = []
    for place, own in _by_point(study, method):
        means = [finite_mean([p[f"{kind}/{axis}"] for p in own]) for axis in axes]
        rows.append(
            (
                f"{place}{'+' if own[0]['refined'] else ''}{_hollow(own, kind)}",
                _preference(own[0]),
                *(_brief(mean.estimate, mean.half) for mean in means),
                own[0]["folder"].rpartition("-")[2][:SHORT],
            )
        )
    several = study.tables[POINTS]["seed"].n_unique() > 1
    last = "first seed's run" if several else "run"  # the losses are means over all
    return Table((method, "preferred", *axes, last), tuple(rows))


def _hollow(own: Sequence[dict[str, Any]], kind: str) -> str:
    """A mark for a dominated point; of several seeds, in how many."""
    beaten = sum(p[f"dominated/{kind}"] for p in own)
    return "" if not beaten else f" {HOLLOW}" if len(own) == 1 else f" {HOLLOW}{beaten}/{len(own)}"


def _sentence(method: str, values: dict[tuple[str, str], Row], study: Study, kind: str) -> str:
    points = len(_by_point(study, method))
    on, volume = values[method, "nondominated"], values[method, "hypervolume"]
    text = (
        f"{method}: {_brief(on['mean'], on['ci'])} of {count(points, 'point')} not dominated on "
        f"{_data(kind)}; hypervolume {interval(volume['mean'], volume['ci'])}"
    )
    if beyond := _beyond(study, method, kind, volume):
        text += f" (without {count(beyond, 'model')} beyond the reference point)"
    if (method, "igd") in values:
        distance = values[method, "igd"]
        text += f", IGD {interval(distance['mean'], distance['ci'])} from the true front"
    return f"{text}."


def _beyond(study: Study, method: str, kind: str, volume: Row) -> int:
    """How many models that are not dominated are not better than the reference in everything."""
    signs = [1 if way == "lower" else -1 for way in volume["better"]]
    limits = list(zip(_axes(study, kind), volume["reference"], signs, strict=True))
    return sum(
        any(p[f"{kind}/{axis}"] * sign >= limit * sign for axis, limit, sign in limits)
        for p in _rows(study)
        if p["method"] == method and not p[f"dominated/{kind}"]
    )


def _difference(row: Row, comparisons: int) -> str:
    start = f"{row['method']} − {row['from']}: hypervolume "
    start += _signed(row["mean"]) if row["ci"] is None else interval(row["mean"], row["ci"])
    if few := too_few(row["n"], comparisons):
        return f"{start}; {few}."
    how = "higher" if row["mean"] > 0 else "lower"
    clear = f"{how} by more than the noise"
    return f"{start}: {clear if is_clear(row['p']) else 'no difference larger than noise'}."


def _brief(mean: float, half: float | None) -> str:
    """A mean, with its interval where that is wide enough to matter."""
    return number(mean) if half is None or half <= NARROW * abs(mean) else interval(mean, half)


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)


def _about_reference(row: Row) -> str:
    at = ", ".join(map(number, row["reference"]))
    if row["reference_from"] == "user":
        return f"The reference point is the one that was given: ({at})."
    return (
        f"The reference point ({at}) is derived from these runs: the worst of all points that are "
        "not dominated, and a tenth of their range more. More runs may move it."
    )


def _caption(kinds: Sequence[str], study: Study) -> str:
    steps = len(_axes(study, kinds[0])) == 2 and GOALS not in kinds
    stairs = " What lies above the stairs is dominated." if steps else ""
    known = " The grey line is the true front." if any(_known(study, k) for k in kinds) else ""
    return (
        f"Every point is a trained model. Filled: not dominated. Hollow: another point of the same "
        f"method and seed is better.{stairs}{known}"
    )


def _data(kind: str) -> str:
    return WORDS.get(kind, f"{kind} data")


def _kinds(study: Study) -> tuple[str, ...]:
    """The spaces, in their order."""
    columns = study.tables[POINTS].columns
    return tuple(name.removeprefix("dominated/") for name in columns if name[:10] == "dominated/")


def _axes(study: Study, kind: str) -> tuple[str, ...]:
    prefix = f"{kind}/"
    columns = study.tables[POINTS].columns
    return tuple(name.removeprefix(prefix) for name in columns if name.startswith(prefix))


def _titles(study: Study, kind: str) -> tuple[str, ...]:
    """The axes; of goals with which way is better, which everybody knows of losses."""
    axes = _axes(study, kind)
    if kind != GOALS:
        return axes
    row = next(row for row in study.rows if row.get("data") == kind)
    return tuple(f"{n} ({way} is better)" for n, way in zip(axes, row["better"], strict=True))


def _rows(study: Study) -> list[dict[str, Any]]:
    return study.tables[POINTS].sort("point", "seed", maintain_order=True).to_dicts()


def _by_point(study: Study, method: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """The numbers of a method's points, each with its runs."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in _rows(study):
        if row["method"] == method:
            found.setdefault(row["point"], []).append(row)
    return list(found.items())


def _dots(study: Study, kind: str) -> Iterator[Dots]:
    axes = _axes(study, kind)
    groups: dict[tuple[str, int, bool], list[dict[str, Any]]] = {}
    for row in study.tables[POINTS].to_dicts():
        groups.setdefault((row["method"], row["seed"], row[f"dominated/{kind}"]), []).append(row)
    for (label, seed, dominated), own in groups.items():
        # Along the front of two objectives; of more there is no order.
        placed = sorted((tuple(p[f"{kind}/{axis}"] for axis in axes), _text(p)) for p in own)
        finite = [(at, text) for at, text in placed if all(map(_is_finite, at))]
        if finite:
            places, texts = zip(*finite, strict=True)
            yield Dots(label, kind, seed, dominated, places, texts)


def _known(study: Study, kind: str) -> tuple[tuple[float, ...], ...]:
    table, axes = study.tables.get(KNOWN), _axes(study, kind)
    if table is None or {*table.columns} != {*axes, "data"}:
        return ()
    return tuple(sorted(table.filter(table["data"] == kind).select(axes).rows()))


def _text(p: dict[str, Any]) -> str:
    return (
        f"{p['method']}, point {p['point']}, seed {p['seed']}: preference "
        f"{_preference(p)} ({p['folder']})"
    )


def _preference(p: dict[str, Any]) -> str:
    weights = [value for name, value in p.items() if name.startswith("weight/")]
    if not all(map(_is_finite, weights)):
        return number(None)
    return " ".join(share(weight).removeprefix("0") for weight in weights)


def _is_finite(value: float | None) -> bool:
    return value is not None and abs(value) < float("inf")
