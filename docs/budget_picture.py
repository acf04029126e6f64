"""The picture of docs/howto/diagnose.md: what do B trainings come to, tuning included?

python docs/budget_picture.py results/budget_curve.json docs/_static/budget-curve.png
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

LINES = {
    "equal": ("equal weights, learning rate searched", "#888888", "o"),
    "1/gradient": ("1/gradient length, learning rate searched", "#b07aa1", "s"),
    "tpe": ("static weights by Optuna's TPE", "#e08214", "^"),
    "tune": ("trimol tune", "#1f6fb4", "D"),
    "diagnose": ("trimol diagnose", "#2a9d5c", "*"),
}
COLUMNS = 4


def draw(ax: Axes, task: str, rows: list[dict[str, Any]]) -> None:
    """Draw the mean regret of a task over the budget, both starts together."""
    for strategy, (label, colour, marker) in LINES.items():
        own = [row for row in rows if (row["task"], row["strategy"]) == (task, strategy)]
        budgets = sorted({row["budget"] for row in own})
        each = {b: [v for row in own if row["budget"] == b for v in row["each"]] for b in budgets}
        means = [sum(each[b]) / len(each[b]) for b in budgets]
        ax.plot(budgets, means, color=colour, marker=marker, markersize=5, label=label)
    ax.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    ax.set(xscale="log", title=task)
    ax.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)


def main(results: str, file: str) -> None:
    """Draw the results into the file."""
    rows = json.loads(Path(results).read_text(encoding="utf-8"))["rows"]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lines = -(-len(tasks) // COLUMNS)
    canvas, axes = plt.subplots(
        lines, COLUMNS, figsize=(11, 2.6 * lines + 0.6), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(tasks) :]:
        ax.axis("off")
    for ax, task in zip(axes.flat, tasks, strict=False):
        draw(ax, task, rows)
    canvas.supxlabel("trainings in all")
    canvas.supylabel("behind the best setting known, %")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    canvas.savefig(file, dpi=110, facecolor="white")


if __name__ == "__main__":
    main(*sys.argv[1:])
