"""Tables 1 and 2 and Figure 2: generated from the theorems' rates, not typed in."""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol import methods
from trimol._extras import require
from trimol.paper._drawing import NAMES, figure, files
from trimol.paper._studies import Context, get
from trimol.runs.study import Row, Study
from trimol.theory import Constants, bounds, rates, regions
from trimol.theory._orders import Exponent, Schedule
from trimol.theory.bounds._bound import CONVEX, Bound

# What the paper prints, cell by cell, in the notation of `trimol.theory.rates`. M and constants are
# left out, as the paper does. Table 1 by case, method and condition; "1" is its Θ(1).
_TABLE1_COLUMNS = ("Optimization", "Generalization", "Risk", "CA weight distance")
_NOT_LAST = "α^-1/2 T^-1/2 + α^1/2 + γ^1/2"
_DYNAMIC = f"min{{{_NOT_LAST} + ρ^1/2, (1 − α)^(1/2 T) + α^1/2 + γ T}}"
_WEIGHTS = "γ ρ^-1 + α γ^-1 ρ^-2"
_TABLE1 = {
    ("NC", "static", ""): ("α^-1/2 T^-1/2 + α^1/2", "T^1/2 n^-1/2", "n^-1/6", "1"),
    ("NC", "modo", ""): (_NOT_LAST, "T^1/2 n^-1/2", "n^-1/6", _WEIGHTS),
    ("SC", "static", ""): ("(1 − α)^(1/2 T) + α^1/2", "n^-1/2", "n^-1/2", "1"),
    ("SC", "modo", "γ = O(1/T)"): (_DYNAMIC, "n^-1/2", "n^-1/2", _WEIGHTS),
    ("SC", "modo", "otherwise"): (_DYNAMIC, "T^1/2 n^-1/2", "n^-1/6", _WEIGHTS),
}
# Table 2 by method, and whether its CA distance is bounded: this paper's rows. Those of other
# papers are quoted there as they are in `rates.PRIOR`: nothing here derives them.
_TABLE2_COLUMNS = (
    "Batch size", "NC", "Lipschitz λ*", "Bounded function", "Opt.", "CA dist.", "Gen.",
)  # fmt: skip
_TABLE2 = {
    ("smg", True): ("O(t)", "yes", "no", "no", "T^-1/8", "T^-1/2", "T^1/2 n^-1/2"),
    ("moco", True): ("O(1)", "yes", "no", "no", "T^-1/16", "T^-1/4", "T^1/2 n^-1/2"),
    ("modo", False): ("O(1)", "yes", "no", "no", "T^-1/4", "—", "T^1/2 n^-1/2"),
    ("modo", True): ("O(1)", "yes", "no", "no", "T^-1/8", "T^-1/4", "T^1/2 n^-1/2"),
}
# Constants and step sizes to ask the theorems for what they assume: any that they allow.
_ANY = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=100, c_F=1.0)
_THEOREMS: dict[str, tuple[Bound, ...]] = {
    "smg": (
        bounds.optimization_smg(_ANY, alpha=0.1, T=10),
        bounds.conflict_smg(_ANY, alpha=0.1, T=10),
    ),
    "moco": (
        bounds.optimization_tracked(_ANY, alpha=0.1, T=10, tracking=0.1),
        bounds.conflict_tracked(_ANY, alpha=0.1, tracking=0.1),
    ),
    "modo": (
        bounds.optimization(_ANY, alpha=0.1, gamma=0.1, T=10),
        bounds.conflict(_ANY, alpha=0.1, gamma=0.1, T=10),
    ),
}
_BALANCE = {"R_opt": 1 / 10, "E_ca": 1 / 10}  # O(n^-1/10), of the discussion of the trade-off
_STEP = Fraction(1, 20)
_COLOURS = {"I": "#E69F00", "II": "#D55E00", "III": "#CC79A7", "IV": "#009E73", None: "#F2F2F2"}
_WORDS = {
    "I": "I: optimization suffers",
    "II": "II: generalization suffers",
    "III": "III: conflict avoidance suffers",
    "IV": "IV: all three vanish",
}


