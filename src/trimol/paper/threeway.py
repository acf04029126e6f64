"""The three-way picture: one curve of (R_opt, |R_gen|, E_ca) as γ goes through the decades.

The paper has no such figure. MoDo with γ = 0 is static weighting, a large γ comes close to MGDA:
between them lies the trade-off. All methods run with the same α and see the same samples, so that
the weights are all that differs. `trimol.theory.plan` says which γ it would take.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars

from trimol._extras import require
from trimol.paper import table3
from trimol.paper._drawing import COLOURS, NAMES, figure, files
from trimol.paper._studies import Context, get
from trimol.report._numbers import number
from trimol.runs.comparison import DEFINITION, UNBIASED
from trimol.runs.config import RunConfig, task_of
from trimol.runs.statistics import interval
from trimol.runs.study import Row, Study
from trimol.theory import Plan, plan

GAMMAS = (1e-4, 1e-3, 1e-2, 5e-2, 1e-1, 5e-1, 1.0, 10.0, 100.0)
STEPS, RUNS = 1000, 10
# One α for all methods of a task: MNIST's is the default of the paper's Figure 4.
LRS = {"mnist": 0.1, "digits": 1.0}
OPTIONS: dict[str, dict[str, Any]] = {"mnist": table3.OPTIONS, "digits": {"seed": None}}
ENDS = ("static", "mgda")
AXES = ("R_opt", "R_gen", "E_ca")
_MARKERS = {"static": ("s", "static"), "mgda": ("^", "MGDA")}


@dataclass(frozen=True)
class Sweep:
    """γ through the decades on one task.

    Attributes:
        task: The task's name.
        plan: What the theory recommends for its number of samples and steps.
        modo: The settings by γ, in rising order; the plan's own γ among them.
        ends: Static weighting and MGDA.
    """

    task: str
    plan: Plan
    modo: Mapping[float, RunConfig]
    ends: Mapping[str, RunConfig]

    @property
    def settings(self) -> list[RunConfig]:
        """All that is to be run."""
        return [*self.modo.values(), *self.ends.values()]


def threeway(context: Context) -> Study:
    """Run the study."""
    sweeps = [sweep(task, context) for task in LRS]
    settings = {config.key: config for one in sweeps for config in one.settings}
    tables = table3.measured(settings, context.pick(RUNS, 2), context)
    table = polars.concat([tidy(one, tables) for one in sweeps], how="diagonal")
    plans = {one.task: one.plan for one in sweeps}
    return Study(
        name="threeway",
        title=get("threeway").title,
        rows=[row for key, config in settings.items() for row in _rows(config, tables[key])],
        notes=_notes(table, plans),
        tables={"curve": table},
        figures=draw(table, {task: one.gamma for task, one in plans.items()}, context.folder),
    )


def sweep(task: str, context: Context) -> Sweep:
    """What is to be run on a task."""
    steps = 100 if context.quick else STEPS
    advice = plan(len(task_of(task, OPTIONS[task]).data().train[0]), "balance", T=steps)

    def run(method: str, **hyperparameters: float) -> RunConfig:
        options = {"task": task, "task_options": OPTIONS[task]}
        return table3.setting(method, LRS[task], hyperparameters, steps, **options)

    chosen = sorted({*(GAMMAS[::3] if context.quick else GAMMAS), float(f"{advice.gamma:.2g}")})
    return Sweep(
        task=task,
        plan=advice,
        modo={gamma: run("modo", gamma=gamma) for gamma in chosen},
        ends={name: run(name) for name in ENDS},
    )


def tidy(one: Sweep, tables: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """One row a setting and seed: ``task``, ``method``, ``gamma`` and what was measured."""
    named: list[tuple[str, float | None, RunConfig]]
    named = [("modo", gamma, config) for gamma, config in one.modo.items()]
    named += [(name, None, config) for name, config in one.ends.items()]
    errors = ("R_opt", "R_pop", "R_gen", "E_ca", DEFINITION, UNBIASED)
    parts = []
    for method, gamma, config in named:
        table = tables[config.key]
        parts.append(
            table.select(
                polars.lit(one.task).alias("task"),
                polars.lit(method).alias("method"),
                polars.lit(gamma, dtype=polars.Float64).alias("gamma"),
                "seed",
                *(name for name in errors if name in table.columns),
            ).with_columns(polars.col("R_gen").abs())
        )
    return polars.concat(parts, how="diagonal")


def _rows(config: RunConfig, table: polars.DataFrame) -> list[Row]:
    return [{**row, "task": config.task} for row in table3.rows_of(config, table)]


def _notes(table: polars.DataFrame, plans: Mapping[str, Plan]) -> list[str]:
    notes = [
        "Every point is the mean of the seeds, bars are 95 % confidence intervals. The step size "
        "of x is the same for all: what differs is how the losses are weighed."
    ]
    for task, advice in plans.items():
        means = (
            table.filter((polars.col("task") == task) & (polars.col("method") == "modo"))
            .group_by("gamma")
            .agg(polars.col("R_opt", "R_gen", "E_ca").mean())
            .sort("gamma")
        )
        first, last = means.row(0, named=True), means.row(-1, named=True)
        changes = ", ".join(
            f"{name} {_times(last[metric], first[metric])}"
            for metric, name in (("R_opt", "R_opt"), ("R_gen", "|R_gen|"), ("E_ca", "E_ca"))
        )
        notes.append(
            f"{task}: from γ = {first['gamma']:g} to γ = {last['gamma']:g}, {changes}. "
            f"`theory.plan` (balance, n = {advice.n}, T = {advice.T}) recommends γ = "
            f"{advice.gamma:.2g}, with α = {advice.alpha:.2g}: from rates alone, which know no "
            "constants."
        )
    return notes


def _times(after: float, before: float) -> str:
    """How a number changed, in words.

    >>> _times(6.0, 2.0), _times(1.0, 100.0)
    ('rises 3 times', 'falls 100 times')
    """
    if before <= 0 or after <= 0:
        return f"goes from {before:.2g} to {after:.2g}"
    ratio = after / before
    return (
        f"rises {number(ratio, 2)} times" if ratio >= 1 else f"falls {number(1 / ratio, 2)} times"
    )


@dataclass(frozen=True)
class Place:
    """One method and γ: where it is in the three errors.

    Attributes:
        method: The method's name.
        gamma: γ; None for a method without.
        mean: The mean over seeds of R_opt, |R_gen| and E_ca.
        half: Half the widths of their 95 % confidence intervals.
    """

    method: str
    gamma: float | None
    mean: tuple[float, ...]
    half: tuple[float, ...]


def places(table: polars.DataFrame, task: str) -> list[Place]:
    """All places of a task: those with a γ in rising order, then the others."""
    chosen = table.filter(polars.col("task") == task)
    listed = []
    for (method, gamma), group in chosen.group_by(["method", "gamma"], maintain_order=True):
        values = [group[metric].to_list() for metric in AXES]
        means = tuple(sum(each) / len(each) for each in values)
        halves = tuple(interval(each) or 0.0 for each in values)
        listed.append(Place(str(method), gamma, means, halves))
    return sorted(listed, key=lambda place: (place.gamma is None, place.gamma or 0.0))


def draw(table: polars.DataFrame, planned: Mapping[str, float], folder: Path) -> list[str]:
    """Draw every task of the table and return the files' names."""
    with figure(folder, "threeway", figsize=(9.2, 3.6 * len(planned))) as drawn:
        grid = drawn.subplots(len(planned), 2, squeeze=False)
        for (left, right), (task, gamma) in zip(grid, planned.items(), strict=True):
            shown = places(table, task)
            _over_gamma(left, shown, task, gamma)
            dots = _plane(right, shown, task, gamma)
            drawn.colorbar(dots, ax=right, label=NAMES["R_gen"])
        grid[0, 0].legend(fontsize=7, loc="best")
        grid[0, 1].legend(fontsize=7, loc="best")
    return files("threeway")


