"""Plotly drawings of the figures' plain numbers: one small plot a panel, so that phones fit.

A trace's ``meta`` says whose it is and which alternative it belongs to; ``page.js`` shows and hides
traces by it. Strings from outside are escaped: plotly reads them as a little HTML.
"""

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trimol.report._curves import Cosines, Curves, Line, Matrices, Panel, Progress, Scale
from trimol.report._front import Dots, FrontFigure
from trimol.report._numbers import number, shortened
from trimol.report._style import DIVERGING, GRID, Look, needed
from trimol.report._triangle import AXES, Triangle

_LAYOUT = {
    "autosize": True,
    "showlegend": False,
    "paper_bgcolor": "white",
    "plot_bgcolor": "white",
    "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#222"},
    "margin": {"l": 62, "r": 10, "t": 8, "b": 42},
    "hovermode": "closest",
}
FEW = 3  # seeds
AXIS = {"gridcolor": GRID, "zerolinecolor": "#bbb", "linecolor": "#888", "showline": True}


def curves(figure: Curves, looks: Mapping[str, Look]) -> list[Any]:
    """A plot for every panel."""
    return [_panel(panel, figure, looks) for panel in figure.panels]


def cosines(figure: Cosines) -> list[Any]:
    """A heat map for every setting, at the last frame."""
    return [_matrix(setting, figure) for setting in figure.settings]


def triangle(figure: Triangle, looks: Mapping[str, Look]) -> list[Any]:
    """One plot: grid and axes, then an outline with whiskers for every setting."""
    traces = [*_grid(figure)]
    for i, shape in enumerate(figure.shapes):
        traces += _shape(figure, i, looks[shape.label])
    across, upright = figure.window()
    blank = {"visible": False, "fixedrange": True}
    layout = {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": blank | {"range": across},
        "yaxis": blank | {"range": upright, "scaleanchor": "x"},
        "annotations": _names(figure),
    }
    return [plot(traces, layout)]


def front(figure: FrontFigure, looks: Mapping[str, Look]) -> list[Any]:
    """One plot: in the plane, in space, or across parallel axes for more than three of them."""
    if figure.parallel:
        return [plot(_across(figure, looks), _parallel_axes(figure))]
    traces = [*_true_front(figure)]
    for dots in figure.dots:
        traces.append(_dots(dots, looks[dots.label], figure))
    names = [{"title": {"text": plain(shortened(name, 40))}} for name in figure.axes]
    if len(figure.axes) == 2:
        x, y = (AXIS | name | {"exponentformat": "power"} for name in names)
        return [plot(traces, {"xaxis": x, "yaxis": y | {"automargin": True}})]
    walls = {"gridcolor": GRID, "backgroundcolor": "white", "zerolinecolor": "#bbb"}
    scene: dict[str, Any] = {
        f"{axis}axis": walls | name for axis, name in zip("xyz", names, strict=True)
    }
    scene["camera"] = {"eye": {"x": 1.6, "y": 1.6, "z": 1.1}}
    return [plot(traces, {"scene": scene, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}})]


