"""Drawings of a diagnosis: a forest of differences, and what every contender reaches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trimol.report import _interactive as interactive
from trimol.report._diagnosed import Bar, Cloud, Reached
from trimol.report._interactive import plain
from trimol.report._style import Look

ROW, LEAST = 26, 180  # the height of a row of the forest, and of all of it, in pixels


def forest(bars: Sequence[Bar], looks: Mapping[str, Look]) -> Any:
    """A row for every method and metric: the gain in per cent, with its 95 % interval."""
    rows = list(dict.fromkeys((bar.metric, bar.label) for bar in bars))
    names = [plain(f"{metric} · {label}") for metric, label in rows]
    traces = [
        {
            "x": [100 * bar.mean],
            "y": [rows.index((bar.metric, bar.label))],
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [100 * (bar.high - bar.mean)],
                "arrayminus": [100 * (bar.mean - bar.low)],
                "color": looks[bar.label].colour,
            },
            "mode": "markers",
            "marker": {
                "color": looks[bar.label].colour,
                "symbol": looks[bar.label].symbol,
                "size": 8,
            },
            "hovertemplate": "%{x:.3g} %<extra></extra>",
            "meta": _meta(bar.label),
        }
        for bar in bars
    ]
    y = {
        "tickvals": list(range(len(rows))),
        "ticktext": names,
        "automargin": True,
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
    }
    x = {"title": {"text": "better by, %"}, "zeroline": True}
    return interactive.plot(
        traces,
        {
            "xaxis": interactive.AXIS | x | {"zerolinecolor": "#444"},
            "yaxis": interactive.AXIS | y,
        },
    )


def height(bars: Sequence[Bar]) -> int:
    """How high a forest is, in pixels."""
    return max(LEAST, 70 + ROW * len({(bar.metric, bar.label) for bar in bars}))


def reached(figure: Reached, looks: Mapping[str, Look]) -> Any:
    """Every setting as a point; hollow where another of the contender is better on all metrics."""
    across, up = figure.metrics
    return interactive.plot(
        [trace for cloud in figure.clouds for trace in _cloud(cloud, looks[cloud.label])],
        {
            "xaxis": interactive.AXIS | _scaled(across, (cloud.x for cloud in figure.clouds)),
            "yaxis": interactive.AXIS | _scaled(up, (cloud.y for cloud in figure.clouds)),
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.25},
            "margin": {"l": 62, "r": 10, "t": 8, "b": 70},
        },
    )


def _cloud(cloud: Cloud, look: Look) -> list[dict[str, Any]]:
    common = {"mode": "markers", "meta": _meta(cloud.label), "legendgroup": plain(cloud.label)}
    drawn = []
    for best, symbol in ((False, f"{look.symbol}-open"), (True, look.symbol)):
        places = [place for place, own in enumerate(cloud.best) if own is best]
        drawn.append(
            common
            | {
                "x": [cloud.x[place] for place in places],
                "y": [cloud.y[place] for place in places],
                "name": plain(cloud.label),
                "showlegend": best,
                "marker": {"color": look.colour, "symbol": symbol, "size": 8 if best else 6},
            }
        )
    return drawn


def _scaled(metric: str, values: Iterable[Sequence[float]]) -> dict[str, Any]:
    """The axis of a metric: logarithmic where its values are positive and far apart."""
    every = [value for own in values for value in own]
    wide = min(every) > 0 and max(every) > 30 * min(every)
    return {
        "title": {"text": plain(metric)},
        "type": "log" if wide else "linear",
        "exponentformat": "power",
        "automargin": True,
    }


def _meta(label: str) -> dict[str, str]:
    return {"label": label, "kind": ""}