def table1(context: Context) -> Study:
    """Static against dynamic weighting: rates and the best population risk."""
    derived = rates.table1()
    rows = [
        _row(
            row.method, "R_pop exponent in n", row.risk,
            float(Fraction(_TABLE1[row.case, row.method, row.condition][2].removeprefix("n^-"))),
            case=row.case, condition=row.condition or None, schedule=str(row.schedule),
        )
        for row in derived
    ]  # fmt: skip
    cells: list[dict[str, str]] = []
    for row in derived:
        orders = (row.optimization, row.generalization, f"n^-{row.risk}", row.weight_distance)
        named = f"{row.case} {row.method} {row.condition}".strip()
        printed = _TABLE1[row.case, row.method, row.condition]
        cells += _cells(named, _TABLE1_COLUMNS, map(_without_objectives, orders), printed)
    table = polars.DataFrame(
        [
            {
                "assumptions": row.case,
                "method": row.method,
                "condition": row.condition,
                "optimization": str(row.optimization),
                "generalization": str(row.generalization),
                "risk": f"n^-{row.risk}",
                "CA weight distance": str(row.weight_distance),
                "with": str(row.schedule),
            }
            for row in derived
        ]
    )
    notes = [
        "Each row is made by putting schedules of step sizes into the terms of the theorems' "
        "bounds and finding the one whose worst term vanishes fastest; the exponents printed in "
        "the paper stand beside. Constants and logarithms are left out.",
        *(f"{_setting(line)}: {line['optimization']}; {line['generalization']}; risk "
          f"{line['risk']} with {line['with']}." for line in table.to_dicts()),
    ]  # fmt: skip
    tables = {"rates": table, "cells": polars.DataFrame(cells)}
    return Study("table1", get("table1").title, rows, [*notes, *_differences(cells)], tables)


def table2(context: Context) -> Study:
    """Stochastic methods: assumptions and rates."""
    rows: list[Row] = []
    lines: list[dict[str, Any]] = []
    cells: list[dict[str, str]] = []
    for row in rates.table2():
        own = row.schedule is not None
        setting = {"source": row.source, "batch": row.batch, "generated": own}
        printed: dict[str, str] = {}
        if own:
            found = _cells(*_table2_row(row))
            cells += found
            printed = {cell["column"]: cell["paper"] for cell in found}
        for column, metric, exponent in (
            ("Opt.", "R_opt exponent in T", row.optimization),
            ("CA dist.", "E_ca exponent in T", row.conflict),
        ):
            if exponent is not None:
                paper = printed.get(column, "").removeprefix("T^-")
                known = float(Fraction(paper)) if paper else None
                rows.append(_row(row.method, metric, exponent, known, **setting))
        lines.append(
            {
                "method": row.method,
                "source": row.source,
                "batch": f"O({row.batch})",
                "nonconvex": row.nonconvex,
                "Lipschitz λ*": row.lipschitz_weights,
                "bounded function": row.bounded_function,
                "optimization": f"T^-{row.optimization}",
                "CA distance": "—" if row.conflict is None else f"T^-{row.conflict}",
                "generalization": "—" if row.generalization is None else str(row.generalization),
            }
        )
    notes = [
        "Rows of this paper are generated from its theorems' terms; rows of prior work are quoted "
        "as the paper quotes them.",
        *(f"{line['method']} ({line['source']}): optimization {line['optimization']}, CA distance "
          f"{line['CA distance']}, generalization {line['generalization']}." for line in lines),
    ]  # fmt: skip
    tables = {"rates": polars.DataFrame(lines), "cells": polars.DataFrame(cells)}
    return Study("table2", get("table2").title, rows, [*notes, *_differences(cells)], tables)


