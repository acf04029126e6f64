"""Matplotlib drawings of the same plain numbers, for papers: SVG and PDF."""

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from trimol.report._curves import Cosines, Curves, Line, Panel
from trimol.report._diagnosed import Bar, Reached
from trimol.report._front import FrontFigure
from trimol.report._numbers import shortened
from trimol.report._search_figures import Axis, Bars, Plot, SearchFigure
from trimol.report._style import DIVERGING, GRID, Look, needed
from trimol.report._triangle import AXES, Triangle

FORMATS = ("svg", "pdf")
WIDTH = 3.2  # inches a panel: two fit a page of a paper
HEIGHT = 2.4
Margins = tuple[float, float, float, float]
MARGINS = (0.62, 0.12, 0.48, 0.3)
LARGEST = 1e300  # of the numbers on an axis
LONGEST_TITLE = 38
LONGEST_LABEL = 28
ENTRY, ROW = 1.6, 0.17  # inches of a legend's entry and row
_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "trimol",  # the same numbers give the same file
}


def curves(figure: Curves, looks: Mapping[str, Look]) -> dict[str, bytes]:
    """The figure's files by format; of alternatives the first, of scales the first."""
    labels = [line.label for panel in figure.panels for line in panel.lines]
    with _drawing():
        canvas, axes = _panels(len(figure.panels), below=_rows(labels, len(figure.panels)))
        for ax, panel in zip(axes, figure.panels, strict=True):
            _panel(ax, panel, figure, looks)
        _legend(canvas, labels, looks)
        return _files(canvas)


def cosines(figure: Cosines) -> dict[str, bytes]:
    """The last frame's matrices, by format."""
    with _drawing():
        canvas, axes = _panels(
            len(figure.settings), height=WIDTH, margins=(0.95, 0.12, 0.85, 0.3), below=0.45
        )
        scale = needed("matplotlib.colors").LinearSegmentedColormap.from_list("cosine", DIVERGING)
        names = [_text(shortened(name)) for name in figure.objectives]
        for ax, setting in zip(axes, figure.settings, strict=True):
            image = ax.imshow(setting.matrices[-1], cmap=scale, vmin=-1, vmax=1, aspect="auto")
            ax.set(xlim=(-0.5, len(names) - 1.5), ylim=(len(names) - 0.5, 0.5))
            ax.set_xticks(range(len(names) - 1), names[:-1], rotation=45, ha="right", fontsize=6)
            ax.set_yticks(range(1, len(names)), names[1:], fontsize=6)
            ax.set_title(_title(f"{setting.label}, step {setting.steps[-1]}"))
            ax.grid(False)
        width, height = canvas.get_size_inches()
        bar = canvas.add_axes((0.5 - 0.75 / width, 0.3 / height, 1.5 / width, 0.1 / height))
        canvas.colorbar(image, cax=bar, orientation="horizontal", label="cosine", ticks=[-1, 0, 1])
        return _files(canvas)


def triangle(figure: Triangle, looks: Mapping[str, Look]) -> dict[str, bytes]:
    """The triangle, by format."""
    labels = [shape.label for shape in figure.shapes]
    with _drawing():
        canvas, (ax,) = _panels(
            1, width=4.2, height=3.4, margins=(0.05, 0.05, 0.05, 0.05), below=_rows(labels, 1)
        )
        _triangle_grid(ax, figure)
        for i in range(len(figure.shapes)):
            _shape(ax, figure, i, looks[labels[i]])
        _legend(canvas, labels, looks)
        return _files(canvas)


def front(figure: FrontFigure, looks: Mapping[str, Look]) -> dict[str, bytes]:
    """The first kind, by format: in the plane, of three axes every pair, or across parallel axes.

    A printed picture of points in space does not say where they are.
    """
    pairs = [*combinations(range(len(figure.axes)), 2)]
    panels, width = (1, 2 * WIDTH) if figure.parallel else (len(pairs), WIDTH)
    with _drawing():
        canvas, axes = _panels(panels, width=width, below=_rows(figure.labels, panels))
        for ax, pair in zip(axes, pairs, strict=False):
            if figure.parallel:
                _parallel(ax, figure, looks)
            else:
                _front_panel(ax, figure, looks, pair)
        _legend(canvas, figure.labels, looks)
        return _files(canvas)