def _over_gamma(axes: Any, listed: list[Place], task: str, planned: float) -> None:
    """The three errors over γ, between static weighting and MGDA."""
    modo = [place for place in listed if place.gamma is not None]
    gammas = [place.gamma for place in modo if place.gamma is not None]
    ends = {"static": gammas[0] / 10, "mgda": gammas[-1] * 10}
    for axis, metric in enumerate(AXES):
        look = {"color": COLOURS[metric], "capsize": 2, "ms": 4}
        axes.errorbar(gammas, *_bars(modo, axis), marker="o", lw=1.4, label=NAMES[metric], **look)
        for place in listed:
            if place.gamma is None:
                marker, _ = _MARKERS[place.method]
                axes.errorbar([ends[place.method]], *_bars([place], axis), marker=marker, **look)
    axes.axvline(planned, color="#777777", ls="--", lw=1)
    axes.annotate(
        "planned", (planned, 1), xycoords=("data", "axes fraction"), rotation=90,
        va="top", ha="right", fontsize=7, color="#777777",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel=r"$\gamma$", title=f"{task}: the three errors")
    ticks = {ends["static"]: "static", **{g: _power(g) for g in gammas if _power(g)}}
    ticks[ends["mgda"]] = "MGDA"
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.grid(alpha=0.25)


