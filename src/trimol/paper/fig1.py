"""Figures 1, 5, 6 and 7: the non-convex toy. One part, which all four share, holds the runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
import torch
from torch import Tensor

from trimol._extras import require
from trimol.paper._drawing import EMPIRICAL, POPULATION, figure, files
from trimol.paper._studies import Context, get
from trimol.paper._toy_runs import ARMS, GAMMAS, STEPS, ToyTables, label, toy
from trimol.paper.tasks.toy import STARTS, Toy, ToyAnswer
from trimol.runs.study import Row, Study, row

SEEDS, QUICK_SEEDS, QUICK_STEPS = 10, 2, 4000
_METRICS = ("R_opt", "R_pop", "R_gen", "E_ca", "from_front", "from_mean")
# The arms of Figures 1 and 5, and those of 6 and 7.
_METHODS = (("mgda", None), ("static", None), ("modo", 1e-4))
_SWEEP = tuple(("modo", gamma) for gamma in GAMMAS)
_TITLES = {"mgda": "MGDA", "static": "Static", "modo": "MoDo"}
_WINDOW, _GRID = 11.0, 241
# One colormap a start, each from dark (early) to light (late), as in the paper.
_MAPS = ("autumn", "plasma", "winter")


@dataclass(frozen=True)
class _Panel:
    """One arm to draw: what to write above, and its runs (start, step, x1, x2, objectives)."""

    title: str
    runs: polars.DataFrame


def fig1(context: Context) -> Study:
    """Objectives, and trajectories of three methods."""
    return _study(context, "fig1", _METHODS, lambda *given: _trajectories(*given, surfaces=True))


def fig5(context: Context) -> Study:
    """The same runs in objective space."""
    return _study(context, "fig5", _METHODS, _fronts)


def fig6(context: Context) -> Study:
    """Trajectories of MoDo for four γ."""
    return _study(context, "fig6", _SWEEP, lambda *given: _trajectories(*given, surfaces=False))


def fig7(context: Context) -> Study:
    """These in objective space."""
    return _study(context, "fig7", _SWEEP, _fronts)


def _tables(context: Context) -> ToyTables:
    """The runs behind all four figures, run or read."""
    return toy(
        context.parts,
        seeds=context.pick(SEEDS, QUICK_SEEDS),
        steps=QUICK_STEPS if context.quick else STEPS,
        watch=context.watch,
    )


def _study(
    context: Context,
    name: str,
    arms: Sequence[tuple[str, float | None]],
    draw: Callable[..., None],
) -> Study:
    runs = _tables(context)
    panels = [
        _Panel(_title(method, gamma), _arm(runs.trajectories, method, gamma))
        for method, gamma in arms
    ]
    draw(context.folder, name, Toy(), panels)
    keys = [label(method, gamma) for method, gamma in arms]
    chosen = [arm for arm in ARMS if label(arm.method, arm.hyperparameters.get("gamma")) in keys]
    return Study(
        name,
        get(name).title,
        rows=_rows(runs.ends, [(a.method, a.hyperparameters.get("gamma")) for a in chosen]),
        notes=_notes(runs, arms),
        tables={"trajectories": runs.trajectories, "ends": runs.ends},
        figures=files(name),
    )


def _title(method: str, gamma: float | None) -> str:
    return _TITLES[method] if gamma is None else rf"{_TITLES[method]}, $\gamma = {_power(gamma)}$"


def _power(gamma: float) -> str:
    return rf"10^{{{round(np.log10(gamma))}}}" if gamma else "0"


def _arm(table: polars.DataFrame, method: str, gamma: float | None) -> polars.DataFrame:
    return table.filter(
        polars.col("method") == method, polars.col("gamma").eq_missing(polars.lit(gamma))
    )


def _rows(ends: polars.DataFrame, arms: Sequence[tuple[str, float | None]]) -> list[Row]:
    """Each number of each arm and start, over seeds; and the fraction of runs that arrived."""
    rows = []
    for method, gamma in arms:
        for start in range(len(STARTS)):
            runs = _arm(ends, method, gamma).filter(polars.col("start") == start)
            setting = {"gamma": gamma, "start": start}
            for metric in _METRICS:
                values = runs[metric].abs() if metric == "R_gen" else runs[metric]
                rows.append(row(method, metric, values.to_list(), **setting))
            arrived = runs["arrival"].is_not_null().cast(polars.Float64)
            rows.append(row(method, "arrived", arrived.to_list(), **setting))
    return rows


def _notes(tables: ToyTables, arms: Sequence[tuple[str, float | None]]) -> list[str]:
    ends = tables.ends
    seeds = ends["seed"].n_unique()
    steps = int(ends["step"].to_numpy().max())
    notes = [
        f"Data: {tables.source}. {seeds} seeds, T = {steps}; the figure shows seed 0, which starts "
        "exactly at the paper's points (the others start within 0.01 of them, as the toy has no "
        "noise above x2 = 0). Crosses mark where a run ended. Adam with α_t = 0.005/(t+1)^0.05."
    ]
    for method, gamma in arms:
        parts = []
        for start, point in enumerate(STARTS):
            runs = _arm(ends, method, gamma).filter(polars.col("start") == start)
            arrived = runs["arrival"].drop_nulls()
            when = f", at step {np.median(arrived):.0f} (median)" if len(arrived) else ""
            parts.append(f"from {point} {len(arrived)} of {len(runs)}{when}")
        notes.append(f"{label(method, gamma)} reached the empirical front: {'; '.join(parts)}.")
    past = [f"{label(m, g)} from {_past_the_valley(_arm(ends, m, g))}" for m, g in arms]
    return [f"Past the valley (x2 < 0) at the end: {'; '.join(past)} starts.", *notes]


def _past_the_valley(ends: polars.DataFrame) -> str:
    """How many starts led below the valley x2 = 0 with every seed, of how many."""
    below = ends.group_by("start").agg((polars.col("x2") < 0).all())["x2"]
    return f"{below.sum()} of {len(below)}"


# --- drawing --------------------------------------------------------------------------------------


def _trajectories(
    folder: Path, name: str, task: Toy, panels: Sequence[_Panel], *, surfaces: bool
) -> None:
    """Runs in x-space on the contours of the mean objective; the objectives before, if asked."""
    columns = len(panels) + (2 if surfaces else 0)
    with figure(folder, name, figsize=(2.75 * columns, 3.1)) as drawn:
        if surfaces:
            for objective in (0, 1):
                axes = drawn.add_subplot(1, columns, objective + 1, projection="3d")
                _surface(axes, task, objective)
        for i, panel in enumerate(panels):
            axes = drawn.add_subplot(1, columns, columns - len(panels) + i + 1)
            points = _contours(axes, task, panel)
        bar = drawn.colorbar(points, ax=axes, shrink=0.8, ticks=[0, 1], pad=0.02)
        bar.ax.set_yticklabels(["start", "end"])


def _fronts(folder: Path, name: str, task: Toy, panels: Sequence[_Panel]) -> None:
    """Runs in objective space: empirical above, population below, with both fronts."""
    (data,) = task.data().train
    kinds = (
        ("", data.mean(0), EMPIRICAL, "$f_{S,1}$", "$f_{S,2}$"),
        ("population_", torch.zeros(2, dtype=torch.float64), POPULATION, "$f_1$", "$f_2$"),
    )
    with figure(folder, name, figsize=(2.75 * len(panels), 5.2)) as drawn:
        grid = drawn.subplots(2, len(panels), sharex="row", sharey="row", squeeze=False)
        for row, (prefix, mean, colour, first, second) in zip(grid, kinds, strict=True):
            front = task.answer(mean).front
            for axes, panel in zip(row, panels, strict=True):
                axes.plot(*front.T.numpy(), color=colour, lw=6, alpha=0.45, solid_capstyle="round")
                _objective_runs(axes, panel, prefix)
                axes.set_xlabel(first)
                if not prefix:
                    axes.set_title(panel.title)
            row[0].set_ylabel(second)


def _objective_runs(axes: Any, panel: _Panel, prefix: str) -> None:
    for start, runs in _by_start(panel):
        first, second = runs[f"{prefix}f1"].to_numpy(), runs[f"{prefix}f2"].to_numpy()
        axes.scatter(
            first, second, c=_shade(start, len(first)), s=3, lw=0, zorder=3, rasterized=True
        )
        axes.scatter(first[0], second[0], color="black", s=28, zorder=4)
        axes.scatter(
            first[-1], second[-1], marker="X", s=46, zorder=5, lw=0.7,
            edgecolor="black", color=_shade(start, 2)[0],
        )  # fmt: skip


def _shade(start: int, count: int) -> Any:
    """From dark to light in the start's own colormap."""
    colormaps = require("matplotlib", extra="report", purpose="drawing figures").colormaps
    return colormaps[_MAPS[start]](np.linspace(0.05, 0.95, count))


