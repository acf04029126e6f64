"""Drawing Figure 2: the regions, and each error's exponent."""

from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol.paper._drawing import NAMES, figure
from trimol.theory import regions

_COLOURS = {"I": "#E69F00", "II": "#D55E00", "III": "#CC79A7", "IV": "#009E73", None: "#F2F2F2"}
_WORDS = {
    "I": "I: optimization suffers",
    "II": "II: generalization suffers",
    "III": "III: conflict avoidance suffers",
    "IV": "IV: all three vanish",
}


def draw(folder: Path, name: str, table: polars.DataFrame) -> None:
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


def _regions(axes: Any, own: Any, steps: Any, found: Any) -> None:
    kinds = list(_COLOURS)
    codes = np.vectorize(kinds.index)(found)
    axes.pcolormesh(own, steps, codes, cmap=_colormap(), vmin=-0.5, vmax=len(kinds) - 0.5,
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


def _colormap() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(list(_COLOURS.values()))
