"""Figure 4: the three errors of MoDo on MNIST over T, α and γ, raw, with both readings of E_ca.

Each sweep varies one of the three and keeps the paper's defaults of the others. T is swept by
measuring the same ten runs on the way: to 30 000, or with ``--full`` to the paper's 100 000. That
takes hours and may be interrupted at any time: the study without ``--full`` then shows how far it
came, and ``--full`` goes on. The paper's curves are smoothed by a window; these are not.
Drawn: three sweeps across, the errors above, the conflict below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars

from trimol.paper import _printed_mnist as paper
from trimol.paper import table3
from trimol.paper._drawing import COLOURS, NAMES, figure, files
from trimol.paper._studies import Context, get
from trimol.runs import study as results
from trimol.runs._over_seeds import begun, seconds, table_of
from trimol.runs.comparison import DEFINITION, UNBIASED
from trimol.runs.config import RunConfig
from trimol.runs.study import Row, Study

STEPS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000)
FURTHER = (50_000, 100_000)
METRICS = ("R_opt", "R_pop", "R_gen", "E_ca", DEFINITION, UNBIASED)
BARS = 0.5  # standard deviations, as in the paper
_SWEEPS = {
    "T": ("$T$", "iterations"),
    "alpha": (r"$\alpha$", "step size of $x$"),
    "gamma": (r"$\gamma$", "step size of λ"),
}
_READINGS = {
    "E_ca": "mean over seeds of the squares",
    DEFINITION: "definition: square of the mean",
    UNBIASED: "definition, without its bias",
}


@dataclass(frozen=True)
class Point:
    """One place of a sweep.

    Attributes:
        sweep: What is varied: ``"T"``, ``"alpha"`` or ``"gamma"``.
        value: To what.
        config: What is run for it.
        step: After how many of its steps it is looked at.
    """

    sweep: str
    value: float
    config: RunConfig
    step: int


def fig4(context: Context) -> Study:
    """Run the study."""
    runs = context.pick(paper.paper()["fig4"]["runs"], 2)
    points, so_far = _interrupted(runs, context) or (sweeps(context), {})
    needed = {p.config.key: p.config for p in points if p.config.key not in so_far}
    tables = table3.measured(needed, runs, context)
    table = tidy(points, {**tables, **so_far})
    return Study(
        name="fig4",
        title=get("fig4").title,
        rows=rows(points, table),
        notes=[*_notes(tables), *_unfinished(points, so_far)],
        tables={"points": table},
        figures=draw(table, context.folder),
    )


def sweeps(context: Context) -> list[Point]:
    """All that is to be run: the paper's defaults, one number varied."""
    stated = paper.paper()["fig4"]
    last = 100 if context.quick else stated["steps"]
    grid = stated["grid"][::5] if context.quick else stated["grid"]
    longest = FURTHER[-1] if context.full else STEPS[-1]
    on_the_way = [t for t in (*STEPS, *FURTHER) if t <= (last if context.quick else longest)]

    def run(
        alpha: float = stated["alpha"],
        gamma: float = stated["gamma"],
        steps: int = last,
        **others: Any,
    ) -> RunConfig:
        return table3.setting(stated["method"], alpha, {"gamma": gamma}, steps, **others)

    long = run(steps=on_the_way[-1], measure_at=tuple(on_the_way))
    return [
        *(Point("T", step, long, step) for step in on_the_way),
        *(Point("alpha", value, run(alpha=value), last) for value in grid),
        *(Point("gamma", value, run(gamma=value), last) for value in grid),
    ]


def _interrupted(
    runs: int, context: Context
) -> tuple[list[Point], dict[str, polars.DataFrame]] | None:
    """What ``--full`` has measured over T before it was interrupted, and the points with it."""
    if context.full or context.quick:
        return None
    points = sweeps(replace(context, full=True))
    long = points[0].config
    found = begun(long, runs, context.parts)
    if not found:
        return None
    table = table_of(found)
    there = [p for p in points if p.sweep != "T" or p.step in set(table["step"])]
    return there, {long.key: table}


