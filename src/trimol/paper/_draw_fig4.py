"""Figure 4, drawn: three sweeps across, the errors above, the conflict below."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars

from trimol.paper._drawing import COLOURS, NAMES, figure, files

BARS = 0.5  # standard deviations, as in the paper
_SWEEPS = {
    "T": ("$T$", "iterations"),
    "alpha": (r"$\alpha$", "step size of $x$"),
    "gamma": (r"$\gamma$", "step size of λ"),
}
_READINGS = {
    "E_ca": "mean over seeds of the squares",
    "E_ca_definition": "definition: square of the mean",
    "E_ca_unbiased": "definition, without its bias",
}


@dataclass(frozen=True)
class Curve:
    """One line of the figure.

    Attributes:
        values: What the sweep's number was set to.
        means: The mean over seeds.
        bars: Half a standard deviation over seeds; 0 for what is one number of all seeds.
    """

    values: tuple[float, ...]
    means: tuple[float, ...]
    bars: tuple[float, ...]


def curve(table: polars.DataFrame, sweep: str, metric: str) -> Curve:
    """A metric over a sweep.

    Args:
        table: One row a place and seed (`trimol.paper.fig4.tidy`).
        sweep: Which sweep.
        metric: Which metric.
    """
    grouped = (
        table.filter((polars.col("sweep") == sweep) & polars.col(metric).is_not_null())
        .group_by("value")
        .agg(
            polars.col(metric).mean().alias("mean"),
            polars.col(metric).std().fill_null(0.0).alias("std"),
        )
        .sort("value")
    )
    bars = (BARS * grouped["std"]).to_list()
    return Curve(tuple(grouped["value"]), tuple(grouped["mean"]), tuple(bars))


def draw(table: polars.DataFrame, folder: Path) -> list[str]:
    """Draw all sweeps and return the files' names."""
    sweeps = [name for name in _SWEEPS if (table["sweep"] == name).any()]
    with figure(folder, "fig4", figsize=(3.3 * len(sweeps), 5.2)) as drawn:
        grid = drawn.subplots(2, len(sweeps), sharey="row", sharex="col", squeeze=False)
        for (above, below), sweep in zip(grid.T, sweeps, strict=True):
            _errors(above, table, sweep)
            _conflict(below, table, sweep)
        grid[0, 0].set_ylabel("distance from Pareto stationarity")
        grid[1, 0].set_ylabel(r"conflict $\|\nabla F_S(\lambda-\lambda^*)\|^2$")
        for row in grid:
            row[0].legend(fontsize=7)
    return files("fig4")


def _errors(axes: Any, table: polars.DataFrame, sweep: str) -> None:
    symbol, words = _SWEEPS[sweep]
    for metric in ("R_opt", "R_pop", "R_gen"):
        _line(axes, curve(table, sweep, metric), color=COLOURS[metric], label=NAMES[metric])
    axes.set(xscale="log", yscale="log", title=f"{symbol}: {words}")
    axes.grid(alpha=0.25)


def _conflict(axes: Any, table: polars.DataFrame, sweep: str) -> None:
    styles = ("-", "--", ":")
    for (metric, label), style in zip(_READINGS.items(), styles, strict=True):
        if metric in table.columns:
            _line(axes, curve(table, sweep, metric), color=COLOURS["E_ca"], label=label, ls=style)
    axes.set(xscale="log", yscale="log", xlabel=_SWEEPS[sweep][0])
    axes.grid(alpha=0.25)


def _line(axes: Any, found: Curve, **look: Any) -> None:
    """A line with bars; what is not above zero has no place on a logarithmic axis."""
    kept = [i for i, mean in enumerate(found.means) if mean > 0]
    values, means, bars = (
        [numbers[i] for i in kept] for numbers in (found.values, found.means, found.bars)
    )
    below = [min(bar, 0.9 * mean) for bar, mean in zip(bars, means, strict=True)]
    axes.errorbar(values, means, [below, bars], marker="o", ms=3, lw=1.3, capsize=2, **look)
