"""The four regions of the paper's Figure 2: which two of the three errors a schedule keeps small.

The figure's table says, for strongly convex objectives:

=======  =====  =====  ========  =============================================  ===================
region   opt.   gen.   conflict  step sizes                                     steps and samples
=======  =====  =====  ========  =============================================  ===================
I        grows  falls  falls     γ = ω(α)                                       T = o(n)
II       falls  grows  falls     γ = ω(α)                                       T = ω(n)
III      falls  falls  grows     γ = o(1/T)                                     T = ω(n)
IV       falls  falls  falls     γ = Θ(α^½) = Θ(T^-¼), none at its best rate    T = Θ(n^⅘)
=======  =====  =====  ========  =============================================  ===================

IV as printed is one point, and lies inside I as printed. We tell the two apart by what the figure
is about: in IV the bounds of *all three* errors vanish, in I that of R_opt does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from trimol.theory._orders import Exponent, Schedule
from trimol.theory.rates import PLANNED, orders

Region = Literal["I", "II", "III", "IV"]
ERRORS = ("R_opt", "R_gen", "E_ca")
# The figure's region IV.
PRINTED_BALANCE = Schedule(a=Fraction(1, 2), c=Fraction(1, 4), t=Fraction(4, 5))


@dataclass(frozen=True)
class Cell:
    """A point of the diagram.

    Attributes:
        schedule: Where it is.
        region: Its region; None on a border and between regions.
        exponents: e by error, of `ERRORS`: the error's bound is Θ(n^-e).
    """

    schedule: Schedule
    region: Region | None
    exponents: dict[str, Exponent]


def region(schedule: Schedule) -> Region | None:
    """The region of a schedule; None on a border and between regions.

    Example:
        >>> half, quarter = Fraction(1, 2), Fraction(1, 4)
        >>> [region(Schedule(half, quarter, t)) for t in (Fraction(4, 5), Fraction(1), Fraction(2))]
        ['IV', None, 'II']
        >>> region(Schedule(half, Fraction(3, 2), Fraction(2))), region(Schedule(half, half))
        ('III', None)
    """
    return next((name for name, holds in _PREDICATES.items() if holds(schedule)), None)


def grid(
    c: Sequence[Exponent], t: Sequence[Exponent], *, a: Exponent = Fraction(1, 2)
) -> tuple[Cell, ...]:
    """The diagram at one α = Θ(T^-a): a cell for every pair of exponents, ``c`` varying fastest.

    Args:
        c: Exponents of γ = Θ(T^-c).
        t: Exponents of T = Θ(n^t).
        a: Exponent of α.

    Example:
        >>> cells = grid([Fraction(0), Fraction(2)], [Fraction(1, 2), Fraction(3, 2)])
        >>> [cell.region for cell in cells]
        ['I', None, 'II', 'III']
    """
    return tuple(cell(Schedule(a, own, steps)) for steps in t for own in c)


def cell(schedule: Schedule) -> Cell:
    """A schedule's region and exponents."""
    return Cell(schedule, region(schedule), _exponents(schedule))


def _exponents(schedule: Schedule) -> dict[str, Exponent]:
    bounded = orders(PLANNED, "SC")
    return {name: bounded[name].exponent(schedule) for name in ERRORS}


def _all_vanish(schedule: Schedule) -> bool:
    return all(exponent > 0 for exponent in _exponents(schedule).values())


def _tracks(schedule: Schedule) -> bool:
    """γ = ω(α): the weights move faster than x, and can follow the conflict-avoiding ones."""
    return schedule.c < schedule.a


_PREDICATES: dict[Region, Callable[[Schedule], bool]] = {
    "I": lambda s: _tracks(s) and s.t < 1 and not _all_vanish(s),
    "II": lambda s: _tracks(s) and s.t > 1,
    "III": lambda s: s.c > 1 and s.t > 1 and not _tracks(s),
    "IV": lambda s: _tracks(s) and s.t < 1 and _all_vanish(s),
}
