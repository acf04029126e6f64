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
from trimol.runs import study as results
from trimol.runs._over_seeds import at_end, run_over_seeds, seconds, table_of
from trimol.runs.comparison import DEFINITION, GAP, SIZE, UNBIASED, columns, numbers, settings_of
from trimol.runs.config import RunConfig, equal_steps
from trimol.runs.study import Row, Study

TASK = "mnist"
OPTIONS: dict[str, Any] = {"seed": None}  # each run splits the images by its own seed
CHECKPOINTS, FURTHEST = 5, 2000  # of a run, if nothing interrupts it; steps between two at most


def table3(context: Context) -> Study:
    """Run the study."""
    table = paper.paper()["table3"]
    steps = 100 if context.quick else table["steps"]
    settings = {
        method: setting(method, table[method]["lr"], table[method]["hyperparameters"], steps)
        for method in paper.methods()
    }
    tables = measured(settings, context.pick(table["runs"], 2), context)
    rows = [
        row
        for method, config in settings.items()
        for row in rows_of(config, tables[method], compare=not context.quick)
    ]
    return Study(
        name="table3",
        title=get("table3").title,
        rows=rows,
        notes=[*_said(rows), speed(tables)],
        tables={"runs": joined(tables)},
    )


def setting(
    method: str, lr: float, hyperparameters: Mapping[str, Any], steps: int, **others: Any
) -> RunConfig:
    """A run on MNIST (or on what ``others`` say), of no more samples than so many steps take."""
    batch_size = paper.paper()["table3"]["batch_size"]
    given = {"task": TASK, "task_options": OPTIONS, **others}
    steps = equal_steps(given["task"], method, steps, batch_size, given["task_options"])
    return RunConfig(
        method=method,
        lr=lr,
        hyperparameters=dict(hyperparameters),
        steps=steps,
        batch_size=batch_size,
        checkpoint_every=min(max(1, steps // CHECKPOINTS), FURTHEST),
        **given,
    )


def measured(
    settings: Mapping[Any, RunConfig], seeds: int, context: Context
) -> dict[Any, polars.DataFrame]:
    """What was measured of each setting, under its name (`trimol.runs._over_seeds.table_of`)."""
    runs = run_over_seeds(
        list(settings.values()), seeds, context.parts, context.watch, on=context.on
    )
    return {name: table_of(own) for name, own in zip(settings, runs, strict=True)}


def rows_of(config: RunConfig, table: polars.DataFrame, *, compare: bool = False) -> list[Row]:
    """Mean and spread over seeds of every number at the end of a setting."""
    how, last = settings_of(config), at_end(table)
    printed = paper.cells(config.method) if compare else {}
    rows = []
    for metric, values in columns([_as_printed(record) for record in last.to_dicts()]).items():
        beside = _beside(values, printed[metric]) if metric in printed else {}
        rows.append(results.row(config.method, metric, values, **beside, **how))
    for name in (DEFINITION, UNBIASED):
        if name in last.columns:
            row = results.row(config.method, name, last[name][:1].to_list(), **how)
            rows.append({**row, "n": len(last)})  # one number of all seeds
    return rows


def _as_printed(record: dict[str, float]) -> dict[str, float]:
    """The numbers of a run, R_gen being that of the paper's tables: its size."""
    found = numbers(record)
    return {n: found.get(SIZE, v) if n == GAP else v for n, v in found.items() if n != SIZE}


def joined(tables: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """The runs of all methods in one table."""
    named = [
        table.select(polars.lit(name).alias("method"), polars.all())
        for name, table in tables.items()
    ]
    return polars.concat(named, how="diagonal")


def speed(tables: Mapping[str, polars.DataFrame]) -> str:
    """What an iteration of one seed took, in words."""
    parts, total = [], 0.0
    for method, table in tables.items():
        training, measuring = seconds(table)
        iterations = float(at_end(table)["step"].sum())
        parts.append(f"{method} {1e3 * training / iterations:.2g} ms")
        total += training + measuring
    return (
        "Speed, wall clock, of one iteration of one seed (all seeds train together): "
        f"{', '.join(parts)}; {total:.0f} s for all, measurements over all images included, if "
        "processes that ran side by side are counted one after the other."
    )


def _beside(values: Sequence[float], cell: paper.Printed) -> dict[str, Any]:
    beside: dict[str, Any] = {"paper": cell.mean, "paper_std": cell.std}
    if len(values) > 1:
        beside["verdict"] = paper.verdict(values, cell)
    return beside | {"within_2_std": paper.within_spread(statistics.mean(values), cell)}


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
