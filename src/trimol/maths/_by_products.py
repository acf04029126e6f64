r"""The min-norm point of the simplex from products Gλ, where G itself would be dear.

Convexity gives a certificate. With :math:`H = G + \rho I`, :math:`\lambda^*` the minimiser of
:math:`\lambda^\top H \lambda` over the simplex, and

.. math:: \text{gap}(\lambda) = 1 - \frac{\min_m (H\lambda)_m}{\lambda^\top H \lambda},

:math:`\lambda^\top H \lambda` exceeds its least value by at most 2 gap times itself and, for ρ = 0
and directions :math:`d = J^\top\lambda`, :math:`\|d - d^*\|^2 \le \text{gap}\,\|d\|^2`: one product
tells how good λ is, whatever it came of.

Here it comes of a `Surrogate` of G. Its min-norm point is the next λ, whose product makes it exact
in one more direction, until the gap is small enough.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from trimol.maths._numerics import EPS, ROUNDING, Array
from trimol.maths.min_norm import min_norm_one

# An entry of a product is wrong by fewer roundings than this of the lengths that it is made of.
_ROUNDINGS = 4
# How many of them tell a direction from the ones before, relative to its length, squared.
_NEW = 64
# One direction may change the size of what is guessed by so much.
_SHARPEST = 10.0


class Surrogate:
    r"""A Gramian that is exact in the directions seen, and guessed in the others.

    With S the directions and Y = GS, the gradients' parts in the span of :math:`J^\top S` have a
    Gramian that is known, and R, that of what is left of them, is not:

    .. math:: G = Y (S^\top Y)^{-1} Y^\top + R, \qquad R S = 0.

    R is guessed: what the same projection leaves of a guess of G, times the geometric mean of how
    much larger than guessed the lengths were that have been seen. (With a factor of one this is the
    update of BFGS, for several directions.) So it is positive semi-definite, maps S to Y, and is G
    after M independent directions.

    Args:
        guess: M × M, positive semi-definite.

    Example:
        >>> surrogate = Surrogate(np.eye(2))
        >>> surrogate.see(np.array([1.0, 0.0]), np.array([4.0, 2.0]), EPS)
        True
        >>> surrogate.gramian
        array([[4., 2.],
               [2., 5.]])
    """

    def __init__(self, guess: Array) -> None:
        self.guess, self.known, self.rest = guess, np.zeros_like(guess), guess
        self.seen: list[tuple[Array, Array]] = []

    @property
    def gramian(self) -> Array:
        """M × M: what is known and what is guessed of the rest."""
        return self.known + self.rest

    def see(self, weights: Array, product: Array, rounding: float) -> bool:
        """Take in that Gλ is ``product``; False if that tells nothing new, to ``rounding``."""
        s, y = weights, product
        for direction, image in self.seen:  # made conjugate: sᵀGs' = 0 with those before
            share = (image @ s) / (direction @ image)
            s, y = s - share * direction, y - share * image
        squared = float(s @ y)
        if not squared > max(_NEW * rounding * float(weights @ product), 0.0):
            return False
        self.rest = self._projected(s, squared)
        along = y / math.sqrt(squared)
        self.known = self.known + np.outer(along, along)
        self.seen.append((s, y))
        return True

    def _projected(self, s: Array, squared: float) -> Array:
        """What a new direction, whose length is known, leaves of the rest."""
        guessed = self.rest @ s
        expected = float(s @ guessed)
        if not expected > len(s) * EPS * self.rest.trace() * float(s @ s):
            return self.rest  # there is no rest in this direction
        along = guessed / math.sqrt(expected)
        factor = min(max(squared / expected, 1 / _SHARPEST), _SHARPEST)
        scale = float(factor ** (1 / (len(self.seen) + 1)))
        return (self.rest - np.outer(along, along)) * scale

    def remembered(self) -> Array:
        """A guess for the next batch, which has other noise: a third is this, the rest the last."""
        found, before = self.gramian, self.guess.trace()
        return found if before == 0 else (found + self.guess * (2 * found.trace() / before)) / 3


class Judged(NamedTuple):
    """What a product says of weights.

    Attributes:
        weights: Those of the direction.
        size: What the excess is relative to.
        excess: The duality gap, in the unit of products.
    """

    weights: Array
    size: float
    excess: float

    @property
    def gap(self) -> float:
        """The excess relative to the size: 0 where there is none."""
        if self.excess <= 0:
            return 0.0
        return self.excess / self.size if self.size > 0 else math.inf


class Sought(Protocol):
    """A problem over the simplex whose data are a Gramian."""

    def solve(self, gramian: Array) -> Array:
        """The point of the simplex that solves it."""

    def judge(self, point: Array, product: Array) -> Judged:
        """How far a point is from that, by the product G times the point."""


class MinNorm:
    """The shortest direction: min λᵀHλ, H = G + ρI."""

    def __init__(self, rho: float) -> None:
        self.rho = rho

    def solve(self, gramian: Array) -> Array:
        """Its min-norm point, whatever rounding has made of the Gramian."""
        return min_norm_one(gramian, self.rho, math.inf)

    def judge(self, point: Array, product: Array) -> Judged:
        """λᵀHλ − min_m (Hλ)_m."""
        slope = product + self.rho * point
        value = float(point @ slope)
        return Judged(point, value, value - float(slope.min()))


class Asked:
    """Products that are asked for, and all that they tell of the Gramian.

    Args:
        product: From λ to Gλ.
        guess: Of G: the better, the fewer products.
        rounding: The ε of the numbers that products are made of, once there is one.

    Attributes:
        count: How many there were.
        new: Whether the last told anything new.
    """

    def __init__(
        self, product: Callable[[Array], Array], guess: Array, rounding: Callable[[], float]
    ) -> None:
        self.product, self.rounding, self.surrogate = product, rounding, Surrogate(guess)
        self.count, self.new = 0, True

    def __call__(self, point: Array) -> Array:
        """Gλ."""
        image = self.product(point)
        self.new = self.surrogate.see(point, image, self.rounding())
        self.count += 1
        return image

    def noise(self, weights: Array) -> float:
        """How wrong an entry of Gλ may be: λ's gradients may cancel, their rounding does not."""
        lengths = np.sqrt(self.surrogate.gramian.diagonal().clip(0))
        return float(_ROUNDINGS * self.rounding() * (weights @ lengths) * lengths.max())


