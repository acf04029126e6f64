"""Figure 4: the three errors of MoDo on MNIST over T, α and γ, raw, with both readings of E_ca.

Each sweep varies one of the three and keeps the paper's defaults of the others. T is swept by
measuring the same ten runs on the way. The paper's curves are smoothed by a window; these are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars

from trimol.paper import _draw_fig4 as fig4_draw
from trimol.paper import _printed_mnist as paper
from trimol.paper._studies import Context, get
from trimol.runs import _seeds as seeds
from trimol.runs import study as results
from trimol.runs._seeds import Setting
from trimol.runs.study import Row, Study

TASK = "mnist"
STEPS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
FURTHER = (20_000, 50_000, 100_000)
METRICS = ("R_opt", "R_pop", "R_gen", "E_ca", *seeds.READINGS.values())


@dataclass(frozen=True)
class Point:
    """One place of a sweep.

    Attributes:
        sweep: What is varied: ``"T"``, ``"alpha"`` or ``"gamma"``.
        value: To what.
        setting: What is run for it.
        step: After how many of its steps it is looked at.
    """

    sweep: str
    value: float
    setting: Setting
    step: int


def fig4(context: Context) -> Study:
    """Run the study."""
    points = sweeps(context)
    needed = list({point.setting.key: point.setting for point in points}.values())
    found = seeds.run_all(needed, context.parts, context.watch)
    by_key = {setting.key: table for setting, table in zip(needed, found, strict=True)}
    table = tidy(points, by_key)
    return Study(
        name="fig4",
        title=get("fig4").title,
        rows=rows(points, table),
        notes=_notes(by_key),
        tables={"points": table},
        figures=fig4_draw.draw(table, context.folder),
    )


def sweeps(context: Context) -> list[Point]:
    """All that is to be run: the paper's defaults, one number varied."""
    stated = paper.paper()["fig4"]
    last = 100 if context.quick else stated["steps"]
    grid = stated["grid"][::5] if context.quick else stated["grid"]
    longest = FURTHER[-1] if context.full else STEPS[-1]
    on_the_way = [t for t in (*STEPS, *FURTHER) if t <= (last if context.quick else longest)]
    default = Setting(
        task=TASK,
        method=stated["method"],
        lr=stated["alpha"],
        hyperparameters={"gamma": stated["gamma"]},
        steps=(last,),
        seeds=tuple(range(context.pick(stated["runs"], 2))),
    )
    long = replace(default, steps=tuple(on_the_way))
    return [
        *(Point("T", step, long, step) for step in on_the_way),
        *(Point("alpha", value, replace(default, lr=value), last) for value in grid),
        *(
            Point("gamma", value, replace(default, hyperparameters={"gamma": value}), last)
            for value in grid
        ),
    ]


def tidy(points: Sequence[Point], tables: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """One row a place and seed: ``sweep``, ``value``, ``seed`` and what was measured.

    Args:
        points: The places.
        tables: What the runs gave, by their setting's key.
    """
    parts = []
    for point in points:
        table = tables[point.setting.key].filter(polars.col("step") == point.step)
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
    found = []
    for point in points:
        at = table.filter(
            (polars.col("sweep") == point.sweep) & (polars.col("value") == point.value)
        )
        how = {
            "sweep": point.sweep,
            "alpha": point.setting.lr,
            **point.setting.hyperparameters,
            "steps": point.step,
        }
        for metric in METRICS:
            if metric in at.columns:
                values = at[metric].to_list()
                together = metric in seeds.READINGS.values()  # one number of all seeds
                row = results.row(
                    point.setting.method, metric, values[:1] if together else values, **how
                )
                found.append({**row, "n": len(values)})
    return found


def _notes(tables: Mapping[str, polars.DataFrame]) -> list[str]:
    total = sum(sum(seeds.seconds(table)) for table in tables.values())
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