def _table2_row(
    row: rates.AlgorithmRow,
) -> tuple[str, tuple[str, ...], list[str], tuple[str, ...]]:
    """A row of this paper: its name, its columns, what follows from theorems, what is printed."""
    ca = row.conflict is not None
    assumed = [words for bound in _THEOREMS[row.method] for words in bound.assumptions]
    ours = [
        "O(t)" if methods.growth(row.method) else "O(1)",
        "no" if CONVEX in assumed else "yes",
        "yes" if any("λ*" in words for words in assumed) else "no",
        "yes" if any("bounded" in words for words in assumed) else "no",
        f"T^-{row.optimization}",
        f"T^-{row.conflict}" if ca else "—",
        str(row.generalization),
    ]
    name = f"{row.method}{'' if ca or row.method != 'modo' else ' for R_opt alone'}"
    return name, _TABLE2_COLUMNS, ours, _TABLE2[row.method, ca]


def _cells(
    name: str, columns: Iterable[str], ours: Iterable[str], paper: Iterable[str]
) -> list[dict[str, str]]:
    """A row's cells: what follows from the theorems beside what is printed."""
    return [
        {"row": name, "column": column, "ours": derived, "paper": printed}
        for column, derived, printed in zip(columns, ours, paper, strict=True)
    ]


def _differences(cells: Sequence[dict[str, str]]) -> list[str]:
    """The cells that do not follow from the theorems, in words."""
    return [
        f"{cell['row']}, {cell['column']}: the paper prints {cell['paper']}, its theorems give "
        f"{cell['ours']}."
        for cell in cells
        if cell["ours"] != cell["paper"]
    ]


def _without_objectives(order: object) -> str:
    """An order without its powers of M, which the table leaves out.

    >>> _without_objectives("α^1/2 + γ^1/2 M^1/2 + γ T M")
    'α^1/2 + γ^1/2 + γ T'
    """
    return re.sub(r" M(\^[\d/]+)?", "", str(order))


def fig2(context: Context) -> Study:
    """The four regions, at α = Θ(T^-1/2), over the exponents of γ and T."""
    table = region_table()
    _draw(context.folder, "fig2", table)
    printed = regions.cell(regions.PRINTED_BALANCE)
    rows = [
        _row("modo", f"{error} exponent in n", exponent, _BALANCE.get(error), region="IV",
             schedule=str(regions.PRINTED_BALANCE))
        for error, exponent in printed.exponents.items()
    ]  # fmt: skip
    notes = [
        "Each point is a schedule α = Θ(T^-1/2), γ = Θ(T^-c), T = Θ(n^t) for strongly convex "
        "objectives. Colour: the region. Small panels: the exponent e of each error's bound, "
        "Θ(n^-e); where e ≤ 0 the bound does not vanish.",
        "Region IV as printed is one point (the star), where all three bounds vanish, none at its "
        "best rate. It lies inside region I as printed; we call I only where R_opt's bound does "
        "not vanish.",
    ]
    tables = {"regions": table, "arrows": arrow_table(table)}
    return Study("fig2", get("fig2").title, rows, notes, tables, files("fig2"))


def arrow_table(table: polars.DataFrame) -> polars.DataFrame:
    """The exponents of the schedules inside the regions *as printed*, a row for each error."""
    inside = table.drop_nulls("printed").unpivot(
        on=regions.ERRORS, index=["c", "t", "printed"], variable_name="error", value_name="exponent"
    )
    derived = polars.col("exponent")
    return inside.with_columns(low=derived, high=derived, n=polars.lit(1)).rename(
        {"printed": "region"}
    )


def as_printed(schedule: Schedule) -> str | None:
    """The region whose printed conditions a schedule with α = Θ(T^-1/2) meets.

    γ = Θ(1) is left out, as no bound vanishes there; so is the point IV from I, which it lies in.
    """
    if schedule == regions.PRINTED_BALANCE:
        return "IV"
    if 0 < schedule.c < schedule.a and schedule.t != 1:
        return "I" if schedule.t < 1 else "II"
    return "III" if schedule.c > 1 and schedule.t > 1 else None