def _front_panel(
    ax: Any, figure: FrontFigure, looks: Mapping[str, Look], pair: tuple[int, int]
) -> None:
    kind = figure.kinds[0]
    if kind in figure.known:
        ax.plot(*_pair(figure.known[kind], pair), color="#888", linewidth=0.8)
    for dots in (dots for dots in figure.dots if dots.kind == kind):
        look, x_y = looks[dots.label], _pair(dots.at, pair)
        if figure.joined and not dots.dominated:
            ax.step(*x_y, where="post", color=look.colour, alpha=0.5, linewidth=0.8)
        filled = "none" if dots.dominated else look.colour
        style = {"color": look.colour, "markerfacecolor": filled, "linestyle": ""}
        ax.plot(*x_y, marker=look.marker, **style)
    x, y = (_text(shortened(figure.axes[i], LONGEST_TITLE)) for i in pair)
    ax.set(xlabel=x, ylabel=y)


def _pair(at: Sequence[Sequence[float]], pair: tuple[int, int]) -> list[list[float]]:
    return [[_drawable(p[i]) for p in at] for i in pair]


def _parallel(ax: Any, figure: FrontFigure, looks: Mapping[str, Look]) -> None:
    kind = figure.kinds[0]
    for dots in (dots for dots in figure.dots if dots.kind == kind):
        look, line = looks[dots.label], ":" if dots.dominated else "-"
        filled = "none" if dots.dominated else look.colour
        for at in dots.at:
            style = {"color": look.colour, "linestyle": line, "markerfacecolor": filled}
            ax.plot(figure.relative(kind, at), marker=look.marker, **style)
    names = [_text(shortened(name)) for name in figure.axes]
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks([0, 1], ["least", "largest"])


def search(figure: SearchFigure, looks: Mapping[str, Look]) -> dict[str, bytes]:
    """The panels of a search's figure, by format; of alternatives the first."""
    labels = [label for panel in figure.panels for label in _methods_of(panel)]
    with _drawing():
        canvas, axes = _panels(len(figure.panels), below=_rows(labels, len(figure.panels)))
        for ax, panel in zip(axes, figure.panels, strict=True):
            ax.set_title(_title(panel.title))
            if isinstance(panel, Bars):
                _importance(ax, panel, looks[panel.label])
            else:
                _trials(ax, panel, figure, looks)
        _legend(canvas, labels, looks)
        return _files(canvas)


def _methods_of(panel: Plot | Bars) -> list[str]:
    return [panel.label] if isinstance(panel, Bars) else [dots.label for dots in panel.dots]


def _importance(ax: Any, panel: Bars, look: Look) -> None:
    names = [_text(shortened(name)) for name in panel.names]
    ax.barh(range(len(names)), panel.shares, color=look.colour, alpha=0.8)
    ax.set_yticks(range(len(names)), names, fontsize=6)
    ax.set(xlim=(0, 1.1), xlabel="share of the variance")
    ax.invert_yaxis()


def _trials(ax: Any, panel: Plot, figure: SearchFigure, looks: Mapping[str, Look]) -> None:
    if panel.surface is not None:
        surface = panel.surface
        ax.contourf(surface.x, surface.y, surface.z, cmap="Blues")
    for dots in panel.dots:
        if dots.kind not in ("", *figure.kinds[:1]):
            continue
        look = looks[dots.label]
        faint = figure.name == "tradeoffs" and not dots.strong
        style = {"color": look.colour, "alpha": 0.25 if faint else 0.8, "linestyle": ""}
        ax.plot(_along(panel.x, dots.x), _along(panel.y, dots.y), marker=look.marker, **style)
    for set_scale, set_label, axis in (
        (ax.set_xscale, ax.set_xlabel, panel.x),
        (ax.set_yscale, ax.set_ylabel, panel.y),
    ):
        if axis.scale == "log":
            set_scale("log")
        set_label(_text(shortened(axis.title, LONGEST_TITLE)))


