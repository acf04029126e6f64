"""The three errors of each method on three axes from one centre."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trimol.report._runs import Comparison, last
from trimol.report._style import GRID
from trimol.runs.statistics import Interval, finite_mean

AXES = (
    ("optimization", "R_opt"),
    ("generalization", "|R_gen|"),
    ("conflict avoidance", "E_ca"),
)
MOST_DECADES = 6
MOST_MARKS = 3  # more would be written one over the other
MOST_WHISKERS = 8  # settings; beyond, whiskers would hide the points
FARTHEST = 1.3  # where a whisker is cut that reaches far beyond the worst mean

Path = tuple[list[float], list[float]]  # the x and the y of a line


@dataclass(frozen=True)
class Corner:
    """One setting's error on one axis, and beside it the same divided by the largest mean."""

    value: Interval
    ratio: float
    low: float  # not below 0
    high: float


@dataclass(frozen=True)
class Shape:
    """One setting's three errors, in the order of ``AXES``."""

    label: str
    corners: tuple[Corner, ...]


@dataclass(frozen=True)
class Triangle:
    """A figure of three logarithmic axes."""

    name: str  # in file names
    title: str
    caption: str
    shapes: tuple[Shape, ...]
    decades: int  # powers of ten between the centre and the worst method

    def radius(self, ratio: float) -> float:
        """The distance from the centre: 1 for the worst mean, 0 for ``10^-decades`` of it and less.

        >>> three = Triangle("", "", "", (), decades=2)
        >>> three.radius(1.0), three.radius(0.1), three.radius(0.001), three.radius(0.0)
        (1.0, 0.5, 0.0, 0.0)
        """
        if not ratio > 0:
            return 0.0
        return min(FARTHEST, max(0.0, 1 + math.log10(ratio) / self.decades))

    def point(self, axis: int, ratio: float, shift: float = 0.0) -> tuple[float, float]:
        """Where a ratio lies on an axis; shifted sidewards, so that whiskers do not overlap."""
        angle = math.pi / 2 - axis * 2 * math.pi / len(AXES)
        along, across = (math.cos(angle), math.sin(angle)), (math.sin(angle), -math.cos(angle))
        radius = self.radius(ratio)
        return radius * along[0] + shift * across[0], radius * along[1] + shift * across[1]

    def outer(self, axis: int) -> float:
        """How far from the centre the farthest whisker on an axis ends; at least 1."""
        drawn = self.shapes if self.whiskers else ()
        return max([1.0, *(self.radius(shape.corners[axis].high) for shape in drawn)])

    def ends(self) -> list[tuple[float, float]]:
        """Where to write the axes' names: beyond their ends, and beyond the whiskers."""
        places = [self.point(axis, 1.0) for axis in range(len(AXES))]
        beyond = [self.outer(axis) + 0.07 for axis in range(len(AXES))]
        return [(r * x, r * y) for r, (x, y) in zip(beyond, places, strict=True)]

    def marks(self) -> list[tuple[float, float, str]]:
        """The powers of ten, each at the middle of its triangle's left side: x, y and text."""
        texts = ["worst", *(f"1/{10**power:,}" for power in range(1, self.decades))]
        tops = [self.point(0, 10.0**-power) for power in range(self.decades)]
        left = [self.point(2, 10.0**-power) for power in range(self.decades)]
        places = [
            ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2, text)
            for a, b, text in zip(tops, left, texts, strict=True)
        ]
        return places[:: math.ceil(self.decades / MOST_MARKS)]

    def window(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ends of a horizontal and an upright axis between which everything has room."""
        (_, top), *low = self.ends()
        wide = max(abs(x) for x, _ in low) + 0.42
        return (-wide, wide), (min(y for _, y in low) - 0.22, top + 0.22)

    def grid(self) -> list[tuple[list[float], list[float], str]]:
        """The triangles of the powers of ten and the axes: x, y and colour of each line."""
        axes = range(len(AXES))
        rings = [[self.point(a, 10.0**-p) for a in (*axes, 0)] for p in range(self.decades)]
        shades = ["#999", *[GRID] * (self.decades - 1), *["#bbb"] * len(AXES)]
        lines = [*rings, *([(0, 0), self.point(axis, 1.0)] for axis in axes)]
        return [(*_xy(line), shade) for line, shade in zip(lines, shades, strict=True)]

    def outline(self, i: int) -> Path:
        """The closed line through the i-th setting's corners."""
        corners = enumerate(self.shapes[i].corners)
        points = [self.point(axis, corner.ratio, self.shift(i)) for axis, corner in corners]
        return _xy([*points, points[0]])

    def bars(self, i: int) -> list[Path]:
        """The i-th setting's intervals, where they are known and drawn."""
        return [
            _xy(self.point(axis, end, self.shift(i)) for end in (corner.low, corner.high))
            for axis, corner in enumerate(self.shapes[i].corners)
            if self.whiskers and corner.value.half is not None
        ]

    def shift(self, i: int) -> float:
        """How far to the side the i-th setting is drawn, so that whiskers stand side by side."""
        if not self.whiskers:
            return 0.0
        return 0.024 * (i - (len(self.shapes) - 1) / 2)

    @property
    def whiskers(self) -> bool:
        """Whether the intervals are drawn, too."""
        return len(self.shapes) <= MOST_WHISKERS


def triangle(comparison: Comparison) -> Triangle | None:
    """The three errors at the end of the runs, each relative to the worst method's.

    None without two settings that have measured all three.
    """
    measured = {
        setting.label: [finite_mean(last(setting.runs, column)) for _, column in AXES]
        for setting in comparison.ranked
    }
    full = {label: errors for label, errors in measured.items() if all(e.n for e in errors)}
    if len(full) < 2:
        return None
    worst = [max(errors[axis].estimate for errors in full.values()) for axis in range(len(AXES))]
    shapes = tuple(
        Shape(label, tuple(map(_corner, errors, worst))) for label, errors in full.items()
    )
    smallest = min((c.ratio for shape in shapes for c in shape.corners if c.ratio > 0), default=1.0)
    decades = min(MOST_DECADES, max(1, math.ceil(-math.log10(smallest) + 0.1)))
    return Triangle(
        "triangle",
        "The three-way trade-off",
        "Each error at the end of training, relative to the worst method on that axis. The axes "
        "are logarithmic: the outer triangle is the worst method, the centre "
        f"1/{10**decades:,} of it or less. Nearer the centre is better. Compare methods along an "
        "axis; areas mean nothing. Conflict avoidance: the distance from the conflict-avoiding "
        f"direction. {_bars(len(shapes))}",
        shapes,
        decades,
    )


def _bars(settings: int) -> str:
    if settings <= MOST_WHISKERS:
        return "Thick bars are the 95 % confidence intervals of the means."
    return (
        f"Intervals are left out for more than {MOST_WHISKERS} methods; the table above has them."
    )


def _xy(points: Iterable[tuple[float, float]]) -> Path:
    x, y = zip(*points, strict=True)
    return list(x), list(y)


def _corner(value: Interval, worst: float) -> Corner:
    scale = worst or 1.0  # all zero: nobody is worse than anybody
    low, high = value.band
    return Corner(value, value.estimate / scale, max(0.0, low / scale), high / scale)
