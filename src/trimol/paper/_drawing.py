"""How the paper's figures are drawn here: one look, saved as SVG and PNG."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol._extras import require
from trimol._files import writing
from trimol.runs.statistics import interval

# Colours that stay apart for readers who do not see all of them (Okabe and Ito).
COLOURS = {
    "R_opt": "#0072B2",
    "R_pop": "#D55E00",
    "R_gen": "#009E73",
    "E_ca": "#CC79A7",
    "E_ca_unbiased": "#CC79A7",
    "E_caw": "#E69F00",
    "E_caw_unbiased": "#E69F00",
    "eps_F2": "#56B4E9",
}
NAMES = {
    "R_opt": r"$R_{\rm opt}$",
    "R_pop": r"$R_{\rm pop}$",
    "R_gen": r"$|R_{\rm gen}|$",
    "E_ca": r"$\mathcal{E}_{\rm ca}$",
    "E_ca_unbiased": r"$\mathcal{E}_{\rm ca}$, as defined",
    "E_caw": r"$\mathcal{E}_{\rm caw}$",
    "E_caw_unbiased": r"$\mathcal{E}_{\rm caw}$, as defined",
    "eps_F2": r"$\epsilon_{\rm F}^2$",
}
EMPIRICAL, POPULATION = "#555555", "#2ca02c"
_SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",
    "svg.hashsalt": "trimol",
    "savefig.dpi": 150,
}


@contextmanager
def figure(folder: Path, name: str, **options: Any) -> Iterator[Any]:
    """A new figure; at the end of the block it is saved as ``name.svg`` and ``name.png``.

    Args:
        folder: Where to.
        name: The files' name without their endings.
        **options: Of matplotlib's ``Figure``, e.g. ``figsize``.
    """
    matplotlib = require("matplotlib", extra="report", purpose="drawing figures")
    figures = require("matplotlib.figure", extra="report", purpose="drawing figures")
    with matplotlib.rc_context(_SETTINGS):
        drawn = figures.Figure(**options)  # no pyplot: nothing global, no window
        yield drawn
        for ending in ("svg", "png"):
            # No date in the file: the same data give the same bytes.
            metadata = {"Date": None} if ending == "svg" else None
            with writing(folder / f"{name}.{ending}") as file:
                drawn.savefig(file, format=ending, metadata=metadata)


def files(name: str) -> list[str]:
    """The names of the files that `figure` makes.

    >>> files("fig1")
    ['fig1.svg', 'fig1.png']
    """
    return [f"{name}.svg", f"{name}.png"]


def means(table: polars.DataFrame, x: str, y: str) -> tuple[Any, Any, Any]:
    """The sorted values of x, the means of y there, and half the widths of their 95 % intervals.

    A single value has no width: 0.

    >>> means(polars.DataFrame({"x": [2, 1, 1], "y": [5.0, 1.0, 3.0]}), "x", "y")[1]
    array([2., 5.])
    """
    groups = [
        (at, own[y].to_list()) for (at,), own in table.sort(x).group_by([x], maintain_order=True)
    ]
    return (
        np.array([float(at) for at, _ in groups]),
        np.array([np.mean(values) for _, values in groups]),
        np.array([interval(values) or 0.0 for _, values in groups]),
    )
