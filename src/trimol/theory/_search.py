"""The schedule that makes the slowest of several errors as fast as can be.

Exponents are linear in (A, C, R, B, t), the exponents of the step sizes and of T in n
(`trimol.theory._orders`), so the best schedule is a linear program for every choice of branches.
Ties are broken in turn: the fewest steps, then whatever is asked for.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from trimol._failures import BadValue
from trimol.theory._orders import Branch, Decay, Exponent, Order, Power, Schedule

# (1 − α)^T is gone for α = T^-a, a < 1, but slowly for a near 1, and an open end has no best point:
# a stays this much below. With a quarter, (1 − α)^(T/2) < n^-½ = α^½ from n = 100 on.
MARGIN = Fraction(1, 4)
# T is from n^(1/10) to n^2, the most that the paper uses.
SHORTEST, LONGEST = Fraction(1, 10), Fraction(2)

_NAMES = ("alpha", "gamma", "rho", "beta", "T", "n")
_TOLERANCE = 1e-9


def best(
    goals: Sequence[Order],
    *,
    t: Fraction | None = None,
    then: Sequence[Sequence[Order]] = (),
    bounded: Sequence[Order] = (),
    static: bool = False,
    regularized: bool = False,
) -> tuple[Schedule, tuple[Exponent, ...]]:
    """The schedule with the largest least exponent among ``goals``, and the goals' exponents.

    Args:
        goals: The errors that count.
        t: The exponent of T in n, where it is given.
        then: Groups whose slowest to make fast next, one group after the other, without loss for
            what came before.
        bounded: Errors whose bound must not grow.
        static: Whether γ = 0, as it is where no error depends on it.
        regularized: Whether to choose a ρ > 0; otherwise ρ = 0.

    Example:
        >>> opt = Order((Branch((Power.of(alpha="-1/2", T="-1/2"), Power.of(alpha="1/2"))),))
        >>> gen = Order((Branch((Power.of(T="1/2", n="-1/2"),)),))
        >>> schedule, (risk,) = best([opt + gen], static=True)
        >>> print(schedule, risk)
        α = Θ(T^-1/2), γ = 0, ρ = 0, T = Θ(n^2/3) 1/6
    """
    orders = [*goals, *bounded]
    off = {"gamma": static, "rho": not regularized}
    zero = {name for name, is_off in off.items() if is_off or not _mentions(orders, name)}
    schedules = []
    for branches in product(*(order.branches for order in orders)):
        program = _Program(zero, t)
        if program.demand(branches):
            schedule = program.solve(branches[: len(goals)], branches[len(goals) :], then)
            schedules += [] if schedule is None else [schedule]
    if not schedules:
        raise BadValue("no schedule meets the demands")
    schedule = max(schedules, key=lambda one: _merit(one, goals, then))
    return schedule, tuple(goal.exponent(schedule) for goal in goals)


def _mentions(orders: Sequence[Order], variable: str) -> bool:
    terms = [term for order in orders for branch in order.branches for term in branch.terms]
    powers = [term.rate if isinstance(term, Decay) else term for term in terms]
    return any(power[variable] for power in powers)


def _merit(
    schedule: Schedule, goals: Sequence[Order], then: Sequence[Sequence[Order]]
) -> tuple[float, ...]:
    """The least exponent of the goals, the fewest steps, then the least of each further group."""
    least, *next_ones = (
        float(min(order.exponent(schedule) for order in group)) for group in (goals, *then)
    )
    return (least, -float(schedule.t), *next_ones)


class _Program:
    """A linear program over (A, C, R, B, t).

    A row is an exponent, linear in these: five coefficients and a constant. The demands are rows
    that must be at least 0.
    """

    def __init__(self, zero: set[str], t: Fraction | None) -> None:
        self.zero, self.t = zero, t
        self.demands: list[np.ndarray] = []

    def demand(self, branches: Sequence[Branch]) -> bool:
        """Ask for what the branches need; False if they cannot be had."""
        for branch in branches:
            if branch.slow_weights and "gamma" not in self.zero:
                self.demands.append(_row(Power.of(gamma=1, T=1)))  # γT = O(1)
            for term in branch.terms:
                if isinstance(term, Decay):
                    if self._vanishing(term.rate):
                        return False
                    # rate · T grows: its exponent, as a power of T, is at most −MARGIN.
                    self.demands.append(-_row(Power((*term.rate.powers, ("T", 1 - MARGIN)))))
                elif self._infinite(term):
                    return False
        return True

    def solve(
        self, goals: Sequence[Branch], bounded: Sequence[Branch], then: Sequence[Sequence[Order]]
    ) -> Schedule | None:
        """The schedule, level by level; None if there is none."""
        self.demands += self._rows(bounded)
        if self._raise(self._rows(goals)) is None:
            return None
        point = self._raise([-np.eye(6)[4]])  # the fewest steps
        for group in then:
            options = [self._try(own) for own in product(*(order.branches for order in group))]
            level, reached, demands = max(options, key=lambda option: option[0])
            if level > -math.inf:
                point, self.demands = reached, demands
        return None if point is None else self._schedule(point)

    def _try(self, branches: Sequence[Branch]) -> tuple[float, np.ndarray | None, list[np.ndarray]]:
        """How large the least exponent of branches can get, where, and what holds it there."""
        before, point = list(self.demands), None
        rows = self._rows(branches)
        if self.demand(branches) and rows:
            point = self._raise(rows)
        after, self.demands = self.demands, before
        if point is None:
            return -math.inf, None, before
        return min(float(row[:5] @ point + row[5]) for row in rows), point, after

    def _raise(self, rows: Sequence[np.ndarray]) -> np.ndarray | None:
        """The point with the largest least row, which is then held; None if there is none."""
        from scipy.optimize import linprog

        # Variables (A, C, R, B, t, e): maximize e with row − e ≥ 0 and the demands ≥ 0.
        upper = [np.append(-row[:5], 1.0) for row in rows]
        upper += [np.append(-row[:5], 0.0) for row in self.demands]
        low, high = (SHORTEST, LONGEST) if self.t is None else (self.t, self.t)
        result = linprog(
            np.append(np.zeros(5), -1.0),
            A_ub=np.array(upper),
            b_ub=np.array([row[5] for row in [*rows, *self.demands]]),
            bounds=[*[(0, None)] * 4, (float(low), float(high)), (None, 10.0)],
        )
        if result.status != 0 or result.x is None:
            return None
        level = result.x[5] - _TOLERANCE
        self.demands += [np.append(row[:5], row[5] - level) for row in rows]
        return np.asarray(result.x[:5])

    def _rows(self, branches: Sequence[Branch]) -> list[np.ndarray]:
        """The exponents of all terms but those that vanish anyway."""
        terms = [term for branch in branches for term in branch.terms]
        return [_row(t) for t in terms if isinstance(t, Power) and not self._vanishing(t)]

    def _vanishing(self, power: Power) -> bool:
        return any(power[name] > 0 for name in self.zero)

    def _infinite(self, power: Power) -> bool:
        return any(power[name] < 0 for name in self.zero) and not self._vanishing(power)

    def _schedule(self, point: np.ndarray) -> Schedule:
        steps = _fraction(point[4]) if self.t is None else self.t
        own = [_fraction(_fraction(value) / steps) for value in point[:4]]
        gamma = math.inf if "gamma" in self.zero else own[1]
        rho = math.inf if "rho" in self.zero else own[2]
        return Schedule(a=own[0], c=gamma, t=steps, r=rho, b=own[3])


def _row(power: Power) -> np.ndarray:
    """e of Θ(n^-e): the powers of the step sizes, minus those of T and n."""
    a, c, r, b, steps, samples = (float(power[name]) for name in _NAMES)
    return np.array([a, c, r, b, -steps, -samples])


def _fraction(value: float | Fraction) -> Fraction:
    """The simple fraction that the solver's float stands for."""
    return Fraction(float(value)).limit_denominator(1000)
