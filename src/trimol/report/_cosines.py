"""The cosines between all pairs of gradients as a matrix, step by step, for many objectives."""

from dataclasses import dataclass
from itertools import combinations

from trimol.report._curves import MOST_PAIRS, thinned
from trimol.report._means import estimate
from trimol.report._runs import Comparison, Setting, trajectory

MOST_FRAMES = 30

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Matrices:
    """One setting's matrices.

    Attributes:
        label: The setting's label.
        steps: The step at which each matrix was measured, at or before the frame's.
        matrices: For every frame the mean cosines over seeds, below the diagonal; NaN elsewhere.
    """

    label: str
    steps: tuple[int, ...]
    matrices: tuple[Matrix, ...]


@dataclass(frozen=True)
class Cosines:
    """A figure of one matrix a setting, with the step to choose.

    Attributes:
        name: Its name in file names.
        title: Its heading.
        caption: What it says.
        objectives: The names of rows and columns.
        steps: The frames (at most 30 of the measured steps); the last is shown at first.
        settings: The settings' matrices.
    """

    name: str
    title: str
    caption: str
    objectives: tuple[str, ...]
    steps: tuple[int, ...]
    settings: tuple[Matrices, ...]


def cosines(comparison: Comparison) -> Cosines | None:
    """The matrices; None where `curves.conflicts` shows every pair, or nothing was measured."""
    pairs = list(combinations(range(len(comparison.objectives)), 2))
    if len(pairs) <= MOST_PAIRS:
        return None
    found = {s.label: _by_step(s, comparison.objectives) for s in comparison.settings}
    found = {label: by_step for label, by_step in found.items() if by_step}
    if not found:
        return None
    steps = tuple(thinned(sorted({s for by_step in found.values() for s in by_step}), MOST_FRAMES))
    return Cosines(
        "cosines",
        "Which gradients conflict?",
        "The cosine of every pair of gradients, the mean over seeds: orange pairs conflict, blue "
        "pairs agree. Move the slider to change the step.",
        comparison.objectives,
        steps,
        tuple(_frames(label, by_step, steps) for label, by_step in found.items()),
    )


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
            tuple(estimate(pairs.get((i, j), {}).get(step, ())).mean for j in size) for i in size
        )
        for step in steps
    }


def _frames(label: str, by_step: dict[int, Matrix], steps: tuple[int, ...]) -> Matrices:
    """What was measured last at each frame; the first measurement before there is one."""
    first = min(by_step)
    at = tuple(max((s for s in by_step if s <= step), default=first) for step in steps)
    return Matrices(label, at, tuple(by_step[step] for step in at))
