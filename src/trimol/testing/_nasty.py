"""Jacobians that break careless methods, by what their rows have to do with each other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Input:
    """A Jacobian, and what is known of it.

    Attributes:
        name: What kind of Jacobian it is.
        jacobian: M × d, in float64.
        stationary: ``"weakly"``: some convex combination of the rows is zero (a Pareto-stationary
            point); ``"strongly"``: one with all weights positive; or ``"not"``.
        independent: The rows are linearly independent, so that a direction has one set of weights.
        scaled: The rows' sizes differ by orders of magnitude.
    """

    name: str
    jacobian: Tensor
    stationary: Literal["not", "weakly", "strongly"] = "not"
    independent: bool = False
    scaled: bool = False


def inputs(objectives: int = 3, size: int = 7, seed: int = 0) -> list[Input]:
    """One Jacobian of every kind; ``objectives`` of at least 2."""
    return [*_regular(objectives, size, seed), *_degenerate(objectives, size, seed)]


def _normal(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def _regular(m: int, d: int, seed: int) -> Iterator[Input]:
    """Independent rows: random, in conflict, correlated, of very different sizes."""
    normal = _normal(seed)
    rows = normal(m, d)
    common = normal(d)
    yield Input("random", rows, independent=True)
    yield Input("correlated", common + 0.1 * normal(m, d), independent=True)
    # Rows minus their mean have negative inner products on average; a little is left of the mean.
    yield Input("conflicting", rows - 0.9 * rows.mean(0), independent=True)
    for scale in (1e-8, 1e8):
        yield Input(f"random × {scale:g}", scale * rows, independent=True)
    spread = torch.logspace(-4, 4, m, dtype=torch.float64)
    yield Input("rows from 1e-4 to 1e4", spread[:, None] * rows, independent=True, scaled=True)


def _degenerate(m: int, d: int, seed: int) -> Iterator[Input]:
    """Zeros, duplicates, dependent rows; and the stationary points that they make."""
    normal = _normal(seed + 1)
    rows = normal(m, d)
    first_zero, twice = rows.clone(), rows.clone()
    first_zero[0] = 0
    twice[-1] = twice[0]
    yield Input("zeros", torch.zeros(m, d, dtype=torch.float64), stationary="strongly")
    yield Input("a zero row", first_zero, stationary="weakly")
    yield Input("a row twice", twice)
    yield Input("one row only", rows[:1].repeat(m, 1))
    opposed = rows.clone()
    opposed[-1] = -2 * opposed[0]
    yield Input("two rows opposed", opposed, stationary="strongly" if m == 2 else "weakly")
    for scale in (1e-8, 1.0, 1e8):
        name = "balanced" if scale == 1 else f"balanced × {scale:g}"
        yield Input(name, scale * (rows - rows.mean(0)), stationary="strongly")
    # Rank 1, all on one side: no stationary point, the min-norm point is the shortest row.
    yield Input("multiples of one row", torch.arange(1.0, m + 1).double()[:, None] * rows[0])
    # A thin half-space: dependent rows (rank 2) that share a descent direction.
    flat = torch.zeros(m, d, dtype=torch.float64)
    flat[:, 0] = torch.linspace(-1, 1, m, dtype=torch.float64)
    flat[:, 1] = 0.1
    yield Input("rank 2, nearly opposed", flat, independent=m == 2)