def _by_start(panel: _Panel) -> list[tuple[int, polars.DataFrame]]:
    runs = panel.runs.sort("step")
    return [(start, runs.filter(polars.col("start") == start)) for start in range(len(STARTS))]


def _contours(axes: Any, task: Toy, panel: _Panel) -> Any:
    (data,) = task.data().train
    mean, population = data.mean(0), torch.zeros(2, dtype=torch.float64)
    axis, values = _values(task, mean)
    levels = np.linspace(-20, 8, 13)
    axes.contourf(axis, axis, values.mean(-1), levels, cmap="viridis", alpha=0.25, extend="both")
    for at, style, width in ((mean, "solid", 0.7), (population, "dotted", 0.8)):
        average = _values(task, at)[1].mean(-1)
        axes.contour(
            axis, axis, average, levels, cmap="viridis", linestyles=style, linewidths=width
        )
    for at, colour, star in ((mean, EMPIRICAL, "black"), (population, POPULATION, POPULATION)):
        _answer(axes, task.answer(at), colour, star)
    for _, runs in _by_start(panel):
        x1, x2 = runs["x1"].to_numpy(), runs["x2"].to_numpy()
        time = np.linspace(0, 1, len(x1))
        points = axes.scatter(x1, x2, c=time, cmap="autumn", s=3, lw=0, zorder=4, rasterized=True)
        axes.scatter(x1[0], x2[0], color="black", s=30, zorder=5)
        axes.scatter(
            x1[-1], x2[-1], marker="X", s=46, zorder=6, lw=0.7, edgecolor="black", color="yellow"
        )
    axes.set(xlim=(-_WINDOW, _WINDOW), ylim=(-_WINDOW, _WINDOW), aspect="equal", title=panel.title)
    axes.set(xlabel="$x_1$", ylabel="$x_2$", xticks=(-10, 0, 10), yticks=(-10, 0, 10))
    return points


