r"""Orders of growth: products of powers, and how they scale with the number of samples.

A step size is a power of n: with :math:`\alpha = \Theta(n^{-A})`, :math:`\gamma = \Theta(n^{-C})`,
:math:`\rho = \Theta(n^{-R})`, :math:`T = \Theta(n^t)`, a product of powers of them is
:math:`\Theta(n^{-e})` with e *linear* in (A, C, R, t). What a sum of them vanishes like is the
least of their e.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

from trimol._failures import BadValue

Exponent = Fraction | float  # a fraction, or ±∞
# The variables in the order in which a product shows them, and their symbols.
_SYMBOLS = {"alpha": "α", "gamma": "γ", "rho": "ρ", "beta": "β", "T": "T", "n": "n", "M": "M"}


@dataclass(frozen=True)
class Schedule:
    r"""How the step sizes and the number of steps grow with the number of samples.

    :math:`\alpha = \Theta(T^{-a}), \gamma = \Theta(T^{-c}), \rho = \Theta(T^{-r}), \beta =
    \Theta(T^{-b}), T = \Theta(n^t)`. An exponent of infinity means zero: c = ∞ is static weighting.

    Attributes:
        a: Of α, the step size of x.
        c: Of γ, the step size of λ.
        t: Of T in n.
        r: Of ρ; infinity is no regularization.
        b: Of β, MoCo's tracking rate.

    Example:
        >>> Schedule(a=Fraction(1, 2), c=Fraction(1, 4), t=Fraction(4, 5)).power("alpha")
        Fraction(-2, 5)
    """

    a: Exponent
    c: Exponent
    t: Exponent = Fraction(1)
    r: Exponent = math.inf
    b: Exponent = Fraction(0)

    def __post_init__(self) -> None:
        for name in ("a", "c", "r", "b"):
            if not getattr(self, name) >= 0:
                raise BadValue(f"{name} must be at least 0, found {getattr(self, name)}")
        if not 0 < self.t < math.inf:
            raise BadValue(f"t must be a finite number above 0, found {self.t}")

    def power(self, variable: str) -> Exponent:
        """The power of n that a variable grows like."""
        if variable in ("n", "M"):
            return Fraction(variable == "n")
        if variable == "T":
            return self.t
        own = {"alpha": self.a, "gamma": self.c, "rho": self.r, "beta": self.b}[variable]
        return -math.inf if own == math.inf else -own * self.t

    def __str__(self) -> str:
        steps = [("α", self.a), ("γ", self.c), ("ρ", self.r)] + [("β", self.b)] * bool(self.b)
        parts = [_schedule(symbol, exponent) for symbol, exponent in steps]
        return ", ".join([*parts, f"T = Θ({_factor('n', self.t)})"])


@dataclass(frozen=True)
class Power:
    """A product of powers, one term of a bound.

    Example:
        >>> start = Power.of(alpha="-1/2", T="-1/2")
        >>> str(start), start.exponent(Schedule(a=Fraction(1, 2), c=Fraction(1, 2)))
        ('α^-1/2 T^-1/2', Fraction(1, 4))
    """

    powers: tuple[tuple[str, Fraction], ...]

    @classmethod
    def of(cls, **powers: str | int) -> "Power":
        """From powers by variable, such as ``alpha="-1/2"``."""
        exact = {name: Fraction(power) for name, power in powers.items()}
        return cls(tuple((name, exact[name]) for name in _SYMBOLS if exact.get(name)))

    def __getitem__(self, variable: str) -> Fraction:
        return dict(self.powers).get(variable, Fraction(0))

    def to(self, power: Fraction) -> "Power":
        """This to a power."""
        return Power(tuple((name, own * power) for name, own in self.powers))

    def exponent(self, schedule: Schedule) -> Exponent:
        """e for which this is Θ(n^-e)."""
        return -sum((own * schedule.power(name) for name, own in self.powers), Fraction(0))

    def __str__(self) -> str:
        return " ".join(_factor(_SYMBOLS[name], own) for name, own in self.powers) or "1"


@dataclass(frozen=True)
class Decay:
    """(1 − rate)^(power · T): gone faster than any power of n if rate · T grows, and 1 if not.

    Example:
        >>> slow, fast = (Schedule(a=a, c=math.inf) for a in (Fraction(1), Fraction(1, 2)))
        >>> decay = Decay(Power.of(alpha=1), Fraction(1, 2))
        >>> str(decay), decay.exponent(slow), decay.exponent(fast)
        ('(1 − α)^(1/2 T)', Fraction(0, 1), inf)
    """

    rate: Power
    power: Fraction = Fraction(1)

    def to(self, power: Fraction) -> "Decay":
        """This to a power."""
        return Decay(self.rate, self.power * power)

    def exponent(self, schedule: Schedule) -> Exponent:
        """Infinity where it is gone, else 0."""
        lasting = self.rate.exponent(schedule) >= schedule.t
        return Fraction(0) if lasting else math.inf

    def __str__(self) -> str:
        power = "T" if self.power == 1 else f"({self.power} T)"
        return f"(1 − {str(self.rate).replace(' ', '')})^{power}"


Term = Power | Decay


@dataclass(frozen=True)
class Branch:
    """A sum of terms that bounds an error where a condition holds."""

    terms: tuple[Term, ...]
    slow_weights: bool = False  # whether it takes γ = O(1/T)

    def holds(self, schedule: Schedule) -> bool:
        """Whether the condition holds."""
        return not self.slow_weights or schedule.c >= 1

    def exponent(self, schedule: Schedule) -> Exponent:
        """e for which the sum is Θ(n^-e): that of the term that is largest."""
        return min(term.exponent(schedule) for term in self.terms)

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms))


@dataclass(frozen=True)
class Order:
    """How an error is bounded: by the least of the branches that hold.

    Attributes:
        branches: The branches. One at least holds always.
        theorem: Where it is stated.
        note: What is to be said about it.
    """

    branches: tuple[Branch, ...]
    theorem: str = field(default="", compare=False)
    note: str = field(default="", compare=False)

    def exponent(self, schedule: Schedule) -> Exponent:
        """e for which the bound is Θ(n^-e), logarithms aside."""
        return max(b.exponent(schedule) for b in self.branches if b.holds(schedule))

    def __add__(self, other: "Order") -> "Order":
        branches = (
            Branch((*own.terms, *its.terms), own.slow_weights or its.slow_weights)
            for own, its in product(self.branches, other.branches)
        )
        return Order(tuple(branches), f"{self.theorem}; {other.theorem}")

    def __str__(self) -> str:
        if len(self.branches) == 1:
            return str(self.branches[0])
        return f"min{{{', '.join(map(str, self.branches))}}}"


def shown(exponent: Exponent) -> str:
    """An exponent as text: a fraction if it is a simple one.

    >>> shown(Fraction(1, 8)), shown(Fraction(62217, 100000)), shown(math.inf)
    ('1/8', '0.622', '∞')
    """
    if isinstance(exponent, Fraction):
        return str(exponent) if exponent.denominator <= 100 else f"{float(exponent):.3g}"
    return ("∞" if exponent > 0 else "-∞") if math.isinf(exponent) else f"{exponent:.3g}"


def _schedule(symbol: str, exponent: Exponent) -> str:
    if exponent == math.inf:
        return f"{symbol} = 0"
    return f"{symbol} = Θ({'1' if exponent == 0 else _factor('T', -exponent)})"


def _factor(symbol: str, power: Exponent) -> str:
    return symbol if power == 1 else f"{symbol}^{shown(power)}"
