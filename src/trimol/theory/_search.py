"""The schedule that makes the slowest of several errors as fast as can be.

Exponents are linear in (A, C, R, B, t), the exponents of the step sizes and of T in n (see
`orders`), so the best schedule is a linear program for every choice of branches. Ties are broken in
turn: the fewest steps, then whatever is asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
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

_NAMES = ("alpha", "gamma", "rho", "beta", "T")
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
        regularized: Whether ρ > 0 is to be found; otherwise ρ = 0.

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
    found: list[tuple[tuple[float, ...], Schedule]] = []
    for branches in product(*(order.branches for order in orders)):
        program = _Program(zero, t)
        if not program.demand(branches):
            continue
        schedule = program.solve(branches[: len(goals)], branches[len(goals) :], then)
        if schedule is not None:
            found.append((_merit(schedule, goals, then), schedule))
    if not found:
        raise BadValue("no schedule meets the demands")
    _, schedule = max(found, key=lambda pair: pair[0])
    return schedule, tuple(goal.exponent(schedule) for goal in goals)


def _mentions(orders: Sequence[Order], variable: str) -> bool:
    terms = [term for order in orders for branch in order.branches for term in branch.terms]
    powers = [term.rate if isinstance(term, Decay) else term for term in terms]
    return any(power[variable] for power in powers)


def _merit(
    schedule: Schedule, goals: Sequence[Order], then: Sequence[Sequence[Order]]
) -> tuple[float, ...]:
    least, *next_ones = (
        float(min(order.exponent(schedule) for order in group)) for group in (goals, *then)
    )
    return (least, -float(schedule.t), *next_ones)


@dataclass
class _Row:
    """coefficients · (A, C, R, B, t) + constant, an exponent."""

    coefficients: np.ndarray
    constant: float


class _Program:
    """A linear program over (A, C, R, B, t) with rows that must be at least something."""

    def __init__(self, zero: set[str], t: Fraction | None) -> None:
        self.zero, self.t = zero, t
        self.demands: list[tuple[_Row, float]] = []  # row ≥ level

    def demand(self, branches: Sequence[Branch]) -> bool:
        """Ask for what the branches need; False if they cannot be had."""
        for branch in branches:
            if branch.slow_weights and "gamma" not in self.zero:
                self.demands.append((self._row(Power.of(gamma=1, T=1)), 0.0))
            for term in branch.terms:
                if isinstance(term, Decay):
                    if self._vanishing(term.rate):
                        return False
                    # rate · T grows: its exponent, as a power of T, is at most −MARGIN.
                    slack = Power((*term.rate.powers, ("T", 1 - MARGIN)))
                    row = self._row(slack)
                    self.demands.append((_Row(-row.coefficients, -row.constant), 0.0))
                elif self._infinite(term):
                    return False
        return True

    def solve(
        self, goals: Sequence[Branch], bounded: Sequence[Branch], then: Sequence[Sequence[Order]]
    ) -> Schedule | None:
        """The schedule, level by level; None if there is none."""
        for branch in bounded:
            self.demands += [(row, 0.0) for row in self._rows(branch)]
        point = self._raise([row for branch in goals for row in self._rows(branch)])
        if point is None:
            return None
        fewest = _Row(-np.eye(5)[4], 0.0)
        point = self._raise([fewest])
        for group in then:
            options = [self._try(own) for own in product(*(order.branches for order in group))]
            level, reached, demands = max(options, key=lambda option: option[0])
            if level > -math.inf:
                point, self.demands = reached, demands
        return None if point is None else self._schedule(point)

    def _try(
        self, branches: Sequence[Branch]
    ) -> tuple[float, np.ndarray | None, list[tuple[_Row, float]]]:
        """How large the least exponent of branches can get, where, and what holds it there."""
        before, point = list(self.demands), None
        rows = [row for branch in branches for row in self._rows(branch)]
        if self.demand(branches) and rows:
            point = self._raise(rows)
        after, self.demands = self.demands, before
        if point is None:
            return -math.inf, None, before
        return min(float(row.coefficients @ point + row.constant) for row in rows), point, after

    def _raise(self, rows: Sequence[_Row]) -> np.ndarray | None:
        """The point with the largest least row, which is then held; None if there is none."""
        from scipy.optimize import linprog

        # Variables (A, C, R, B, t, e): maximize e with row − e ≥ 0 and the demands.
        upper, right = [], []
        for row in rows:
            upper.append(np.append(-row.coefficients, 1.0))
            right.append(row.constant)
        for row, level in self.demands:
            upper.append(np.append(-row.coefficients, 0.0))
            right.append(row.constant - level)
        result = linprog(
            np.append(np.zeros(5), -1.0),
            A_ub=np.array(upper),
            b_ub=np.array(right),
            bounds=[*[(0, None)] * 4, self._steps(), (None, 10.0)],
        )
        if result.status != 0 or result.x is None:
            return None
        point, level = result.x[:5], result.x[5]
        self.demands += [(row, level - _TOLERANCE) for row in rows]
        return np.asarray(point)

    def _steps(self) -> tuple[float, float]:
        low, high = (SHORTEST, LONGEST) if self.t is None else (self.t, self.t)
        return float(low), float(high)

    def _rows(self, branch: Branch) -> list[_Row]:
        powers = [t for t in branch.terms if isinstance(t, Power) and not self._vanishing(t)]
        return [self._row(power) for power in powers]

    def _row(self, power: Power) -> _Row:
        coefficients = np.array([float(power[name]) for name in _NAMES])
        coefficients[4] *= -1
        return _Row(coefficients, -float(power["n"]))

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


def _fraction(value: float | Fraction) -> Fraction:
    """The simple fraction that the solver's float stands for."""
    return Fraction(float(value)).limit_denominator(1000)