def region_table() -> polars.DataFrame:
    """Region and exponents over a grid of schedules."""
    own = [_STEP * i for i in range(0, 31)]
    steps = [_STEP * i for i in range(4, 45)]
    lines = [
        {
            "c": float(cell.schedule.c),
            "t": float(cell.schedule.t),
            "region": cell.region,
            "printed": as_printed(cell.schedule),
            **{error: float(exponent) for error, exponent in cell.exponents.items()},
        }
        for cell in regions.grid(own, steps)
    ]
    texts = {"region": polars.String, "printed": polars.String}
    return polars.DataFrame(lines, schema_overrides=texts)


def _row(method: str, metric: str, value: Exponent, paper: float | None, **setting: object) -> Row:
    """A number that was derived, not measured: no deviation, n = 1."""
    known = {"method": method, "metric": metric, "mean": float(value), "std": None, "n": 1}
    return {**known, "paper": paper, **setting}


def _setting(line: dict[str, Any]) -> str:
    condition = f" ({line['condition']})" if line["condition"] else ""
    return f"{line['assumptions']} {line['method']}{condition}"


# --- drawing --------------------------------------------------------------------------------------


def _draw(folder: Path, name: str, table: polars.DataFrame) -> None:
    """One large panel of regions, three small ones of exponents."""
    own, steps = (table[column].unique().sort().to_numpy() for column in ("c", "t"))
    shape = (len(steps), len(own))
    with figure(folder, name, figsize=(10.4, 3.2)) as drawn:
        row = drawn.subplots(1, 4, sharey=True, width_ratios=(1.5, 1, 1, 1))
        _regions(row[0], own, steps, table["region"].to_numpy().reshape(shape))
        for axes, error in zip(row[1:], regions.ERRORS, strict=True):
            values = np.clip(table[error].to_numpy().reshape(shape), -0.5, 0.5)
            image = axes.pcolormesh(own, steps, values, cmap="RdYlGn", vmin=-0.5, vmax=0.5,
                                    rasterized=True)  # fmt: skip
            axes.contour(own, steps, values, [0.0], colors="black", linewidths=0.8)
            axes.set(title=f"{NAMES[error]}", xlabel=r"$c$ in $\gamma = \Theta(T^{-c})$")
            _star(axes)
        bar = drawn.colorbar(image, ax=row[-1], ticks=(-0.5, 0, 0.5))
        bar.set_label("exponent $e$: bound is $n^{-e}$")
        bar.ax.set_yticklabels(["≤ −½", "0", "≥ ½"])


def _regions(axes: Any, own: Any, steps: Any, names: Any) -> None:
    kinds = list(_COLOURS)
    colors = require("matplotlib.colors", extra="report", purpose="drawing figures")
    codes = np.vectorize(kinds.index)(names)
    shades = colors.ListedColormap(list(_COLOURS.values()))
    axes.pcolormesh(own, steps, codes, cmap=shades, vmin=-0.5, vmax=len(kinds) - 0.5,
                    rasterized=True)  # fmt: skip
    for kind, words in _WORDS.items():
        axes.scatter([], [], marker="s", s=60, color=_COLOURS[kind], label=words)
    axes.legend(loc="lower right", fontsize=7, handletextpad=0.2)
    axes.set(
        title=r"regions, $\alpha = \Theta(T^{-1/2})$", xlabel=r"$c$ in $\gamma = \Theta(T^{-c})$"
    )
    axes.set_ylabel(r"$t$ in $T = \Theta(n^t)$")
    _star(axes)


def _star(axes: Any) -> None:
    where = regions.PRINTED_BALANCE
    axes.plot(float(where.c), float(where.t), "*", color="black", ms=9)