def embedded(plot: Any) -> str:
    """A plot as JSON that can stand inside a ``<script>`` element: no ``<`` is left in it.

    >>> embedded({"text": "</script>"})
    '{"text": "\\\\u003c/script\\\\u003e"}'
    """
    text = plot.to_json() if hasattr(plot, "to_json") else json.dumps(plot)
    escapes = {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
    for char, escape in escapes.items():
        text = text.replace(char, escape)
    return str(text)


def library() -> str:
    """plotly.js, whole, as plotly ships it."""
    return str(needed("plotly.offline").get_plotlyjs())


def _placed(at: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Points as plotly takes them: coordinate by coordinate."""
    coordinates = dict(zip("xyz", zip(*at, strict=True), strict=False))
    return {**coordinates, "type": "scatter" if len(coordinates) == 2 else "scatter3d"}


def _true_front(figure: FrontFigure) -> Iterable[dict[str, Any]]:
    for kind, at in figure.known.items():
        look = {"mode": "lines", "line": {"color": "#888", "width": 1}}
        yield (
            _placed(at)
            | look
            | {
                "hoverinfo": "skip",
                "visible": kind == figure.kinds[0],
                "meta": {"label": "", "kind": kind},
            }
        )


def _dots(dots: Dots, look: Look, figure: FrontFigure) -> dict[str, Any]:
    """Filled with a faint line along the front where nothing dominates them, else hollow."""
    flat = len(figure.axes) == 2
    # In space plotly has circles, squares and diamonds only.
    symbol = look.symbol if flat or look.symbol in ("square", "diamond") else "circle"
    joined = figure.joined and not dots.dominated
    return _placed(dots.at) | {
        "mode": "lines+markers" if joined else "markers",
        "name": plain(dots.label),
        "line": {"color": look.faint(0.5), "width": 1, **({"shape": "hv"} if joined else {})},
        "marker": {
            "symbol": f"{symbol}-open" if dots.dominated else symbol,
            "size": 9 if flat else 5,
            "color": look.colour,
        },
        "text": [plain(text) for text in dots.texts],
        "hovertemplate": f"%{{text}}<br>{_coordinates(figure)}<extra></extra>",
        "visible": dots.kind == figure.kinds[0],
        "meta": {"label": dots.label, "kind": dots.kind},
    }


def _coordinates(figure: FrontFigure) -> str:
    named = zip("xyz", figure.axes, strict=False)
    return ", ".join(f"{_literal(name)} %{{{axis}:.4g}}" for axis, name in named)


def _literal(name: str) -> str:
    """A name inside a template, where braces mean something."""
    return plain(name).replace("%{", "% {")


def _across(figure: FrontFigure, looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    """A line for every point, across axes that go from the least value to the largest."""
    return [
        {
            "x": list(range(len(figure.axes))),
            "y": figure.relative(dots.kind, at),
            "mode": "lines+markers",
            "name": plain(dots.label),
            "line": {
                "color": looks[dots.label].colour,
                "width": 1.5,
                "dash": "dot" if dots.dominated else "solid",
            },
            "marker": {
                "symbol": looks[dots.label].symbol + ("-open" if dots.dominated else ""),
                "size": 6,
            },
            "text": [f"{plain(n)} {number(v)}" for n, v in zip(figure.axes, at, strict=True)],
            "hovertemplate": f"{_literal(text)}<br>%{{text}}<extra></extra>",
            "visible": dots.kind == figure.kinds[0],
            "meta": {"label": dots.label, "kind": dots.kind},
        }
        for dots in figure.dots
        for at, text in zip(dots.at, dots.texts, strict=True)
    ]


def _parallel_axes(figure: FrontFigure) -> dict[str, Any]:
    names = [plain(shortened(name)) for name in figure.axes]
    x = {"tickvals": list(range(len(names))), "ticktext": names}
    y = {"tickvals": [0, 1], "ticktext": ["least", "largest"], "range": [-0.05, 1.05]}
    return {"xaxis": AXIS | x, "yaxis": AXIS | y}


def plot(traces: list[dict[str, Any]], layout: dict[str, Any]) -> Any:
    """Traces in the layout that all plots share."""
    return needed("plotly.graph_objects").Figure(traces, _LAYOUT | layout)


def _panel(panel: Panel, figure: Curves, looks: Mapping[str, Look]) -> Any:
    scales = figure.scales if panel.logarithmic else ("linear",)
    floor, ticks = panel.floor, _ticks(panel)
    traces: list[dict[str, Any]] = []
    for line in panel.lines:
        look, shown = looks[line.label], figure.shown(line)
        drawn = _traces(
            line, look, floor=floor, possible=panel.possible, scales=scales, shown=shown
        )
        traces += [trace | _along(line, figure.progress, trace["meta"]) for trace in drawn]
    x = AXIS | {"title": {"text": figure.progress[0], "standoff": 6}, "rangemode": "tozero"}
    y = AXIS | {
        "title": {"text": plain(panel.y), "standoff": 4},
        "type": scales[0],
        "exponentformat": "power",
        "automargin": True,
        "dtick": ticks if scales[0] == "log" else None,
    }
    if panel.limits is not None:
        y["range"] = panel.limits
    told = {"logarithmic": panel.logarithmic, "dtick": ticks}
    return plot(traces, {"xaxis": x, "yaxis": y, "meta": told})


def _traces(
    line: Line,
    look: Look,
    *,
    floor: float,
    possible: tuple[float, float],
    scales: Sequence[Scale],
    shown: bool,
) -> list[dict[str, Any]]:
    meta = {"label": line.label, "kind": line.kind}
    common = {"meta": meta, "visible": shown, "mode": "lines"}
    edge = common | {"hoverinfo": "skip", "line": {"width": 0}}
    band = [
        edge | {"y": ends[scales[0]], "meta": meta | ({"ends": ends} if len(scales) > 1 else {})}
        for ends in _edges(line, floor, possible)
    ]
    # Of few seeds bands are wide, and lie one over the other.
    faint = 0.14 if max(line.n) > FEW else 0.07
    band[1] |= {"fill": "tonexty", "fillcolor": look.faint(faint)}
    middle = common | {
        "y": drawn(line.mean),
        "name": plain(f"{line.label} (dashed)" if line.reference else line.label),
        "mode": "lines" if line.reference else "lines+markers",
        "line": {"color": look.colour, "width": 1.5, "dash": "dash" if line.reference else "solid"},
        "marker": {"symbol": look.symbol, "size": 6, "maxdisplayed": 8},
        "customdata": [*zip(drawn(line.low), drawn(line.high), line.n, line.steps, strict=True)],
        "hovertemplate": "step %{customdata[3]}: %{y:.3g}<br>95 % interval %{customdata[0]:.3g} to "
        "%{customdata[1]:.3g}, n = %{customdata[2]}",
    }
    if max(line.n) < 2:
        middle["hovertemplate"] = "step %{customdata[3]}: %{y:.3g}"
    # References are there to compare with: bands around them would hide what is compared.
    return [middle] if line.reference or max(line.n) < 2 else [*band, middle]


def _along(line: Line, progress: Sequence[Progress], meta: dict[str, Any]) -> dict[str, Any]:
    """The x of a trace and, if there is a choice, all that can be chosen."""
    x = {name: drawn(getattr(line, name)) for name in progress}
    return {"x": x[progress[0]], "meta": meta | ({"x": x} if len(x) > 1 else {})}


def _edges(
    line: Line, floor: float, possible: tuple[float, float]
) -> list[dict[Scale, list[float | None]]]:
    """A band's lower and upper edge on either axis, within what can be; a log. one to the floor."""
    least, most = possible
    shown = [high > floor for high in line.high]
    low = [max(value, floor) if on else math.nan for value, on in zip(line.low, shown, strict=True)]
    high = [value if on else math.nan for value, on in zip(line.high, shown, strict=True)]
    return [
        {"linear": drawn([max(value, least) for value in line.low]), "log": drawn(low)},
        {"linear": drawn([min(value, most) for value in line.high]), "log": drawn(high)},
    ]


def _ticks(panel: Panel) -> int | str | None:
    """Marks of a logarithmic axis: powers of ten, with 2 and 5 between them where it is short.

    Very short and very long axes are left to plotly.
    """
    drawn = panel.positive
    decades = math.log10(max(drawn) / min(drawn)) if drawn else 0.0
    return "D2" if 0.7 < decades < 2.5 else 1 if 2.5 <= decades < 6 else None


def drawn(values: Iterable[float]) -> list[float | None]:
    """Numbers for JSON, in seven digits: more cannot be seen, and make the page twice as large."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def _matrix(setting: Matrices, figure: Cosines) -> Any:
    names = [plain(shortened(name)) for name in figure.objectives]
    trace = {
        "type": "heatmap",
        "z": rounded(setting.matrices[-1]),
        "zmin": -1,
        "zmax": 1,
        "colorscale": DIVERGING,
        "colorbar": {"title": {"text": "cosine"}, "thickness": 10, "tickvals": [-1, 0, 1]},
        "hovertemplate": "%{y} · %{x}: %{z:.2f}<extra></extra>",
        "hoverongaps": False,
        "meta": {"label": setting.label, "kind": ""},
    }
    size = len(names)
    ticks = {"tickvals": list(range(size)), "ticktext": names, "showgrid": False, "zeroline": False}
    ticks |= {"automargin": True, "tickfont": {"size": 10}}
    margin = {"l": 10, "r": 10, "t": 8, "b": 10}
    # The first row and the last column hold no pair.
    x = ticks | {"tickangle": -45, "range": [-0.5, size - 1.5]}
    y = ticks | {"range": [size - 0.5, 0.5]}
    told = {"frames": [rounded(m) for m in setting.matrices], "steps": setting.steps}
    return plot([trace], {"margin": margin, "xaxis": x, "yaxis": y, "meta": told})


def rounded(matrix: Iterable[Iterable[float]]) -> list[list[float | None]]:
    """A matrix of cosines to three decimals, for JSON: nothing where there is no number."""
    return [[None if math.isnan(c) else round(c, 3) for c in row] for row in matrix]


def _grid(figure: Triangle) -> Iterable[dict[str, Any]]:
    quiet = {"hoverinfo": "skip", "meta": {"label": "", "kind": ""}}
    for x, y, shade in figure.grid():
        yield quiet | {"x": x, "y": y, "mode": "lines", "line": {"color": shade, "width": 1}}
    marks = figure.marks()
    yield quiet | {
        "x": [x for x, _, _ in marks],
        "y": [y for _, y, _ in marks],
        "mode": "text",
        "text": [f"{text} " for _, _, text in marks],
        "textposition": "middle left",
        "textfont": {"size": 10, "color": "#666"},
    }


def _shape(figure: Triangle, i: int, look: Look) -> list[dict[str, Any]]:
    shape, (x, y) = figure.shapes[i], figure.outline(i)
    meta = {"label": shape.label, "kind": ""}
    texts = [
        f"{symbol} {number(c.value.estimate)}<br>{number(c.ratio, 2)} of the worst"
        for (_, symbol), c in zip(AXES, shape.corners, strict=True)
    ]
    outline = {
        "x": x,
        "y": y,
        "mode": "lines+markers",
        "name": plain(shape.label),
        "line": {"color": look.colour, "width": 2},
        "marker": {"symbol": look.symbol, "size": 8},
        "text": [*texts, texts[0]],
        "hovertemplate": "%{text}",
        "meta": meta,
    }
    whiskers = [
        {
            "x": x,
            "y": y,
            "mode": "lines",
            "hoverinfo": "skip",
            "line": {"color": look.faint(0.45), "width": 4},
            "meta": meta,
        }
        for x, y in figure.bars(i)
    ]
    return [*whiskers, outline]


def _names(figure: Triangle) -> list[dict[str, Any]]:
    """The axes' names."""
    return [
        {"x": x, "y": y, "yanchor": "bottom" if y > 0 else "top", "showarrow": False}
        | {"text": f"<b>{name}</b><br>{symbol}"}
        for (x, y), (name, symbol) in zip(figure.ends(), AXES, strict=True)
    ]


def plain(text: str) -> str:
    """Text that plotly shows as it is, whatever it looks like.

    >>> plain("<b>a</b>")
    '&lt;b&gt;a&lt;/b&gt;'
    """
    return html.escape(text, quote=False)