def approach(
    asked: Asked, sought: Sought, gap: float, more: Callable[[int], bool]
) -> tuple[Judged, bool]:
    """The point that is sought, to a relative gap, by products, as long as they pay.

    Args:
        asked: Gives products.
        sought: What is sought.
        gap: The largest that will do.
        more: Whether there may be another product, after so many of them.

    Returns:
        What the last product says of its point, and whether the gap is as small as was asked for,
        rounding included.

    Example:
        >>> gramian = np.array([[1.0, 0.5], [0.5, 4.0]])
        >>> asked = Asked(lambda point: gramian @ point, np.eye(2), rounding=lambda: EPS)
        >>> approach(asked, MinNorm(0.0), gap=0.1, more=lambda count: count < 9)[0].weights
        array([0.875, 0.125])
    """
    while True:
        point = sought.solve(asked.surrogate.gramian)
        found = sought.judge(point, asked(point))
        noise, allowed = asked.noise(found.weights), gap * found.size
        reached = found.excess + noise <= allowed
        if reached or not asked.new or noise > allowed or not more(asked.count):
            return found, reached


def exact_gap(gramian: Array, weights: Array, found: Judged) -> float:
    """The gap of weights where the Gramian is known: 0 where it is so to rounding.

    >>> gramian, weights = np.diag([1.0, 4.0]), np.array([0.5, 0.5])
    >>> exact_gap(gramian, weights, MinNorm(0.0).judge(weights, gramian @ weights))
    0.6
    """
    magnitude = np.abs(gramian) @ weights
    rounding = ROUNDING * float(magnitude.max() + weights @ magnitude + abs(found.size))
    return 0.0 if found.excess <= rounding else found.gap
