"""Figures 1, 5, 6 and 7: the non-convex toy. One part, which all four share, holds the runs."""

from collections.abc import Callable, Sequence

import numpy as np
import polars

from trimol.paper._draw_fig1 import Panel, fronts, trajectories
from trimol.paper._drawing import files
from trimol.paper._studies import Context, get
from trimol.paper._synthetic.toy_runs import ARMS, GAMMAS, STEPS, ToyTables, label, toy
from trimol.paper.tasks.toy import STARTS, Toy
from trimol.runs.study import Row, Study, row

SEEDS, QUICK_SEEDS, QUICK_STEPS = 10, 2, 4000
_METRICS = ("R_opt", "R_pop", "R_gen", "E_ca", "from_front", "from_mean")
# The arms of Figures 1 and 5, and those of 6 and 7.
_METHODS = (("mgda", None), ("static", None), ("modo", 1e-4))
_SWEEP = tuple(("modo", gamma) for gamma in GAMMAS)
_TITLES = {"mgda": "MGDA", "static": "Static", "modo": "MoDo"}


def fig1(context: Context) -> Study:
    """Objectives, and trajectories of three methods."""
    return _study(context, "fig1", _METHODS, lambda *given: trajectories(*given, surfaces=True))


def fig5(context: Context) -> Study:
    """The same runs in objective space."""
    return _study(context, "fig5", _METHODS, fronts)


def fig6(context: Context) -> Study:
    """Trajectories of MoDo for four γ."""
    return _study(context, "fig6", _SWEEP, lambda *given: trajectories(*given, surfaces=False))


def fig7(context: Context) -> Study:
    """These in objective space."""
    return _study(context, "fig7", _SWEEP, fronts)


def tables(context: Context) -> ToyTables:
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
    found = tables(context)
    panels = [
        Panel(_title(method, gamma), _arm(found.trajectories, method, gamma))
        for method, gamma in arms
    ]
    draw(context.folder, name, Toy(), panels)
    keys = [label(method, gamma) for method, gamma in arms]
    chosen = [arm for arm in ARMS if label(arm.method, arm.hyperparameters.get("gamma")) in keys]
    return Study(
        name,
        get(name).title,
        rows=_rows(found.ends, [(a.method, a.hyperparameters.get("gamma")) for a in chosen]),
        notes=_notes(found, arms),
        tables={"trajectories": found.trajectories, "ends": found.ends},
        figures=files(name),
    )


def _title(method: str, gamma: float | None) -> str:
    return _TITLES[method] if gamma is None else rf"{_TITLES[method]}, $\gamma = {_power(gamma)}$"


def _power(gamma: float) -> str:
    if gamma == 0:
        return "0"
    return rf"10^{{{round(polars.Series([gamma]).log10()[0])}}}"


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


def _notes(found: ToyTables, arms: Sequence[tuple[str, float | None]]) -> list[str]:
    ends = found.ends
    seeds = ends["seed"].n_unique()
    steps = int(ends["step"].to_numpy().max())
    notes = [
        f"Data: {found.source}. {seeds} seeds, T = {steps}; the figure shows seed 0, which starts "
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
    return notes
