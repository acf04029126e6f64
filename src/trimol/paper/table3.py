"""Table 3: MNIST with three losses by static weighting, MGDA and MoDo, beside the paper's numbers.

Ten seeds of each method, trained together, T = 1000 steps of plain SGD with the paper's step sizes;
R_opt, R_pop and E_ca with gradients over all images and the exact min-norm weights.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import polars

from trimol.paper import _printed_mnist as paper
from trimol.paper._studies import Context, get
from trimol.runs import _seeds as seeds
from trimol.runs import study as results
from trimol.runs._seeds import Setting
from trimol.runs.study import Row, Study

TASK = "mnist"


def table3(context: Context) -> Study:
    """Run the study."""
    settings = {name: _setting(name, context) for name in paper.methods()}
    found = seeds.run_all(list(settings.values()), context.parts, context.watch)
    tables = dict(zip(settings, found, strict=True))
    rows = [
        row
        for method, table in tables.items()
        for row in rows_of(settings[method], table, compare=not context.quick)
    ]
    return Study(
        name="table3",
        title=get("table3").title,
        rows=rows,
        notes=[*_said(rows), speed(tables)],
        tables={"runs": joined(tables)},
    )


def rows_of(setting: Setting, table: polars.DataFrame, *, compare: bool = False) -> list[Row]:
    """Mean and spread over seeds of every number at the end of a setting.

    Args:
        setting: What was run.
        table: What `trimol.runs._seeds.run` gave.
        compare: Whether to set the paper's cells beside them, with a verdict.
    """
    how = {"lr": setting.lr, **setting.hyperparameters, "steps": setting.steps[-1]}
    printed = paper.cells(setting.method) if compare else {}
    rows = []
    for metric, values in seeds.numbers(table).items():
        beside = _beside(values, printed[metric]) if metric in printed else {}
        rows.append(results.row(setting.method, metric, values, **beside, **how))
    for name in seeds.READINGS.values():
        if name in table.columns:
            value = [table.filter(polars.col("step") == table["step"].max())[name][0]]
            rows.append(
                {**results.row(setting.method, name, value, **how), "n": len(setting.seeds)}
            )
    return rows


def joined(tables: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """The runs of all methods in one table."""
    named = [
        table.insert_column(0, polars.lit(name).alias("method")) for name, table in tables.items()
    ]
    return polars.concat(named, how="diagonal")


def speed(tables: Mapping[str, polars.DataFrame]) -> str:
    """What an iteration of one seed took, in words."""
    parts, total = [], 0.0
    for method, table in tables.items():
        training, measuring = seeds.seconds(table)
        iterations = sum(table.group_by("seed").agg(polars.col("step").max())["step"])
        parts.append(f"{method} {1e3 * training / iterations:.2g} ms")
        total += training + measuring
    return (
        "Speed, wall clock, of one iteration of one seed (all seeds train together): "
        f"{', '.join(parts)}; {total:.0f} s for all, measurements over all images included, if "
        "processes that ran side by side are counted one after the other."
    )


def _setting(method: str, context: Context) -> Setting:
    table = paper.paper()["table3"]
    return Setting(
        task=TASK,
        method=method,
        lr=table[method]["lr"],
        hyperparameters=table[method]["hyperparameters"],
        steps=(100 if context.quick else table["steps"],),
        seeds=tuple(range(context.pick(table["runs"], 2))),
        batch_size=table["batch_size"],
    )


def _beside(values: Sequence[float], cell: paper.Printed) -> dict[str, Any]:
    found: dict[str, Any] = {"paper": cell.mean, "paper_std": cell.std}
    if len(values) > 1:
        found["verdict"] = paper.verdict(values, cell)
    return found | {"within_2_std": paper.within_spread(statistics.mean(values), cell)}


def _said(rows: Sequence[Row]) -> list[str]:
    """What to make of the numbers."""
    judged = [row for row in rows if row.get("verdict")]
    if not judged:
        return ["A quick run: too few steps or seeds to be compared with the paper's."]
    apart = [row for row in judged if row["verdict"] == "differs"]
    outside = [row for row in judged if not row["within_2_std"]]
    listed = "; ".join(
        f"{row['metric']} of {row['method']}: {row['mean']:.3g} here, {row['paper']:.3g} there"
        for row in apart
    )
    return [
        f"{len(judged) - len(apart)} of {len(judged)} cells agree with the paper's within two "
        "standard errors of the difference (both tables' noise, and the rounding of the printed "
        f"mean); {len(judged) - len(outside)} are within its mean ± 2 standard deviations."
        + (f" Those that differ: {listed}." if apart else ""),
        "All methods see 64 images a step (MoDo 32 + 32), drawn afresh without repetition within a "
        "draw, from 50 000; runs of the same seed start from the same parameters and see the same "
        "images, whatever the method. R_gen is the mean over seeds of |R_pop − R_opt|.",
    ]
