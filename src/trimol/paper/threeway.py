"""The three-way picture: one curve of (R_opt, |R_gen|, E_ca) as γ goes through the decades.

The paper has no such figure. MoDo with γ = 0 is static weighting, a large γ comes close to MGDA:
between them lies the trade-off. All methods run with the same α and see the same samples, so that
the weights are all that differs. `trimol.theory.plan` says which γ it would take.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars

from trimol.paper import _draw_threeway as threeway_draw
from trimol.paper._studies import Context, get
from trimol.paper.table3 import rows_of
from trimol.report._numbers import number
from trimol.runs import _seeds as seeds
from trimol.runs._seeds import Setting
from trimol.runs.study import Row, Study
from trimol.tasks import load
from trimol.theory import Plan, plan

GAMMAS = (1e-4, 1e-3, 1e-2, 5e-2, 1e-1, 5e-1, 1.0, 10.0, 100.0)
STEPS, RUNS = 1000, 10
# One α for all methods of a task: MNIST's is the default of the paper's Figure 4.
LRS = {"mnist": 0.1, "digits": 1.0}
OPTIONS: dict[str, dict[str, Any]] = {"mnist": {}, "digits": {}}
ENDS = ("static", "mgda")


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
    modo: Mapping[float, Setting]
    ends: Mapping[str, Setting]

    @property
    def settings(self) -> list[Setting]:
        """All that is to be run."""
        return [*self.modo.values(), *self.ends.values()]


def threeway(context: Context) -> Study:
    """Run the study."""
    found = [sweep(task, context) for task in LRS]
    settings = [setting for one in found for setting in one.settings]
    tables = seeds.run_all(settings, context.parts, context.watch)
    by_key = {setting.key: table for setting, table in zip(settings, tables, strict=True)}
    table = polars.concat([tidy(one, by_key) for one in found], how="diagonal")
    plans = {one.task: one.plan for one in found}
    return Study(
        name="threeway",
        title=get("threeway").title,
        rows=[row for setting in settings for row in _rows(setting, by_key[setting.key])],
        notes=_notes(table, plans),
        tables={"curve": table},
        figures=threeway_draw.draw(table, {t: p.gamma for t, p in plans.items()}, context.folder),
    )


def sweep(task: str, context: Context) -> Sweep:
    """What is to be run on a task."""
    steps = 100 if context.quick else STEPS
    advice = plan(len(load(task, OPTIONS[task]).data().train[0]), "balance", T=steps)
    base = Setting(
        task=task,
        method="static",
        lr=LRS[task],
        options=OPTIONS[task],
        steps=(steps,),
        seeds=tuple(range(context.pick(RUNS, 2))),
    )
    chosen = sorted({*(GAMMAS[::3] if context.quick else GAMMAS), float(f"{advice.gamma:.2g}")})
    return Sweep(
        task=task,
        plan=advice,
        modo={
            gamma: replace(base, method="modo", hyperparameters={"gamma": gamma})
            for gamma in chosen
        },
        ends={name: replace(base, method=name) for name in ENDS},
    )


def tidy(one: Sweep, tables: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """One row a setting and seed: ``task``, ``method``, ``gamma`` and what was measured."""
    named: list[tuple[str, float | None, Setting]]
    named = [("modo", gamma, setting) for gamma, setting in one.modo.items()]
    named += [(name, None, setting) for name, setting in one.ends.items()]
    parts = []
    for method, gamma, setting in named:
        table = tables[setting.key]
        kept = [n for n in (*seeds.ERRORS, *seeds.READINGS.values()) if n in table.columns]
        parts.append(
            table.select(
                polars.lit(one.task).alias("task"),
                polars.lit(method).alias("method"),
                polars.lit(gamma, dtype=polars.Float64).alias("gamma"),
                "seed",
                *kept,
            ).with_columns(polars.col("R_gen").abs())
        )
    return polars.concat(parts, how="diagonal")


def _rows(setting: Setting, table: polars.DataFrame) -> list[Row]:
    return [{**row, "task": setting.task} for row in rows_of(setting, table)]


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