def _along(axis: Axis, values: Sequence[Any]) -> list[Any]:
    if axis.scale == "choice":
        return [_text(shortened(str(value))) for value in values]
    return [_drawable(value) for value in values]


def forest(bars: Sequence[Bar], looks: Mapping[str, Look]) -> dict[str, bytes]:
    """A row for every method and metric: the gain in per cent, with its 95 % interval."""
    names = [f"{bar.metric} · {bar.label}" for bar in bars]
    labels = [bar.label for bar in bars]
    with _drawing():
        canvas, (ax,) = _panels(
            1,
            width=2 * WIDTH,
            height=1 + ROW * len(bars),
            margins=(2.4, 0.2, 0.48, 0.2),
            below=_rows(labels, 2),
        )
        for place, bar in enumerate(bars):
            look, mean = looks[bar.label], 100 * _drawable(bar.mean)
            ends = [[mean - 100 * _drawable(bar.low)], [100 * _drawable(bar.high) - mean]]
            style = {"color": look.colour, "marker": look.marker}
            ax.errorbar([mean], [place], xerr=ends, **style)
        ax.axvline(0, color="#444", linewidth=0.8)
        ax.set_yticks(range(len(names)), [_title(name) for name in names])
        ax.set(xlabel="better than the baseline by, %", ylim=(len(names) - 0.5, -0.5))
        _legend(canvas, labels, looks)
        return _files(canvas)


def reached(figures: Sequence[Reached], looks: Mapping[str, Look]) -> dict[str, bytes]:
    """Every setting as a point; hollow where another of the contender is better on all metrics."""
    labels = [cloud.label for cloud in figures[0].clouds]
    with _drawing():
        canvas, axes = _panels(len(figures), below=_rows(labels, len(figures)))
        for ax, figure in zip(axes, figures, strict=True):
            for cloud in figure.clouds:
                look = looks[cloud.label]
                for x, y, best in zip(cloud.x, cloud.y, cloud.best, strict=True):
                    filled = look.colour if best else "none"
                    style = {"color": look.colour, "markerfacecolor": filled}
                    ax.plot(_drawable(x), _drawable(y), marker=look.marker, **style)
            across, up = (_text(shortened(metric, LONGEST_TITLE)) for metric in figure.metrics)
            ax.set(xlabel=across, ylabel=up)
        _legend(canvas, labels, looks)
        return _files(canvas)


