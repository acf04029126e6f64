r"""The smallest change to a step after which it raises no loss, to first order.

The step is x ← x − s(g), s(g) = k + S g entry by entry (`trimol.gradients._updates`), with g the
gradient that the optimizer is given. Sought are multipliers μ ≥ 0 with

.. math:: e(\mu) = G^\top s(g + G\mu) \ge 0, \qquad \mu^\top e(\mu) = 0.

Where k and S do not depend on g this is the dual of the nearest step without conflict,
:math:`\min \|s' - s\|_{S^{-1}}` subject to :math:`G^\top s' \ge 0`: one exact quadratic problem
(`trimol.maths.cone.push`). Where they do (Adam's squares hold the gradient itself) the same two
conditions say that μ solves that problem in the metric of the very step that is taken. They are the
stationarity of :math:`\Phi(\mu) = \sum_j \int^{(g + G\mu)_j} s_j` over μ ≥ 0, whose gradient is e:
so Newton's method goes down on Φ, with a quadratic problem a step and a search along it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimol.gradients._params import flattened, split
from trimol.gradients._rows import combined_wide, gram, products
from trimol.gradients._stepping import Steps
from trimol.gradients._updates import Affine
from trimol.maths import cone

# A cosine below so many roundings, within these bounds, is no conflict.
_ROUNDINGS, _FINEST, _COARSEST = 16, 1e-12, 1e-5
_MOST = 60  # Newton steps
# The least slope of s(g) that Newton's method is given, relative to S: Adam's first steps, all
# signs, have next to none. Coarser where the finer one does not end.
_FLAT, _FLATTER, _PATIENCE = 0.1, 0.5, 15
_APART, _TINY = 1e-6, 1e-300  # of the two gradients that tell a slope, relative and at least
# A solution may lie where s(g) jumps, as far as floating point can tell: after a few steps, ask for
# a little more than no conflict, up to a cosine of 1 %.
_EASY, _FASTER, _LARGEST = 4, 4.0, 1e-2
# By how much, as a cosine, a loss may fall on account of μ; and how many steps that may take.
_TIGHT, _POLISH = 1e-8, 12
# A projection onto a cone is no longer than what is projected, in the metric. A step that is so
# many times longer is none: what moves beside the weighed parameters cannot be made up for.
_LONGEST = 3.0


@dataclass(frozen=True)
class Guarding:
    """A step that is to be guarded.

    Attributes:
        steps: The optimizer.
        params: All that it moves with these losses.
        gradients: What it is to be given of them.
        weighed: How many of them, the first, have gradients that the weights decide.
        falls: Gᵀs of a step on all of them.
        rows: Gᵀ on those that are weighed.
        rounding: The ε of the gradients' dtype.
        fine: Whether ``falls`` is as exact as ``rows`` (in half precision it is not).
    """

    steps: Steps
    params: Sequence[Tensor]
    gradients: Sequence[Tensor]
    weighed: int
    falls: Callable[[Sequence[Tensor]], Tensor]
    rows: Callable[[], Tensor]
    rounding: float
    fine: bool


@dataclass(frozen=True)
class Guarded:
    """What the guard came to.

    Attributes:
        outcome: ``"free"`` where the step raised no loss as it was, ``"changed"`` where it was
            made to, ``"failed"`` where no such step was found: then it is left as it was.
        effect: What the step does to each loss: above zero, it rises.
        added: μ, in float64.
        extra: G μ, for each parameter that is weighed.
    """

    outcome: Literal["free", "changed", "failed"]
    effect: Tensor
    added: Tensor
    extra: Sequence[Tensor] = ()


def guard(this: Guarding) -> Guarded:
    """The smallest change to the weighed gradients with which the step raises no loss.

    Where it raises none as it is, one tangent pass is all that this costs.
    """
    moved = this.steps.taken(this.params, this.gradients)
    falls = this.falls(moved).double()
    if this.fine and (falls >= 0).all():
        return Guarded("free", -falls, torch.zeros_like(falls))
    if not falls.isfinite().all():  # nor is the gradient: the step is what it is
        return Guarded("failed", -falls, torch.zeros_like(falls))
    rows, params = this.rows(), this.params[: this.weighed]
    beside = torch.zeros_like(falls)
    if this.weighed < len(this.params):
        beside = falls - products(rows, flattened(moved[: this.weighed])[None])[:, 0]
    start = flattened(this.gradients[: this.weighed])
    search = _Search(rows, start.double(), this.steps.flat(params), beside)
    finest = min(max(_ROUNDINGS * this.rounding, _FINEST), _COARSEST)
    if search.is_free(finest):
        return Guarded("free", -search.falls, search.added)
    search.run(finest)
    if not search.is_free(finest) or search.length > _LONGEST * search.first:
        return Guarded("failed", -falls, torch.zeros_like(falls))
    extra = split((search.gradient - search.start).to(start.dtype), params)
    return Guarded("changed", -search.falls, search.added, extra)


class _Search:
    """Newton's method on Φ: the μ it is at, and what the step with it does."""

    falls: Tensor  # e, what each loss falls by
    gradient: Tensor

    def __init__(
        self, rows: Tensor, start: Tensor, affine: Callable[[Tensor], Affine], beside: Tensor
    ) -> None:
        self.rows, self.start, self.affine, self.beside = rows, start, affine, beside
        self.norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        self.added = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        self.first = 0.0
        self._look(self.added)
        self.first = self.length

    def run(self, finest: float) -> None:
        """Go on until no loss rises, and none falls by more than it has to on account of μ."""
        margin, free, since = 2 * finest, None, 0
        for tries in range(_MOST):
            self.advance(margin, _FLAT if tries < _PATIENCE else _FLATTER)
            if self.is_free(finest):
                free = self.added
                if self.is_tight(margin):
                    return
            if free is not None:
                since += 1
                if since > _POLISH:
                    break
            elif tries >= _EASY:
                margin = min(margin * _FASTER, _LARGEST)
        if free is not None:
            self._look(free)

    def is_tight(self, margin: float) -> bool:
        """Whether what μ was added for is at the margin: with less of it, a loss would rise."""
        active = self.added > 0
        return bool((self.falls <= (2 * margin + _TIGHT) * self.sizes)[active].all())

    def _look(self, added: Tensor) -> None:
        """What becomes of g + G μ."""
        changed = self.start + combined_wide(added, self.rows) if added.any() else self.start
        known, self.scale = self.affine(changed)
        self.step = torch.addcmul(known, self.scale, changed)
        self.added, self.gradient = added, changed
        self.length = float(torch.linalg.vector_norm(self.step))
        self.falls = products(self.rows, self.step[None])[:, 0] + self.beside

    def _slope(self, flattest: float) -> Tensor:
        """ds/dg entry by entry, by a difference (√0 has no derivative, and needs none)."""
        size = torch.linalg.vector_norm(self.gradient) / len(self.gradient) ** 0.5
        apart = _APART * (self.gradient.abs() + size) + _TINY
        known, scale = self.affine(self.gradient + apart)
        there = torch.addcmul(known, scale, self.gradient + apart)
        slope = (there - self.step).div_(apart)
        return torch.clamp(slope, flattest * self.scale, 2 * self.scale)

    @property
    def sizes(self) -> Tensor:
        """What effects are small beside: ‖∇f_m‖ times the lengths of this step and the first."""
        return self.norms * (self.length + self.first)

    def is_free(self, finest: float) -> bool:
        """Whether no loss rises by more than that share of its size."""
        return bool((self.falls >= -finest * self.sizes).all())

    def advance(self, margin: float, flattest: float) -> None:
        """One Newton step towards e = margin · sizes, or as far along it as Φ falls."""
        curvature = gram(self.rows, self._slope(flattest))
        level = margin * self.sizes
        towards = self._solved(curvature, level)
        if towards is None:  # at a stationary point no more than zero can be reached
            level = torch.zeros_like(level)
            towards = self._solved(curvature, level, insist=False)
        assert towards is not None
        self._search(towards - self.added, level)

    def _solved(self, curvature: Tensor, level: Tensor, *, insist: bool = True) -> Tensor | None:
        """The μ at which the linear model reaches the level; None where it cannot."""
        base = self.falls - curvature @ self.added
        found = cone.push(curvature.cpu().numpy(), (level - base).cpu().numpy())
        solution = torch.from_numpy(found).to(self.added)
        reached = base + curvature @ solution
        missed = (reached < level - 1e-3 * level.abs() - 1e-9 * self.sizes).any()
        return None if insist and bool(missed) else solution

    def _search(self, direction: Tensor, level: Tensor) -> None:
        """Go along the direction, or a part of it, until Φ no longer falls much there."""
        origin, share = self.added, 1.0
        first = float(direction @ (self.falls - level))
        for _ in range(20):
            self._look(origin + share * direction)
            now = float(direction @ (self.falls - level))
            if now <= 0.5 * abs(first):
                return
            secant = -first / (now - first) if now > first else 0.5
            share *= min(max(secant, 0.1), 0.7)
