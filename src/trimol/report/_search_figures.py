"""What the figures of a search show, as plain numbers: its front, slices, importances, contours."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any, Literal

import numpy as np

from trimol._extras import MissingExtra
from trimol._failures import BadValue
from trimol.report._numbers import number, short
from trimol.runs.study import Study
from trimol.search._results import GOAL, SETTING
from trimol.search._sampler import quiet

Scale = Literal["lin", "log", "choice"]
FEWEST = 10  # trials of a method whose settings' importance is asked for
MOST_PAIRS = 6  # of goals
MOST_CONTOURS = 3  # of a method
CELLS = 40  # of a contour, along each side
SCORE = "score"
_SCALES = {"lin": "lin", "int": "lin", "log": "log", "choice": "choice"}
_BELOW = 2.0  # how far an axis reaches beyond the median, in distances from there to the best


@dataclass(frozen=True)
class Axis:
    """What an axis shows."""

    title: str
    scale: Scale = "lin"


@dataclass(frozen=True)
class Dots:
    """Some trials of a method."""

    label: str  # the method
    kind: str  # which of the figure's alternatives it belongs to; empty if it is always shown
    strong: bool  # on the front
    x: tuple[Any, ...]
    y: tuple[float, ...]
    best: tuple[bool, ...]  # which of them are the method's best
    texts: tuple[str, ...]  # each trial, in words


@dataclass(frozen=True)
class Surface:
    """Scores between the trials, on a grid: NaN where no trials are around."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    z: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Plot:
    """One pair of axes with trials, and a surface below them if there is one."""

    title: str
    label: str  # of the method that all of it belongs to, if it is one
    x: Axis
    y: Axis
    dots: tuple[Dots, ...]
    surface: Surface | None = None