@contextmanager
def _drawing() -> Iterator[None]:
    """Matplotlib in our style; a letter that its font lacks is drawn as a box, without a word."""
    with needed("matplotlib").rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _panels(
    n: int,
    *,
    width: float = WIDTH,
    height: float = HEIGHT,
    margins: Margins = MARGINS,
    below: float,
) -> tuple[Any, Sequence[Any]]:
    """A canvas with n pairs of axes, three in a row, or two by two.

    Placed by hand: Matplotlib's own layouts measure every label several times, which takes longer
    than all the rest. Sizes are in inches: a panel's with its margins (left, right, bottom, top),
    and what is left below all panels for a legend.
    """
    across = n if n < 4 else 2 if n == 4 else 3
    down = math.ceil(n / across)
    total = (width * across, height * down + below)
    canvas = needed("matplotlib.figure").Figure(figsize=total)
    left, right, bottom, top = margins
    axes = []
    for i in range(n):
        x, y = width * (i % across) + left, total[1] - height * (i // across + 1) + bottom
        size = (width - left - right, height - bottom - top)
        place = (x / total[0], y / total[1], size[0] / total[0], size[1] / total[1])
        axes.append(canvas.add_axes(place))
    return canvas, axes


def _panel(ax: Any, panel: Panel, figure: Curves, looks: Mapping[str, Look]) -> None:
    logarithmic = panel.logarithmic and figure.scales[0] == "log"
    low, high = _log_ends(panel) if logarithmic else panel.possible
    most = panel.possible[1]
    for line in filter(figure.shown, panel.lines):
        _line(ax, line, looks[line.label], (low, most), getattr(line, figure.progress[0]))
    ax.set(xlabel=figure.progress[0], ylabel=_text(panel.y))
    ax.set_title(_title(panel.title))
    if logarithmic:
        ax.set_yscale("log")
        ax.set_ylim(low, high)
    elif panel.limits is not None:
        ax.set_ylim(panel.limits)


def _line(
    ax: Any, line: Line, look: Look, possible: tuple[float, float], x: Sequence[float]
) -> None:
    """The mean, and its band, cut where the axis or what can be ends."""
    lowest, most = possible
    style: dict[str, Any] = {"color": look.colour}
    if line.reference:
        style |= {"linestyle": "--", "linewidth": 1.0}
    else:
        style |= {"marker": look.marker, "markevery": max(1, len(x) // 8)}
        if max(line.n) > 1:
            low = [max(_drawable(value), lowest) for value in line.low]
            high = [min(_drawable(value), most) for value in line.high]
            ax.fill_between(x, low, high, color=look.colour, alpha=0.16, linewidth=0)
    mean = [_drawable(v) if math.isfinite(v) and v >= lowest else math.nan for v in line.mean]
    ax.plot(x, mean, **style)


def _log_ends(panel: Panel) -> tuple[float, float]:
    """All means but zero and all upper ends fit; bands are cut below the smallest mean."""
    high = [value for line in panel.lines for value in line.high if math.isfinite(value)]
    low = min(max(panel.floor, 1 / LARGEST), LARGEST / 100)
    return low, max(2 * low, _drawable(max(high) * 1.3))


def _drawable(value: float) -> float:
    """A number that Matplotlib can put on an axis; those of diverging runs are beyond."""
    return min(max(value, -LARGEST), LARGEST)


def _triangle_grid(ax: Any, figure: Triangle) -> None:
    for xs, ys, shade in figure.grid():
        ax.plot(xs, ys, color=shade, linewidth=0.8)
    for x, y, text in figure.marks():
        ax.annotate(f"{text} ", (x, y), ha="right", va="center", fontsize=6, color="#666")
    for (name, symbol), (x, y) in zip(AXES, figure.ends(), strict=True):
        side = "bottom" if y > 0 else "top"
        ax.annotate(f"{name}\n{symbol}", (x, y), ha="center", va=side)
    across, upright = figure.window()
    ax.set(xlim=across, ylim=upright, aspect="equal")
    ax.axis("off")


def _shape(ax: Any, figure: Triangle, i: int, look: Look) -> None:
    ax.plot(*figure.outline(i), color=look.colour, marker=look.marker)
    for x, y in figure.bars(i):
        ax.plot(x, y, color=look.colour, alpha=0.45, linewidth=3)


def _legend(canvas: Any, labels: Iterable[str], looks: Mapping[str, Look]) -> None:
    unique, line = list(dict.fromkeys(labels)), needed("matplotlib.lines").Line2D
    chosen = [looks[label] for label in unique]
    handles = [line([], [], color=look.colour, marker=look.marker) for look in chosen]
    names = [_text(shortened(label, LONGEST_LABEL)) for label in unique]
    across = min(_entries(canvas.get_size_inches()[0]), len(unique))
    canvas.legend(handles, names, loc="lower center", ncols=across, borderaxespad=0.2)


def _rows(labels: Iterable[str], panels: int) -> float:
    """Inches that a legend below so many panels takes."""
    width = WIDTH * min(panels, 3 if panels != 4 else 2)
    return 0.1 + ROW * math.ceil(len(set(labels)) / _entries(width))


def _entries(width: float) -> int:
    """How many entries of a legend fit side by side."""
    return max(1, int(width / ENTRY))


def _files(canvas: Any) -> dict[str, bytes]:
    return {form: _file(canvas, form) for form in FORMATS}


def _file(canvas: Any, form: str) -> bytes:
    buffer = io.BytesIO()
    # Without a date: the same numbers give the same file.
    dated = {"svg": "Date", "pdf": "CreationDate"}[form]
    canvas.savefig(buffer, format=form, metadata={dated: None})
    return buffer.getvalue()


def _title(text: str) -> str:
    return _text(shortened(text, LONGEST_TITLE))


def _text(text: str) -> str:
    """Text as it is: a dollar sign is not the start of a formula."""
    return text.replace("\\", "\\\\").replace("$", r"\$") if "$" in text else text
