"""What the plots over training show, as plain numbers: means over seeds and their intervals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from trimol.report._runs import Comparison, Setting, columns, trajectory
from trimol.runs.statistics import finite_mean

MOST_POINTS = 300  # of the measured steps, in a line
MOST_FRAMES = 30  # and in a figure of matrices
MOST_PANELS = 64  # a thousand would take minutes to draw, and nobody looks at them
# Up to four objectives, each pair of gradients gets a panel; beyond, `cosines` shows a matrix.
MOST_PAIRS = 6

Scale = Literal["linear", "log"]
Progress = Literal["steps", "samples"]
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Line:
    """One setting's number over the steps."""

    label: str
    kind: str  # which of the figure's alternatives it belongs to; empty if it is always shown
    reference: bool  # whether it is something that the panel's main lines are to be held against
    steps: tuple[int, ...]  # where it was measured
    samples: tuple[float, ...]  # the training samples that these steps took
    mean: tuple[float, ...]  # over the seeds with a finite value; NaN where there is none
    low: tuple[float, ...]  # end of the mean's 95 % interval; the mean itself for a single seed
    high: tuple[float, ...]
    n: tuple[int, ...]  # how many seeds are in the mean


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    y: str  # the y axis' label, with its unit
    lines: tuple[Line, ...]
    fixed: tuple[float, float] | None = None  # the y axis' ends, where there are natural ones
    share: bool = False  # whether it may be a share, as accuracies are

    @property
    def possible(self) -> tuple[float, float]:
        """Where a band ends at the latest: at 0 if no mean is below, of shares at 1."""
        means = [value for line in self.lines for value in line.mean if math.isfinite(value)]
        low = 0.0 if min(means, default=-1.0) >= 0 else -math.inf
        high = 1.0 if self.share and low == 0 and max(means) <= 1 else math.inf
        return low, high

    @property
    def logarithmic(self) -> bool:
        """Whether a logarithmic axis makes sense: no mean is negative, not all are zero."""
        finite = [value for line in self.lines for value in line.mean if math.isfinite(value)]
        return bool(finite) and min(finite) >= 0 and max(finite) > 0

    @property
    def all_zero(self) -> bool:
        """Whether there is nothing but zeros: an axis around them would go below."""
        ends = [value for line in self.lines for value in (*line.mean, *line.low, *line.high)]
        return {value for value in ends if math.isfinite(value)} == {0.0}

    @property
    def limits(self) -> tuple[float, float] | None:
        """The y axis' natural ends, with a little room."""
        ends = self.fixed or ((0.0, 1.0) if self.all_zero else None)
        if ends is None:
            return None
        low, high = ends
        return low - 0.03 * (high - low), high + 0.03 * (high - low)

    @property
    def floor(self) -> float:
        """Where a logarithmic axis cuts a band that reaches to zero: a third below the means."""
        return min(self.positive, default=1.0) / 3

    @property
    def positive(self) -> list[float]:
        """All means that a logarithmic axis can show."""
        means = (value for line in self.lines for value in line.mean)
        return [value for value in means if value > 0 and math.isfinite(value)]


@dataclass(frozen=True)
class Curves:
    """A figure of panels with the steps, or the samples that they took, on the x axis.

    Of what there is to choose from, the first is shown at first. What steps and samples say differs
    only if some method takes more samples a step than others; samples are then the fair comparison.
    """

    name: str  # in file names
    title: str
    caption: str
    panels: tuple[Panel, ...]
    kinds: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = ("linear",)
    progress: tuple[Progress, ...] = ("steps",)

    def shown(self, line: Line) -> bool:
        """Whether a line is shown at first."""
        return line.kind in ("", *self.kinds[:1])


@dataclass(frozen=True)
class Matrices:
    """One setting's cosines between all pairs of gradients, frame by frame."""

    label: str
    steps: tuple[int, ...]  # at which each was measured, at or before the frame's
    matrices: tuple[Matrix, ...]  # means over seeds, below the diagonal; NaN elsewhere


@dataclass(frozen=True)
class Cosines:
    """A figure of one matrix a setting, with the step to choose; the last is shown at first."""

    name: str  # in file names
    title: str
    caption: str
    objectives: tuple[str, ...]
    steps: tuple[int, ...]
    settings: tuple[Matrices, ...]


