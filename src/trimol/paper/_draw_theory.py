"""Drawing theory against measurement."""

from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol.paper._drawing import COLOURS, NAMES, figure
from trimol.paper._synthetic.theory_runs import COURSES


def draw(
    folder: Path,
    name: str,
    measured: polars.DataFrame,
    stability: polars.DataFrame,
    example: polars.DataFrame,
    slopes: polars.DataFrame,
) -> None:
    """One panel a course, one for stability, one for the example of the lower bound."""
    with figure(folder, name, figsize=(12.5, 3.3)) as drawn:
        row = drawn.subplots(1, len(COURSES) + 2)
        for axes, course in zip(row, COURSES, strict=False):
            for error, promised in course.promised.items():
                chosen = measured.filter(
                    polars.col("course") == course.name, polars.col("error") == error
                )
                _curve(axes, chosen, "T", error, _exponent(slopes, course.name, error), promised)
            axes.set_xlabel("$T$")
            axes.set_title(f"for {course.name}\n{_sizes(course)}", fontsize=9)
        _curve(row[-2], stability, "n", "eps_F2", _exponent(slopes, "stability", "eps_F2"), 2.0)
        row[-2].set_title("stability\n" + r"$T = n^2$, $\alpha \propto T^{-1/2}$", fontsize=9)
        row[-2].set_xlabel("$n$")
        sizes = stability["n"].unique().sort().to_list()
        row[-2].set_xticks(sizes[::2], [str(size) for size in sizes[::2]])
        row[-2].set_xticks([], minor=True)
        _example(row[-1], example)
        for axes in row:
            axes.grid(alpha=0.25)
            axes.legend(fontsize=7)


def _curve(
    axes: Any, table: polars.DataFrame, x: str, error: str, exponent: float, promised: float
) -> None:
    grouped = table.group_by(x).agg(
        polars.col("measured").mean().alias("mean"),
        polars.col("measured").std().alias("std"),
        polars.len().alias("units"),
    ).sort(x)  # fmt: skip
    at, mean = grouped[x].to_numpy().astype(float), grouped["mean"].to_numpy()
    half = 1.96 * grouped["std"].to_numpy() / np.sqrt(grouped["units"].to_numpy())
    colour = COLOURS[error]
    label = f"{NAMES[error]}: ${x}^{{-{exponent:.2f}}}$"
    axes.errorbar(at, mean, half, color=colour, marker="o", ms=3, lw=1.4, capsize=2, label=label)
    guide = mean[0] * 1.6 * (at / at[0]) ** -promised
    axes.plot(at, guide, color=colour, ls="--", lw=1, label=f"promised ${x}^{{-{promised:g}}}$")
    axes.set(xscale="log", yscale="log")


def _example(axes: Any, example: polars.DataFrame) -> None:
    n = example["n"].to_numpy()
    axes.errorbar(n, example["measured"], 1.96 * example["error"], color="#0072B2", marker="o",
                  ms=3, capsize=2, lw=1.4, label="measured")  # fmt: skip
    axes.plot(n, example["bound"], color="black", ls="--", lw=1, label="lower bound, proof")
    axes.plot(n, example["printed"], color="grey", ls=":", lw=1.2, label="lower bound, printed")
    axes.set(xscale="log", yscale="log", xlabel="$n$")
    axes.set_title("lower-bound example\n" + r"$E\|x_T - x'_T\|$", fontsize=9)


def _exponent(slopes: polars.DataFrame, course: str, error: str) -> float:
    found = slopes.filter(polars.col("course") == course, polars.col("error") == error)
    return float(found["exponent"][0])


def _sizes(course: Any) -> str:
    parts = []
    for symbol, (factor, power) in (("α", course.alpha), ("γ", course.gamma), ("ρ", course.rho)):
        if factor:
            shown = rf"$\propto T^{{-{power:g}}}$" if power else f"= {factor:g}"
            parts.append(f"{symbol} {shown}")
    return ", ".join(parts)
