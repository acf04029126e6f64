"""Multi-task studies, drawn: metrics and ΔA by method; weights and errors over training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars

from trimol import methods as registry
from trimol.paper._drawing import NAMES, figure, files
from trimol.paper._multitask_words import WEIGHT
from trimol.report._style import Look, looks
from trimol.runs.statistics import finite_mean
from trimol.runs.tuning import ALONE, PAPERS_BUDGET

ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca")
MOST_ACROSS = 4
MANY = 4  # bands of more methods than this are drawn fainter
GREY = "#777777"

Key = tuple[str, str]  # method, metric


@dataclass(frozen=True)
class Bar:
    """One method's number with its interval.

    Attributes:
        method: The method's name.
        mean: The mean over seeds.
        half: Half the width of its 95 % interval; None for one seed.
        paper: What the paper prints; None where it prints nothing.
    """

    method: str
    mean: float
    half: float | None
    paper: float | None


@dataclass(frozen=True)
class Curve:
    """A number over training, one point a measurement.

    Attributes:
        at: How far, in epochs.
        mean: The mean over seeds.
        low: Lower end of its 95 % interval; the mean itself for one seed.
        high: Upper end.
    """

    at: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def bars(seeds: polars.DataFrame, metric: str, printed: Mapping[Key, float]) -> list[Bar]:
    """A metric of every method, in the order of the table.

    Args:
        seeds: One row a method, seed and metric.
        metric: Which metric.
        printed: The paper's numbers, by method and metric.
    """
    chosen = seeds.filter(polars.col("metric") == metric)
    found = []
    for (method,), group in chosen.group_by(["method"], maintain_order=True):
        mean = finite_mean(group["value"])
        found.append(Bar(str(method), mean.estimate, mean.half, printed.get((str(method), metric))))
    return found


def curve(curves: polars.DataFrame, method: str, column: str) -> Curve:
    """A recorded number of one method over training; R_gen without its sign.

    Args:
        curves: One row a method, seed and measurement.
        method: Which method.
        column: Which number.
    """
    size = polars.col(column).abs() if column == "R_gen" else polars.col(column)
    own = curves.filter((polars.col("method") == method) & polars.col(column).is_not_null())
    grouped = own.group_by("epoch").agg(size.alias("values")).sort("epoch")
    points = [finite_mean(values) for values in grouped["values"]]
    return Curve(
        tuple(grouped["epoch"].to_list()),
        tuple(point.estimate for point in points),
        tuple(point.band[0] for point in points),
        tuple(point.band[1] for point in points),
    )


def draw(
    name: str,
    seeds: polars.DataFrame,
    curves: polars.DataFrame,
    printed: Mapping[Key, float],
    folder: Path,
) -> list[str]:
    """Draw all figures of a study and return the files' names.

    Args:
        name: What the files' names begin with.
        seeds: One row a method, seed and metric, with its ``kind``: ``"task"`` or ``"overall"``.
        curves: One row a method, seed and measurement.
        printed: The paper's numbers, by method and metric.
        folder: Where to.
    """
    tasks, overall = (
        seeds.filter((polars.col("kind") == kind) & polars.col("value").is_finite())["metric"]
        .unique(maintain_order=True)
        .to_list()
        for kind in ("task", "overall")
    )
    style = looks_of(seeds["method"].to_list())
    weights = [column for column in curves.columns if column.startswith(WEIGHT)]
    errors = [column for column in ERRORS if column in curves.columns]
    done = []
    for what, metrics in (("tasks", tasks), ("drop", overall)):
        if metrics:
            _compared(
                folder, f"{name}-{what}", {m: bars(seeds, m, printed) for m in metrics}, style
            )
            done += files(f"{name}-{what}")
    for what, columns in (("weights", weights), ("errors", errors)):
        if columns:
            _over_training(folder, f"{name}-{what}", curves, columns, style)
            done += files(f"{name}-{what}")
    return done


def looks_of(labels: Sequence[str]) -> dict[str, Look]:
    """A look for every label: single-task learning is grey, a method is the same at any budget.

    Methods take their colours in the order they are listed in everywhere, so that those of the
    paper's main tables never share one.

    Args:
        labels: The methods' labels.

    Example:
        >>> found = looks_of(["alone", "modo", "static", "modo (paper's budget)"])
        >>> found["modo"].colour == found["modo (paper's budget)"].colour != found["static"].colour
        True
    """
    style = looks(name for name in registry.names() if name in labels)
    larger = {PAPERS_BUDGET.format(name): look for name, look in style.items()}
    return {ALONE: Look(GREY, "circle", "o"), **style, **larger}


def _compared(
    folder: Path, file: str, panels: Mapping[str, Sequence[Bar]], style: Mapping[str, Look]
) -> None:
    """One panel a metric, methods below each other."""
    methods = list(dict.fromkeys(bar.method for found in panels.values() for bar in found))
    down, across = _grid(len(panels))
    size = (2.5 * across + 0.8, (0.24 * len(methods) + 0.9) * down + 0.3)
    with figure(folder, file, figsize=size) as drawn:
        grid = drawn.subplots(down, across, sharey=True, squeeze=False)
        for axes, (metric, found) in zip(grid.flat, panels.items(), strict=False):
            _panel(axes, metric, found, methods, style)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        grid[0, 0].set_yticks(range(len(methods)), methods)
        grid[0, 0].set_ylim(len(methods) - 0.4, -0.6)  # the first on top
        if any(bar.paper is not None for found in panels.values() for bar in found):
            drawn.supxlabel("hollow: the paper's", fontsize=7, color=GREY, ha="right", x=0.99)


def _panel(
    axes: Any, metric: str, found: Sequence[Bar], methods: Sequence[str], style: Mapping[str, Look]
) -> None:
    for bar in found:
        look, place = style[bar.method], methods.index(bar.method)
        axes.errorbar(
            [bar.mean], [place], xerr=[bar.half or 0.0],
            color=look.colour, marker=look.marker, ms=5, capsize=3, lw=1.4,
        )  # fmt: skip
        if bar.paper is not None:
            axes.plot(
                [bar.paper], [place + 0.22], ls="none", marker="D", ms=4,
                markerfacecolor="none", markeredgecolor=GREY,
            )  # fmt: skip
    if metric.startswith("ΔA"):
        axes.axvline(0, color="#999999", lw=0.8, ls=":")
        axes.set_xlabel("%, lower is better", fontsize=8)
    axes.set_title(_wrapped(metric), fontsize=9)
    axes.grid(alpha=0.25, axis="x")
    axes.tick_params(axis="x", labelsize=7)
    axes.locator_params(axis="x", nbins=4)


def _over_training(
    folder: Path,
    file: str,
    curves: polars.DataFrame,
    columns: Sequence[str],
    style: Mapping[str, Look],
) -> None:
    """One panel a number, one line a method, with a band for its interval."""
    methods = curves["method"].unique(maintain_order=True).to_list()
    faint = 0.15 if len(methods) <= MANY else 0.06
    down, across = (2, 2) if len(columns) == 4 else _grid(len(columns))
    with figure(folder, file, figsize=(3.1 * across, 2.5 * down + 0.4)) as drawn:
        shared = all(column.startswith(WEIGHT) for column in columns)
        grid = drawn.subplots(down, across, squeeze=False, sharex=True, sharey=shared)
        for axes, column in zip(grid.flat, columns, strict=False):
            for method in methods:
                found = curve(curves, method, column)
                _line(axes, found, method, style[method], log=not shared, faint=faint)
            title = column.removeprefix(WEIGHT)
            axes.set_title(f"λ of {title}" if shared else NAMES[column])
            axes.grid(alpha=0.25)
            if not shared:
                axes.set_yscale("log")
        for axes in grid.flat[len(columns) :]:
            axes.remove()
        for axes in grid[-1]:
            axes.set_xlabel("epoch")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        wide = min(len(labels), MOST_ACROSS)
        drawn.legend(handles, labels, loc="outside lower center", ncols=wide, fontsize=7)


def _line(axes: Any, found: Curve, method: str, look: Look, *, log: bool, faint: float) -> None:
    """Mean and band; what is not above zero has no place on a logarithmic axis."""
    shown = [mean if mean > 0 or not log else math.nan for mean in found.mean]
    # On a logarithmic axis a band that reaches zero is cut a third below the mean.
    low = [max(low, mean / 3) if log else low for low, mean in zip(found.low, shown, strict=True)]
    every = max(1, len(found.at) // 6)
    axes.plot(
        found.at, shown, color=look.colour, marker=look.marker, ms=3.5, markevery=every,
        lw=1.3, label=method, ls="-" if method in registry.names() else "--",
    )  # fmt: skip
    axes.fill_between(found.at, low, found.high, color=look.colour, alpha=faint, lw=0)


def _grid(panels: int) -> tuple[int, int]:
    """Rows and columns: one row up to four panels, then as square as it gets.

    >>> _grid(3), _grid(9)
    ((1, 3), (3, 3))
    """
    across = panels if panels <= MOST_ACROSS else min(MOST_ACROSS, math.ceil(math.sqrt(panels)))
    return math.ceil(panels / across), across


def _wrapped(metric: str) -> str:
    """A long name on two lines, broken before its bracket."""
    return metric.replace(" (", "\n(") if len(metric) > 18 else metric