def losses(comparison: Comparison) -> Curves | None:
    """The losses on test and training data, an objective a panel."""
    kinds = {"test": "test_loss/", "train": "loss/"}
    panels = [
        Panel(
            objective,
            "mean loss",
            tuple(
                line
                for kind, prefix in kinds.items()
                for line in _lines(comparison, prefix + objective, kind=kind)
            ),
        )
        for objective in comparison.objectives[:MOST_PANELS]
    ]
    present = {line.kind for panel in panels for line in panel.lines}
    return _figure(
        "losses",
        "Losses",
        f"The mean loss over all of the data, one panel per objective.{_left_out(comparison)}",
        panels,
        kinds=tuple(kind for kind in kinds if kind in present),
        scales=("linear", "log"),
    )


def metrics(comparison: Comparison) -> Curves | None:
    """The task's metrics on test data, one a panel."""
    panels = [
        Panel(name, name, _lines(comparison, f"metric/{name}"), share=True)
        for name in columns(comparison, "metric/")
    ]
    return _figure("metrics", "Metrics", "The task's own metrics, on test data.", panels)


def errors(comparison: Comparison) -> Curves | None:
    """R_opt, R_pop, |R_gen| beside its bound, and E_ca."""
    bound = _lines(comparison, "gen_bound", reference=True)
    panels = [
        Panel("R_opt: optimization", "min‖∇F_S λ‖", _lines(comparison, "R_opt")),
        Panel("R_pop: population", "min‖∇F_test λ‖", _lines(comparison, "R_pop")),
        Panel("|R_gen|: generalization", "|R_pop − R_opt|", _lines(comparison, "|R_gen|") + bound),
        Panel(
            "E_ca: conflict avoidance",
            "‖∇F_S (λ − λ*)‖²",
            _lines(comparison, "E_ca"),
        ),
        Panel("E_caw: conflict avoidance, weights", "‖λ − λ*‖²", _lines(comparison, "E_caw")),
    ]
    caption = (
        "How far training is from Pareto stationarity on the training data (R_opt) and on test "
        "data (R_pop), their difference, and the (squared) distance of the direction that λ gives "
        "from the conflict-avoiding one, which λ* gives (E_ca). Smaller is better; R_opt may rise "
        "while training leaves a flat start for steeper slopes."
    )
    if bound:
        caption += " Dashed beside |R_gen|: its bound ‖∇F_test − ∇F_S‖."
    return _figure("errors", "The three errors", caption, panels, scales=("log", "linear"))


def weights(comparison: Comparison) -> Curves | None:
    """λ beside λ*, an objective a panel."""
    if len(comparison.objectives) < 2:
        return None
    panels = [
        Panel(
            objective,
            "weight",
            _lines(comparison, f"weight/{objective}")
            + _lines(comparison, f"avoiding/{objective}", reference=True),
            fixed=_unit(comparison, objective),
        )
        for objective in comparison.objectives[:MOST_PANELS]
    ]
    return _figure(
        "weights",
        "Weights",
        "The method's weight λ of each objective (solid), and the weight λ* that MGDA would choose "
        f"on all training data (dashed).{_left_out(comparison)}",
        panels,
    )


def conflicts(comparison: Comparison) -> Curves | None:
    """The share of pairs of gradients in conflict; few objectives: every pair's cosine, too."""
    pairs = list(combinations(comparison.objectives, 2))
    summed = {"least_cosine": "Least of all pairs", "mean_cosine": "Mean over all pairs"}
    panels = [
        Panel(
            "Pairs in conflict",
            "share of pairs with cosine < 0",
            _lines(comparison, "conflicting"),
            fixed=(0.0, 1.0),
        ),
        *(
            Panel(title, "cosine", _lines(comparison, name), fixed=(-1.0, 1.0))
            for name, title in summed.items()
        ),
    ]
    if len(pairs) <= MOST_PAIRS:
        panels += [
            Panel(f"{a} · {b}", "cosine", _lines(comparison, f"cosine/{a}/{b}"), fixed=(-1.0, 1.0))
            for a, b in pairs
        ]
    return _figure(
        "conflicts",
        "Do the gradients conflict?",
        "Cosines between the objectives' gradients over the whole training data: below zero, a "
        "small step along one gradient alone makes the other loss worse.",
        panels,
    )


