"""Plotly drawings of a search's figures."""

import math
from collections.abc import Mapping
from typing import Any

from trimol.report._interactive import AXIS, drawn, plain, plot
from trimol.report._search_figures import Axis, Bars, Dots, Plot, SearchFigure, Surface
from trimol.report._style import Look

_BLUES = ((0.0, "#f7fbff"), (0.5, "#9ecae1"), (1.0, "#2171b5"))


def search(figure: SearchFigure, looks: Mapping[str, Look]) -> list[Any]:
    """A plot for every panel."""
    return [
        _bars(panel, looks) if isinstance(panel, Bars) else _plot(panel, figure, looks)
        for panel in figure.panels
    ]


def _plot(panel: Plot, figure: SearchFigure, looks: Mapping[str, Look]) -> Any:
    traces = [] if panel.surface is None else [_surface(panel.surface, panel.label)]
    for dots in panel.dots:
        shown = dots.kind in ("", *figure.kinds[:1])
        traces.append(_trace(dots, looks[dots.label], figure.name, shown=shown))
    layout = {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y), "hovermode": "closest"}
    return plot(traces, layout)


def _axis(own: Axis) -> dict[str, Any]:
    kind = {"lin": "linear", "log": "log", "choice": "category"}[own.scale]
    made = AXIS | {"title": {"text": plain(own.title), "standoff": 6}, "type": kind}
    return made | {"automargin": True, "exponentformat": "power"}


def _trace(dots: Dots, look: Look, figure: str, *, shown: bool) -> dict[str, Any]:
    on_front = figure == "tradeoffs"
    rings = [not on_front and best for best in dots.best]
    size = 10 if dots.strong else 7
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(dots.x),
        "y": drawn(dots.y),
        "text": [plain(text) for text in dots.texts],
        "hovertemplate": "%{text}<extra></extra>",
        "name": plain(dots.label),
        "visible": shown,
        "marker": {
            "symbol": look.symbol,
            "color": look.faint(0.2 if on_front and not dots.strong else 0.8),
            "size": [12 if ring else size for ring in rings],
            "line": {
                "color": "#000",
                "width": [2 if ring else int(dots.strong) for ring in rings],
            },
        },
        "meta": {"label": dots.label, "kind": dots.kind},
    }


def _surface(own: Surface, label: str) -> dict[str, Any]:
    return {
        "type": "contour",
        "x": drawn(own.x),
        "y": drawn(own.y),
        "z": [[None if math.isnan(z) else round(z, 3) for z in row] for row in own.z],
        "colorscale": _BLUES,
        "colorbar": {"title": {"text": "score"}, "thickness": 10},
        "line": {"width": 0.5, "color": "#fff"},
        "hoverinfo": "skip",
        "connectgaps": False,
        "meta": {"label": label, "kind": ""},
    }


def _bars(own: Bars, looks: Mapping[str, Look]) -> Any:
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": list(own.shares),
        "y": [plain(name) for name in own.names],
        "marker": {"color": looks[own.label].faint(0.8)},
        "text": [f"{share:.2f}" for share in own.shares],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{x:.3f}<extra></extra>",
        "meta": {"label": own.label, "kind": ""},
    }
    x = AXIS | {"title": {"text": "share of the variance", "standoff": 6}, "range": [0, 1.1]}
    y = AXIS | {"autorange": "reversed", "automargin": True, "type": "category"}
    return plot([trace], {"xaxis": x, "yaxis": y})