@dataclass(frozen=True)
class Bars:
    """The importance of a method's settings: shares of 1, the largest first."""

    title: str
    label: str
    names: tuple[str, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class SearchFigure:
    """A figure of panels."""

    name: str
    title: str
    caption: str
    panels: tuple[Plot | Bars, ...]
    kinds: tuple[str, ...] = ()


class Trials:
    """The trials of a search, as its study has them.

    Raises:
        BadValue: The tables are not those of a search.
    """

    def __init__(self, study: Study) -> None:
        needs = {"method", "trial", SCORE, "best", "front"}
        table, axes = study.tables["trials"], study.tables["axes"]
        if not needs <= set(table.columns) or not {"name", "scale", "better"} <= set(axes.columns):
            raise BadValue(f"{study.name}: trials must have {', '.join(sorted(needs))}")
        self.rows = [row for row in table.to_dicts() if row[SCORE] is not None]
        self.methods = list(dict.fromkeys(table["method"].to_list()))
        known = [row for row in axes.to_dicts() if row["name"] in table.columns]
        self.scales: dict[str, Scale] = {
            row["name"]: _SCALES.get(row["scale"], "choice")  # type: ignore[misc]
            for row in known
            if row["name"].startswith(SETTING)
        }
        self.ways = {row["name"]: row["better"] for row in known if row["name"].startswith(GOAL)}

    def of(self, method: str, *names: str) -> list[dict[str, Any]]:
        """The trials of a method that have all of some columns."""
        own = [row for row in self.rows if row["method"] == method]
        return [row for row in own if all(row[name] is not None for name in names)]

    def varied(self, method: str) -> list[str]:
        """The settings of which a method's trials have several values."""
        own = self.of(method)
        return [name for name in self.scales if len({row[name] for row in own} - {None}) > 1]

    def shown(self, column: str, value: float) -> float:
        """A score or goal, not farther from the best than an axis for all of them should reach."""
        higher = self.ways.get(column, "higher") == "higher"
        values: list[float] = [row[column] for row in self.rows]
        best, middle = (max if higher else min)(values), median(values)
        end = middle - _BELOW * (best - middle)
        return max(value, end) if higher else min(value, end)


def figures(study: Study) -> tuple[list[SearchFigure], list[str]]:
    """The figures of a search, and why some are missing."""
    if not {"trials", "axes"} <= study.tables.keys():
        return [], []
    trials = Trials(study)
    if not trials.rows:
        return [], ["No trial came to an end: there is nothing to show."]
    shares, missing = importances(trials)
    made = [front(trials), slices(trials), importance(shares), contours(trials, shares)]
    return [figure for figure in made if figure.panels], missing


def methods(study: Study) -> list[str]:
    """The methods of a search."""
    return Trials(study).methods


def front(trials: Trials) -> SearchFigure:
    """The goals against each other, two at a time."""
    pairs = list(combinations(trials.ways, 2))[:MOST_PAIRS]
    return SearchFigure(
        "tradeoffs",
        "Front",
        "Every trial, on validation data. Full marks are on the front: no other trial is at least "
        "as good in all goals and better in one. Faint ones are dominated; what went far "
        "astray is drawn at the edge.",
        tuple(_pair(trials, x, y) for x, y in pairs),
    )


def slices(trials: Trials) -> SearchFigure:
    """The score, and each goal, over every setting that was varied."""
    names = [n for n in trials.scales if any(n in trials.varied(m) for m in trials.methods)]
    kinds = {SCORE: "score (%)", **{goal: _goal(goal) for goal in trials.ways}}
    panels = [
        Plot(
            _setting(name),
            "",
            Axis(_setting(name), trials.scales[name]),
            Axis("validation"),
            tuple(
                _dots(trials, trials.of(method, name), name, column, kind=kind)
                for column, kind in kinds.items()
                for method in trials.methods
                if trials.of(method, name)
            ),
        )
        for name in names
    ]
    return SearchFigure(
        "slices",
        "One setting at a time",
        "Every trial at its value of a setting; the others vary, too. A ring is a method's best. "
        "What went far astray is drawn at the edge.",
        tuple(panels),
        tuple(kinds.values()),
    )


def importances(trials: Trials) -> tuple[dict[str, dict[str, float]], list[str]]:
    """How much of the scores' variance each setting explains (fANOVA), by method; what lacks."""
    found: dict[str, dict[str, float]] = {}
    missing = []
    for method in trials.methods:
        names, own = trials.varied(method), trials.of(method)
        if len(own) < FEWEST or len(names) < 2 or len({row[SCORE] for row in own}) < 2:
            missing.append(
                f"No importances for {method}: they need {FEWEST} trials that came to an end and "
                f"two settings that vary, found {len(own)} and {len(names)}."
            )
            continue
        try:
            found[method] = _shares(trials, own, names)
        except MissingExtra as error:
            return found, [f"No importances: {error}."]
    return found, missing


def importance(shares: Mapping[str, Mapping[str, float]]) -> SearchFigure:
    """The shares as bars, a method a panel."""
    return SearchFigure(
        "importance",
        "Which setting matters?",
        "The share of the variance of the scores, as drawn above, that each setting explains by "
        "itself and with others (fANOVA, as Optuna computes it). Of few trials it is a rough "
        "guess.",
        tuple(
            Bars(method, method, tuple(map(_setting, own)), tuple(own.values()))
            for method, own in shares.items()
        ),
    )


def contours(trials: Trials, shares: Mapping[str, Mapping[str, float]]) -> SearchFigure:
    """The score over two settings, for the most important ones of each method."""
    panels = [
        plot
        for method in trials.methods
        for x, y in _pairs_of_settings(trials, method, shares.get(method, {}))
        if (plot := _contour(trials, method, x, y)) is not None
    ]
    return SearchFigure(
        "contours",
        "Two settings at a time",
        "The score between the trials (linear, inside their hull), over the settings that matter "
        "most. The ring is the best.",
        tuple(panels),
    )


def _pair(trials: Trials, x: str, y: str) -> Plot:
    dots = [
        _dots(trials, own, x, y, strong=strong)
        for strong in (False, True)
        for method in trials.methods
        if (own := [row for row in trials.of(method) if row["front"] == strong])
    ]
    return Plot("", "", _axis(trials, x), _axis(trials, y), tuple(dots))


def _axis(trials: Trials, goal: str) -> Axis:
    """By ratio where the values are far apart; the way that is better is said."""
    values = [trials.shown(goal, row[goal]) for row in trials.rows]
    far = min(values) > 0 and max(values) > 20 * min(values)
    return Axis(f"{_goal(goal)} ({trials.ways[goal]} is better)", "log" if far else "lin")


def _dots(
    trials: Trials,
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    *,
    kind: str = "",
    strong: bool = False,
) -> Dots:
    """Trials of one method; the best is marked, where not the front is."""
    return Dots(
        label=rows[0]["method"],
        kind=kind,
        strong=strong,
        x=tuple(trials.shown(x, row[x]) if x in trials.ways else row[x] for row in rows),
        y=tuple(row[y] if y in trials.scales else trials.shown(y, row[y]) for row in rows),
        best=tuple(bool(row["best"]) for row in rows),
        texts=tuple(map(_said, rows)),
    )


def _said(row: Mapping[str, Any]) -> str:
    """A trial in words."""
    own = [
        f"{name.removeprefix(SETTING)}={short(value)}"
        for name, value in row.items()
        if name.startswith(SETTING) and value is not None
    ]
    return f"trial {row['trial']}: score {number(row[SCORE])}, {', '.join(own)}"


def _pairs_of_settings(
    trials: Trials, method: str, shares: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    numeric = [name for name in trials.varied(method) if trials.scales[name] != "choice"]
    ranked = sorted(numeric, key=lambda name: -shares.get(name, 0.0))
    yield from list(combinations(ranked[:MOST_CONTOURS], 2))[:MOST_CONTOURS]


def _contour(trials: Trials, method: str, x: str, y: str) -> Plot | None:
    rows = trials.of(method, x, y)
    across, up = (Axis(_setting(name), trials.scales[name]) for name in (x, y))
    surface = _surface(trials, rows, x, y, (across, up))
    if surface is None:
        return None
    dots = _dots(trials, rows, x, y)
    title = f"{method}: {across.title}, {up.title}"
    return Plot(title, method, across, up, (dots,), surface)


def _surface(
    trials: Trials, rows: Sequence[Mapping[str, Any]], x: str, y: str, axes: Sequence[Axis]
) -> Surface | None:
    """Scores on a grid, by triangles between the trials; None if these are on one line."""
    from scipy.interpolate import LinearNDInterpolator
    from scipy.spatial import QhullError

    along = [
        np.array([math.log(row[name]) if axis.scale == "log" else row[name] for row in rows])
        for name, axis in zip((x, y), axes, strict=True)
    ]
    if len({*zip(*along, strict=True)}) < 4:
        return None
    spread = [(own - own.min()) / (np.ptp(own) or 1.0) for own in along]
    scores = [trials.shown(SCORE, row[SCORE]) for row in rows]
    try:
        between = LinearNDInterpolator(np.stack(spread, -1), scores)
    except QhullError:
        return None
    sides = np.linspace(0, 1, CELLS)
    z = between(*np.meshgrid(sides, sides))
    drawn = [own.min() + sides * np.ptp(own) for own in along]
    ends = [np.exp(d) if a.scale == "log" else d for d, a in zip(drawn, axes, strict=True)]
    return Surface(tuple(ends[0]), tuple(ends[1]), tuple(map(tuple, z)))


def _shares(
    trials: Trials, own: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, float]:
    """Optuna's fANOVA of the scores; what a trial lacks of a setting is the first value."""
    with quiet() as optuna:
        study = optuna.create_study(direction="maximize")
        spaces = {name: _distribution(optuna, trials.scales[name], own, name) for name in names}
        for row in own:
            study.add_trial(
                optuna.trial.create_trial(
                    params={name: row[name] for name in names},
                    distributions=spaces,
                    value=trials.shown(SCORE, row[SCORE]),
                )
            )
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()}


def _distribution(optuna: Any, scale: Scale, own: Sequence[Mapping[str, Any]], name: str) -> Any:
    values = [row[name] for row in own]
    if scale == "choice":
        return optuna.distributions.CategoricalDistribution(list(dict.fromkeys(values)))
    return optuna.distributions.FloatDistribution(min(values), max(values), log=scale == "log")


def _setting(name: str) -> str:
    return name.removeprefix(SETTING)


def _goal(name: str) -> str:
    return name.removeprefix(GOAL).partition("/")[2]
