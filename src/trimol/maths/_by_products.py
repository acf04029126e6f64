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
from typing import NamedTuple

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
        if not squared > _NEW * rounding * float(weights @ product):
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
        return (self.rest - np.outer(along, along)) * factor ** (1 / (len(self.seen) + 1))

    def remembered(self) -> Array:
        """A guess for the next batch, which has other noise: half of this, half of the last one."""
        found, before = self.gramian, self.guess.trace()
        return found if before == 0 else (found + self.guess * (found.trace() / before)) / 2


class Approach(NamedTuple):
    """How far products led.

    Attributes:
        weights: λ of the last product.
        gap: Its gap.
        products: How many there were.
        reached: Whether the gap is as small as was asked for, rounding included.
        surrogate: What is known of the Gramian now.
    """

    weights: Array
    gap: float
    products: int
    reached: bool
    surrogate: Surrogate


def approach(
    product: Callable[[Array], Array],
    guess: Array,
    *,
    rho: float,
    gap: float,
    more: Callable[[int], bool],
    rounding: Callable[[], float],
) -> Approach:
    """The min-norm point to a relative gap, by products, as long as they pay.

    Args:
        product: From λ to Gλ.
        guess: Of G: the better, the fewer products.
        rho: ρ.
        gap: The largest that will do.
        more: Whether there may be another product, after so many of them, at least 1.
        rounding: The ε of the numbers that products are made of, once there is one.

    Example:
        >>> gramian = np.array([[1.0, 0.5], [0.5, 4.0]])
        >>> approach(lambda s: gramian @ s, np.eye(2), rho=0.0, gap=0.1,
        ...     more=lambda count: count < 9, rounding=lambda: EPS).weights
        array([0.875, 0.125])
    """
    surrogate, count = Surrogate(guess), 0
    while True:
        weights, count = min_norm_one(surrogate.gramian, rho, math.inf), count + 1
        found = product(weights)
        new = surrogate.see(weights, found, rounding())
        slope = found + rho * weights
        value, excess = float(weights @ slope), float(weights @ slope - slope.min())
        noise = _noise(surrogate.gramian, weights, rounding())
        reached = excess + noise <= gap * value
        if reached or not new or noise > gap * value or not more(count):
            return Approach(weights, _relative(excess, value), count, reached, surrogate)


def _noise(gramian: Array, weights: Array, rounding: float) -> float:
    """How wrong an entry of Gλ may be: λ's gradients may cancel, their rounding does not."""
    lengths = np.sqrt(gramian.diagonal().clip(0))
    return float(_ROUNDINGS * rounding * (weights @ lengths) * lengths.max())


def min_norm_gap(gramian: Array, weights: Array, rho: float) -> float:
    """The gap of weights where the Gramian is known: 0 where it is so to rounding.

    >>> min_norm_gap(np.diag([1.0, 4.0]), np.array([0.5, 0.5]), 0.0)
    0.6
    """
    slope = gramian @ weights + rho * weights
    magnitude = np.abs(gramian) @ weights + rho * weights
    excess = float(weights @ slope - slope.min())
    if excess <= ROUNDING * float(magnitude.max() + weights @ magnitude):
        return 0.0
    return _relative(excess, float(weights @ slope))


def _relative(excess: float, value: float) -> float:
    if excess <= 0:
        return 0.0
    return excess / value if value > 0 else math.inf
