"""Drawing Figure 3: one panel a sweep, the errors over it."""

from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol.paper._drawing import COLOURS, NAMES, figure

_LABELS = {"T": "$T$", "alpha": r"$\alpha$", "gamma": r"$\gamma$"}
_TITLES = {"T": "Number of iterations", "alpha": "Step size of $x$", "gamma": "Step size of λ"}
_SHOWN = ("R_opt", "R_pop", "R_gen", "E_ca_unbiased")


def info(table: polars.DataFrame, metric: str) -> tuple[Any, Any, Any]:
    """Values of the sweep, means over data sets, half widths of their 95 % intervals."""
    grouped = (
        table.group_by("value")
        .agg(
            polars.col(metric).mean().alias("mean"),
            polars.col(metric).std().alias("std"),
            polars.len().alias("n"),
        )
        .sort("value")
    )
    half = 1.96 * grouped["std"].fill_null(0).to_numpy() / np.sqrt(grouped["n"].to_numpy())
    return grouped["value"].to_numpy(), grouped["mean"].to_numpy(), half


def draw(folder: Path, name: str, table: polars.DataFrame, problem: str) -> None:
    """All sweeps of one problem."""
    with figure(folder, name, figsize=(9.6, 3.1)) as drawn:
        row = drawn.subplots(1, len(_LABELS), sharey=True)
        for axes, (sweep, label) in zip(row, _LABELS.items(), strict=True):
            chosen = table.filter(polars.col("sweep") == sweep)
            for metric in _SHOWN:
                value, mean, half = info(chosen, metric)
                axes.errorbar(
                    value, mean, half, color=COLOURS[metric], label=NAMES[metric],
                    marker="o", ms=3, lw=1.4, capsize=2,
                )  # fmt: skip
            value, mean, _ = info(chosen, "E_ca")
            axes.plot(
                value, mean, color=COLOURS["E_ca"], ls=":", lw=1.2,
                label=r"$\mathcal{E}_{\rm ca}$, mean of squares",
            )  # fmt: skip
            axes.set(xscale="log", xlabel=label, title=_TITLES[sweep])
            axes.set_yscale("symlog", linthresh=0.01)
            axes.grid(alpha=0.25)
        row[0].set_ylabel("error")
        row[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        drawn.suptitle(f"MoDo, strongly convex, {problem}", fontsize=10)
