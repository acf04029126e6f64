"""Jacobians that break careless methods, by what their rows have to do with each other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

Stationary = Literal["not", "weakly", "strongly"]
SCALES = (0.0, 1e-10, 1.0, 1e3, 1e5, 1e10, 1e15)


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
    stationary: Stationary = "not"
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


def low_rank(
    objectives: int, size: int, rank: int, stationary: Stationary | None = None, seed: int = 0
) -> Tensor:
    """A random Jacobian of this rank, in float64; stationary as told, or as it comes.

    J = U S Vᵀ with random singular values, and the left singular vectors decide. Strongly: all are
    orthogonal to one u > 0. Not at all: such a u is one of them, so that no w ≥ 0 has wᵀJ = 0.
    Weakly: u is split into two parts ≥ 0, the first orthogonal to all, the second one of them.

    Args:
        objectives: M, the rows.
        size: d, the columns.
        rank: At most M and d; at least 1 and at most M - 1 where a stationary point is asked for.
        stationary: What kind of point this is the Jacobian of.
        seed: The same Jacobian for the same seed.

    Example:
        >>> jacobian = low_rank(20, 10, 5, "strongly")
        >>> int(torch.linalg.matrix_rank(jacobian))
        5
    """
    normal = _normal(seed)
    u = normal(objectives).abs()
    first = torch.zeros_like(u)
    if stationary == "strongly":
        first = u
    elif stationary == "weakly":
        share = torch.randperm(objectives, generator=torch.Generator().manual_seed(seed))
        first[share[: 1 + seed % (objectives - 1)]] = 1
        first = first * u
    told = stationary in ("weakly", "not")
    fixed = torch.stack([first, u - first], 1)[:, : 2 if told else 1]
    fixed = fixed / fixed.norm(dim=0).clamp_min(1e-300)
    free = normal(objectives, rank - told)
    for _ in range(2):  # once more for what rounding leaves
        free = free - fixed @ (fixed.T @ free)
    left = torch.cat([fixed[:, 1:], torch.linalg.qr(free).Q], 1)
    right: Tensor = torch.linalg.qr(normal(size, rank)).Q.T
    return left * normal(rank).abs() @ right


def low_ranks(every: int = 1, start: int = 0) -> Iterator[Input]:
    """Jacobians of all shapes up to 20 × 10, all ranks, kinds of points, and scales up to 1e15.

    Some have a row of zeros or a row twice. There are 3 775; ``every`` so many from ``start`` on.
    """
    kinds: tuple[Stationary | None, ...] = (None, "not", "weakly", "strongly")
    shapes = ((m, d) for m in range(1, 21) for d in range(1, 11))
    told = (
        (m, d, rank, kind)
        for m, d in shapes
        for rank in range(min(m, d) + 1)
        for kind in kinds
        if kind is None or 0 < rank < m or (kind == "not" and rank == m)
    )
    return (_low_rank(seed, *one) for seed, one in islice(enumerate(told), start, None, every))


def _low_rank(seed: int, m: int, d: int, rank: int, kind: Stationary | None) -> Input:
    scale = SCALES[seed % len(SCALES)]
    rows = scale * low_rank(m, d, rank, kind, seed)
    name = f"{m} × {d}, rank {rank} × {scale:g}, stationary: {kind}"
    if m > 1 and seed % 5 == 0:
        rows[0] = 0
        return Input(f"{name}, a row of zeros", rows)
    if m > 1 and seed % 5 == 1:
        rows[-1] = rows[0]
        return Input(f"{name}, a row twice", rows)
    return Input(name, rows, kind or "not")
