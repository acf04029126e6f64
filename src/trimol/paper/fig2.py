"""Tables 1 and 2 and Figure 2: generated from the theorems' rates, not typed in."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol._extras import require
from trimol.paper._drawing import NAMES, figure, files
from trimol.paper._studies import Context, get
from trimol.runs.study import Row, Study
from trimol.theory import rates, regions
from trimol.theory._orders import Exponent

# The exponents that the paper prints: R_pop = O(n^-risk) (Table 1), and R_opt = O(T^-opt),
# E_ca = O(T^-conflict) (Table 2). None: it does not vanish, or nothing is printed.
_TABLE1 = {
    ("NC", "static", ""): 1 / 6,
    ("NC", "modo", ""): 1 / 6,
    ("SC", "static", ""): 1 / 2,
    ("SC", "modo", "γ = O(1/T)"): 1 / 2,
    ("SC", "modo", "otherwise"): 1 / 6,
}
_TABLE2 = {
    ("Liu and Vicente 2021, Thm 5.3", False): (1 / 8, None),
    ("Zhou et al. 2022, Thm 3", False): (1 / 4, None),
    ("Fernando et al. 2022, Thm 2", True): (1 / 20, 1 / 5),
    ("Fernando et al. 2022, Thm 4", False): (1 / 4, None),
    ("smg", True): (1 / 8, 1 / 2),
    ("moco", True): (1 / 16, 1 / 4),
    ("modo", False): (1 / 4, None),
    ("modo", True): (1 / 8, 1 / 4),
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
            _TABLE1[row.case, row.method, row.condition],
            case=row.case, condition=row.condition or None, schedule=str(row.schedule),
        )
        for row in derived
    ]  # fmt: skip
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
    return Study("table1", get("table1").title, rows, notes, {"rates": table})


def table2(context: Context) -> Study:
    """Stochastic methods: assumptions and rates."""
    rows: list[Row] = []
    lines: list[dict[str, Any]] = []
    for row in rates.table2():
        own = row.schedule is not None
        printed = _TABLE2[row.method if own else row.source, row.conflict is not None]
        setting = {"source": row.source, "batch": row.batch, "generated": own}
        rows.append(
            _row(row.method, "R_opt exponent in T", row.optimization, printed[0], **setting)
        )
        if row.conflict is not None:
            rows.append(_row(row.method, "E_ca exponent in T", row.conflict, printed[1], **setting))
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
    table = polars.DataFrame(lines)
    return Study("table2", get("table2").title, rows, notes, {"rates": table})


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
    return Study("fig2", get("fig2").title, rows, notes, {"regions": table}, files("fig2"))


def region_table() -> polars.DataFrame:
    """Region and exponents over a grid of schedules."""
    own = [_STEP * i for i in range(0, 31)]
    steps = [_STEP * i for i in range(4, 45)]
    lines = [
        {
            "c": float(cell.schedule.c),
            "t": float(cell.schedule.t),
            "region": cell.region,
            **{error: float(exponent) for error, exponent in cell.exponents.items()},
        }
        for cell in regions.grid(own, steps)
    ]
    return polars.DataFrame(lines, schema_overrides={"region": polars.String})


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