def cosines(comparison: Comparison) -> Cosines | None:
    """The matrices; None where `conflicts` shows every pair, or none was measured."""
    pairs = list(combinations(range(len(comparison.objectives)), 2))
    if len(pairs) <= MOST_PAIRS or not columns(comparison, "cosine/"):
        return None
    measured = {s.label: _by_step(s, comparison.objectives) for s in comparison.settings}
    measured = {label: by_step for label, by_step in measured.items() if by_step}
    if not measured:
        return None
    every = sorted({step for by_step in measured.values() for step in by_step})
    steps = tuple(thinned(every, MOST_FRAMES))
    return Cosines(
        "cosines",
        "Which gradients conflict?",
        "The cosine of every pair of gradients, the mean over seeds: orange pairs conflict, blue "
        "pairs agree. Move the slider to change the step.",
        comparison.objectives,
        steps,
        tuple(_frames(label, by_step, steps) for label, by_step in measured.items()),
    )


def thinned(steps: Sequence[int], most: int = MOST_POINTS) -> list[int]:
    """At most so many of the steps, evenly spaced in their order, the first and last among them.

    >>> thinned(range(0, 1001, 10), most=5)
    [0, 250, 500, 750, 1000]
    """
    if len(steps) <= most:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)]


def _left_out(comparison: Comparison) -> str:
    """Say that some objectives have no panel, where that is so."""
    many = len(comparison.objectives)
    if many <= MOST_PANELS:
        return ""
    return f" The first {MOST_PANELS} of {many}: all numbers are in metrics.parquet."


def _figure(
    name: str,
    title: str,
    caption: str,
    panels: Iterable[Panel],
    *,
    kinds: tuple[str, ...] = (),
    scales: tuple[Scale, ...] = ("linear",),
) -> Curves | None:
    """The figure, without empty panels; None if all are."""
    drawn = tuple(panel for panel in panels if panel.lines)
    if not any(panel.logarithmic for panel in drawn):
        scales = ("linear",)
    progress = _progress(line for panel in drawn for line in panel.lines)
    return Curves(name, title, caption, drawn, kinds, scales, progress) if drawn else None


def _progress(lines: Iterable[Line]) -> tuple[Progress, ...]:
    lasts = {(line.steps[-1], line.samples[-1]) for line in lines if line.steps[-1] > 0}
    rates = {samples / step for step, samples in lasts}
    if not all(map(math.isfinite, rates)) or max(rates, default=0) <= 1.01 * min(rates, default=0):
        return ("steps",)
    return ("samples", "steps")


def _lines(
    comparison: Comparison, column: str, *, kind: str = "", reference: bool = False
) -> tuple[Line, ...]:
    lines = (_line(setting, column, kind, reference) for setting in comparison.settings)
    return tuple(line for line in lines if line is not None)


def _line(setting: Setting, column: str, kind: str, reference: bool) -> Line | None:
    values, samples = (trajectory(setting.runs, name) for name in (column, "samples"))
    steps = thinned(list(values))
    means = [finite_mean(values[step]) for step in steps]
    if not any(mean.n for mean in means):
        return None
    return Line(
        label=setting.label,
        kind=kind,
        reference=reference,
        steps=tuple(steps),
        samples=tuple(finite_mean(samples.get(step, ())).estimate for step in steps),
        mean=tuple(mean.estimate for mean in means),
        low=tuple(mean.band[0] for mean in means),
        high=tuple(mean.band[1] for mean in means),
        n=tuple(mean.n for mean in means),
    )


def _unit(comparison: Comparison, objective: str) -> tuple[float, float] | None:
    """Weights on the simplex have an axis from 0 to 1; some methods' weights leave it."""
    values = [
        value
        for setting in comparison.settings
        for over_seeds in trajectory(setting.runs, f"weight/{objective}").values()
        for value in over_seeds
        if math.isfinite(value)
    ]
    inside = bool(values) and min(values) >= -1e-6 and max(values) <= 1 + 1e-6
    return (0.0, 1.0) if inside else None


def _by_step(setting: Setting, objectives: tuple[str, ...]) -> dict[int, Matrix]:
    """The mean matrix at every step with a measurement."""
    size = range(len(objectives))
    pairs = {
        (j, i): trajectory(setting.runs, f"cosine/{objectives[i]}/{objectives[j]}")
        for i, j in combinations(size, 2)
    }
    steps = sorted({step for values in pairs.values() for step in values})
    return {
        step: tuple(
            tuple(finite_mean(pairs.get((i, j), {}).get(step, ())).estimate for j in size)
            for i in size
        )
        for step in steps
    }


def _frames(label: str, by_step: dict[int, Matrix], steps: tuple[int, ...]) -> Matrices:
    """What was measured last at each frame; the first measurement before there is one."""
    first = min(by_step)
    at = tuple(max((s for s in by_step if s <= step), default=first) for step in steps)
    return Matrices(label, at, tuple(by_step[step] for step in at))
