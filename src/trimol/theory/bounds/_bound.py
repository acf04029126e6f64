"""`Bound`: a number together with the theorem that it comes from."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar, get_args

from trimol import _checks as checks
from trimol._docstrings import arguments, with_arguments
from trimol._failures import BadValue

Reading = Literal["derived", "printed"]
_ROUNDING = 1e-12

SMOOTH = "every ∇f_{z,m} is ℓ_{f,1}-Lipschitz (Assumption 1)"
CONVEX = "every f_{z,m} is μ-strongly convex (Assumption 2)"
LIPSCHITZ = "every f_{z,m} is ℓ_f-Lipschitz (Assumption 3), or so along the iterates"
THREE_SAMPLES = "x moves along a sample that is independent of those that move λ (three draws)"

# What the theorems' arguments are, where a function's own docstring does not say more.
_ARGUMENTS = {
    "constants": "Those of the problem.",
    "alpha": "Step size of x.",
    "gamma": "Step size of λ.",
    "T": "Steps.",
    "rho": "Regularization of λ.",
    "samples": "How many samples a step looks at, all draws together: 3 in the paper's proofs.",
    "tracking": "τ, the mean squared error of the estimates.",
    "growth": "By how many samples the batch grows with every step.",
    "reading": '``"derived"`` for what the proof gives, ``"printed"`` for what the paper prints.',
}
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Given = ParamSpec("_Given")


@dataclass(frozen=True)
class Limit:
    """A limit that a theorem sets, met.

    Attributes:
        what: The limited quantity, as an expression of arguments.
        value: Its value.
        most: The largest value for which the theorem holds.
        where: The limit as the theorem writes it.
    """

    what: str
    value: float
    most: float
    where: str

    def check(self, theorem: str) -> None:
        """Raise where the limit is not met, rounding aside."""
        if not self.value <= self.most * (1 + _ROUNDING):
            raise BadValue(
                f"{self.what} must be at most {self.where} = {self.most:.6g} for {theorem}, found "
                f"{self.value:.6g}"
            )


@dataclass(frozen=True)
class Bound:
    """What a theorem says about an error; ``float(bound)`` is the number.

    Attributes:
        of: What is bounded, in words.
        terms: What the bound is made of: ``value`` is the sum of them, to the power ``power``.
        theorem: Its name in the paper, and its label there.
        assumptions: What must hold and cannot be checked here.
        limits: The limits on step sizes and lengths, all met.
        power: ½ where the theorem bounds the square of the error.
        lower: Whether the error is at least, not at most, the value (for the theorem's example).
        corrections: Where this differs from what the paper prints, in words.

    Example:
        >>> bound = Bound("a distance", {"near": 9.0, "far": 16.0}, "Pythagoras", power=0.5)
        >>> float(bound), bound.largest
        (5.0, 'far')
    """

    of: str
    terms: dict[str, float]
    theorem: str
    assumptions: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    power: float = 1.0
    lower: bool = False
    corrections: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for limit in self.limits:
            limit.check(self.theorem)

    @property
    def value(self) -> float:
        """The bound."""
        return float(math.fsum(self.terms.values()) ** self.power)

    @property
    def largest(self) -> str:
        """The name of the term that decides."""
        return max(self.terms, key=lambda name: self.terms[name])

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        sign = "≥" if self.lower else "≤"
        parts = " + ".join(f"{name} {value:.3g}" for name, value in self.terms.items())
        root = " (its square: " if self.power == 0.5 else " ("
        return f"{self.of} {sign} {self.value:.3g}{root}{parts}) by {self.theorem}"


def documented(function: _Function) -> _Function:
    """Complete the Args of a docstring, in the signature's order, by `_ARGUMENTS`."""
    known = _ARGUMENTS | arguments(function.__doc__)
    names = inspect.signature(function).parameters
    function.__doc__ = with_arguments(function.__doc__, {name: known[name] for name in names})
    return function


def arguments_of(
    original: Callable[_Given, Any],
) -> Callable[[Callable[..., Bound]], Callable[_Given, Bound]]:
    """Let a function that hands its arguments on have those of another, in `help` and for types."""

    def give(function: Callable[..., Bound]) -> Callable[_Given, Bound]:
        function.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return documented(function)

    return give


def check_steps(alpha: float, gamma: float, T: int, rho: float = 0.0) -> None:
    """Raise unless step sizes and length make sense, whatever the theorem."""
    checks.positive("alpha", alpha)
    checks.nonnegative("gamma", gamma)
    checks.nonnegative("rho", rho)
    checks.count("T", T)


def is_printed(reading: Reading) -> bool:
    """Whether the paper's expression is wanted as it stands."""
    if reading not in get_args(Reading):
        raise BadValue(f"reading must be 'derived' or 'printed', found {reading!r}")
    return reading == "printed"