def tidy(points: Sequence[Point], tables: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """One row a place and seed: ``sweep``, ``value``, ``seed`` and what was measured."""
    parts = []
    for point in points:
        table = tables[point.config.key].filter(polars.col("step") == point.step)
        named = [name for name in ("seed", *METRICS) if name in table.columns]
        parts.append(
            table.select(
                polars.lit(point.sweep).alias("sweep"),
                polars.lit(float(point.value)).alias("value"),
                *named,
            ).with_columns(polars.col("R_gen").abs())
        )
    return polars.concat(parts)


def rows(points: Sequence[Point], table: polars.DataFrame) -> list[Row]:
    """Mean and spread over seeds at each place."""
    listed = []
    for point in points:
        at = table.filter(
            (polars.col("sweep") == point.sweep) & (polars.col("value") == point.value)
        )
        how = {
            "sweep": point.sweep,
            "alpha": point.config.lr,
            **point.config.hyperparameters,
            "steps": point.step,
        }
        for metric in METRICS:
            if metric in at.columns:
                values = at[metric].to_list()
                together = metric in (DEFINITION, UNBIASED)  # one number of all seeds
                row = results.row(
                    point.config.method, metric, values[:1] if together else values, **how
                )
                listed.append({**row, "n": len(values)})
    return listed


def _unfinished(points: Sequence[Point], so_far: Mapping[str, polars.DataFrame]) -> list[str]:
    """How far the run over T has come, where it was interrupted."""
    reached = max((point.step for point in points if point.config.key in so_far), default=None)
    if reached in (None, FURTHER[-1]):
        return []
    return [
        f"Over T, what a run to {FURTHER[-1]} had measured by then, to T = {reached}. "
        "Its time is not in the seconds above; `trimol reproduce fig4 --full` goes on with it."
    ]


def _notes(tables: Mapping[str, polars.DataFrame]) -> list[str]:
    total = sum(sum(seconds(table)) for table in tables.values())
    runs = sum(len(set(table["seed"])) for table in tables.values())
    return [
        "Bars are ± 0.5 standard deviations over seeds, as in the paper; nothing is smoothed. E_ca "
        "is shown by both readings: the mean over seeds of ‖∇F_S(λ − λ*)‖², which the paper's "
        "experiments average, and the definition, the square of the norm of the mean over seeds "
        "(which few seeds overstate; the dotted line is free of that bias, and missing where its "
        "estimate is below zero, where the truth cannot be told from zero).",
        f"{runs} runs in {len(tables)} settings; {total:.0f} s of wall clock if processes "
        "that ran side by side are counted one after the other, measurements over all images "
        "included.",
    ]


@dataclass(frozen=True)
class Curve:
    """One line of the figure.

    Attributes:
        values: What the sweep's number was set to.
        means: The mean over seeds.
        bars: Half a standard deviation over seeds; 0 for what is one number of all seeds.
    """

    values: tuple[float, ...]
    means: tuple[float, ...]
    bars: tuple[float, ...]


def curve(table: polars.DataFrame, sweep: str, metric: str) -> Curve:
    """A metric over a sweep."""
    grouped = (
        table.filter((polars.col("sweep") == sweep) & polars.col(metric).is_not_null())
        .group_by("value")
        .agg(
            polars.col(metric).mean().alias("mean"),
            polars.col(metric).std().fill_null(0.0).alias("std"),
        )
        .sort("value")
    )
    bars = (BARS * grouped["std"]).to_list()
    return Curve(tuple(grouped["value"]), tuple(grouped["mean"]), tuple(bars))


def draw(table: polars.DataFrame, folder: Path) -> list[str]:
    """Draw all sweeps and return the files' names."""
    sweeps = [name for name in _SWEEPS if (table["sweep"] == name).any()]
    with figure(folder, "fig4", figsize=(3.3 * len(sweeps), 5.2)) as drawn:
        grid = drawn.subplots(2, len(sweeps), sharey="row", sharex="col", squeeze=False)
        for (above, below), sweep in zip(grid.T, sweeps, strict=True):
            _errors(above, table, sweep)
            _conflict(below, table, sweep)
        grid[0, 0].set_ylabel("distance from Pareto stationarity")
        grid[1, 0].set_ylabel(r"conflict $\|\nabla F_S(\lambda-\lambda^*)\|^2$")
        for row in grid:
            row[0].legend(fontsize=7)
    return files("fig4")


def _errors(axes: Any, table: polars.DataFrame, sweep: str) -> None:
    symbol, words = _SWEEPS[sweep]
    for metric in ("R_opt", "R_pop", "R_gen"):
        _line(axes, curve(table, sweep, metric), color=COLOURS[metric], label=NAMES[metric])
    axes.set(xscale="log", yscale="log", title=f"{symbol}: {words}")
    axes.grid(alpha=0.25)


def _conflict(axes: Any, table: polars.DataFrame, sweep: str) -> None:
    styles = ("-", "--", ":")
    for (metric, label), style in zip(_READINGS.items(), styles, strict=True):
        if metric in table.columns:
            _line(axes, curve(table, sweep, metric), color=COLOURS["E_ca"], label=label, ls=style)
    axes.set(xscale="log", yscale="log", xlabel=_SWEEPS[sweep][0])
    axes.grid(alpha=0.25)


def _line(axes: Any, line: Curve, **look: Any) -> None:
    """A line with bars; what is not above zero has no place on a logarithmic axis."""
    kept = [i for i, mean in enumerate(line.means) if mean > 0]
    values, means, bars = (
        [numbers[i] for i in kept] for numbers in (line.values, line.means, line.bars)
    )
    below = [min(bar, 0.9 * mean) for bar, mean in zip(bars, means, strict=True)]
    axes.errorbar(values, means, [below, bars], marker="o", ms=3, lw=1.3, capsize=2, **look)