def _plane(axes: Any, listed: list[Place], task: str, planned: float) -> Any:
    """The curve: optimization across, conflict up, generalization as colour."""
    modo = [place for place in listed if place.gamma is not None]
    colours = require("matplotlib.colors", extra="report", purpose="drawing figures")
    scale = colours.Normalize(min(p.mean[1] for p in listed), max(p.mean[1] for p in listed))
    shown = {"cmap": "viridis", "norm": scale, "zorder": 3, "edgecolors": "#333333"}
    least = min(place.mean[2] for place in listed if place.mean[2] > 0)
    axes.plot([p.mean[0] for p in modo], [p.mean[2] for p in modo], color="#999999", lw=1)
    for place in listed:
        # Conflict of exactly zero has no place on a logarithmic axis: it is put at its lower edge.
        x, y = place.mean[0], max(place.mean[2], least / 3)
        marker, label = _MARKERS.get(place.method, ("o", None))
        dots = axes.scatter([x], [y], c=[place.mean[1]], s=46, marker=marker, label=label, **shown)
        if place.gamma is not None:
            axes.annotate(
                f"{place.gamma:g}", (x, y), textcoords="offset points", xytext=(5, 4), fontsize=6
            )
    nearest = min(modo, key=lambda place: abs((place.gamma or 0) / planned - 1))
    axes.scatter(
        [nearest.mean[0]], [nearest.mean[2]], s=150, facecolors="none", edgecolors="#D55E00",
        linewidths=1.5, label=rf"planned $\gamma$ = {planned:.2g}", zorder=4,
    )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlabel=NAMES["R_opt"], ylabel=NAMES["E_ca"],
        title=rf"{task}: MoDo's curve, labelled by $\gamma$",
    )  # fmt: skip
    axes.grid(alpha=0.25)
    return dots


def _bars(listed: list[Place], axis: int) -> tuple[list[float], list[list[float]]]:
    means = [place.mean[axis] for place in listed]
    halves = [place.half[axis] for place in listed]
    below = [min(half, 0.9 * mean) for half, mean in zip(halves, means, strict=True)]
    return means, [below, halves]


def _power(gamma: float) -> str:
    """A power of ten as it is printed; nothing for what lies between.

    >>> _power(0.01), _power(0.03)
    ('$10^{-2}$', '')
    """
    mantissa, exponent = f"{gamma:e}".split("e")
    return f"$10^{{{int(exponent)}}}$" if float(mantissa) == 1 else ""