def _answer(axes: Any, answer: ToyAnswer, colour: str, star: str) -> None:
    axes.plot(*answer.pareto.T.numpy(), color=colour, lw=6, alpha=0.6, solid_capstyle="round")
    axes.scatter(*answer.of_mean.numpy(), marker="*", color=star, s=70, zorder=3)


def _surface(axes: Any, task: Toy, objective: int) -> None:
    (data,) = task.data().train
    axis, values = _values(task, data.mean(0), points=111)
    first, second = np.meshgrid(axis, axis)
    height = np.clip(values[..., objective], -30, 10)
    axes.plot_surface(first, second, height, cmap="viridis", lw=0, rcount=111, ccount=111,
                      rasterized=True)  # fmt: skip
    axes.set(xticks=(-10, 0, 10), yticks=(-10, 0, 10), zticks=(-30, -10, 10))
    axes.set(xlabel="$x_1$", ylabel="$x_2$", title=f"Objective {objective + 1}")
    axes.view_init(25)
    axes.set_box_aspect(None, zoom=0.85)


def _values(task: Toy, mean: Tensor, points: int = _GRID) -> tuple[Any, Any]:
    """The objectives on a grid over the window: rows are x2, columns x1."""
    axis = torch.linspace(-_WINDOW, _WINDOW, points, dtype=torch.float64)
    first, second = torch.meshgrid(axis, axis, indexing="xy")
    return axis.numpy(), task.values(torch.stack([first, second], -1), mean).numpy()
