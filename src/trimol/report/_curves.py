"""What the line plots show, as plain numbers: mean over seeds and its interval, step by step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from trimol.report._means import estimate
from trimol.report._runs import Comparison, Setting, columns, trajectory

MOST_POINTS = 300
# Up to four objectives, each pair of gradients gets a panel; beyond, `cosines` shows a matrix.
MOST_PAIRS = 6

Scale = Literal["linear", "log"]
Progress = Literal["steps", "samples"]


@dataclass(frozen=True)
class Line:
    """One setting's number over the steps.

    Attributes:
        label: The setting's label.
        kind: Which of the figure's alternatives it belongs to; empty if it is always shown.
        reference: Whether it is something that the panel's main lines are to be held against.
        steps: Where it was measured (at most 300 of the steps).
        samples: The training samples that these steps took.
        mean: The mean over the seeds with a finite value; NaN where there is none.
        low: The lower end of the 95 % interval of the mean; the mean itself for a single seed.
        high: Its upper end.
        n: How many seeds are in the mean.
    """

    label: str
    kind: str
    reference: bool
    steps: tuple[int, ...]
    samples: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: tuple[int, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: What is shown.
        y: The y axis' label, with its unit.
        lines: What is drawn.
        fixed: The ends of the y axis, where the quantity has natural ones.
    """

    title: str
    y: str
    lines: tuple[Line, ...]
    fixed: tuple[float, float] | None = None

    @property
    def logarithmic(self) -> bool:
        """Whether a logarithmic axis makes sense: no mean is negative, not all are zero."""
        finite = [value for line in self.lines for value in line.mean if math.isfinite(value)]
        return bool(finite) and min(finite) >= 0 and max(finite) > 0


@dataclass(frozen=True)
class Curves:
    """A figure of panels with the steps, or the samples that they took, on the x axis.

    Attributes:
        name: Its name in file names.
        title: Its heading.
        caption: What it says, in a sentence or two.
        panels: The panels.
        kinds: Alternatives to choose from; the first is shown at first.
        scales: The y axes to choose from, the first one first.
        progress: The x axes to choose from: what steps and samples say differs only if some method
            takes more samples a step than others, and then samples are the fair comparison.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    kinds: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = ("linear",)
    progress: tuple[Progress, ...] = ("steps",)


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
        for objective in comparison.objectives
    ]
    present = {line.kind for panel in panels for line in panel.lines}
    return _figure(
        "losses",
        "Losses",
        "The mean loss over all of the data, one panel per objective.",
        panels,
        kinds=tuple(kind for kind in kinds if kind in present),
        scales=("linear", "log"),
    )


def metrics(comparison: Comparison) -> Curves | None:
    """The task's metrics on test data, one a panel."""
    panels = [
        Panel(name, name, _lines(comparison, f"metric/{name}"))
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
        Panel("E_ca: conflict", "‖∇F_S (λ − λ*)‖²", _lines(comparison, "E_ca")),
        Panel("E_caw: conflict of weights", "‖λ − λ*‖²", _lines(comparison, "E_caw")),
    ]
    caption = (
        "How far training is from Pareto stationarity on the training data (R_opt) and on test "
        "data (R_pop), their difference, and how far the weights λ are from those that avoid "
        "conflict, λ*. Smaller is better."
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
        for objective in comparison.objectives
    ]
    return _figure(
        "weights",
        "Weights",
        "The method's weight λ of each objective (solid), and the weight λ* that would avoid "
        "conflict on the whole training data (dashed).",
        panels,
    )


def conflicts(comparison: Comparison) -> Curves | None:
    """The share of pairs of gradients in conflict; few objectives: every pair's cosine, too."""
    pairs = list(combinations(comparison.objectives, 2))
    panels = [
        Panel(
            "Pairs in conflict",
            "share of pairs with cosine < 0",
            _lines(comparison, "conflicting"),
            fixed=(0.0, 1.0),
        )
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


def thinned(steps: Sequence[int], most: int = MOST_POINTS) -> list[int]:
    """At most so many of the steps, evenly spaced in their order, the first and last among them.

    >>> thinned(range(0, 1001, 10), most=5)
    [0, 250, 500, 750, 1000]
    """
    if len(steps) <= most:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)]


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
    found = [estimate(values[step]) for step in steps]
    if not any(estimate.n for estimate in found):
        return None
    return Line(
        label=setting.label,
        kind=kind,
        reference=reference,
        steps=tuple(steps),
        samples=tuple(estimate(samples.get(step, ())).mean for step in steps),
        mean=tuple(e.mean for e in found),
        low=tuple(e.low for e in found),
        high=tuple(e.high for e in found),
        n=tuple(e.n for e in found),
    )


def _unit(comparison: Comparison, objective: str) -> tuple[float, float] | None:
    """Weights on the simplex have an axis from 0 to 1; some methods' weights leave it."""
    values = [
        value
        for setting in comparison.settings
        for found in trajectory(setting.runs, f"weight/{objective}").values()
        for value in found
        if math.isfinite(value)
    ]
    inside = bool(values) and min(values) >= -1e-6 and max(values) <= 1 + 1e-6
    return (0.0, 1.0) if inside else None
