"""`plan`: step sizes and a number of steps from a goal, and what the goal costs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, get_args

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.theory import bounds
from trimol.theory import rates as known
from trimol.theory._constants import Constants
from trimol.theory._orders import Exponent, Order, Schedule, shown
from trimol.theory._search import best
from trimol.theory.bounds import Bound
from trimol.theory.rates import describe, root
from trimol.theory.regions import Region, region

Objective = Literal["risk", "conflict", "optimization", "balance", "weights"]
ERRORS = ("R_opt", "R_gen", "R_pop", "E_ca", "E_caw")

_WORDS = {
    "R_opt": "the optimization error",
    "R_gen": "the generalization error",
    "R_pop": "the risk on new data",
    "E_ca": "the distance from the conflict-avoiding direction",
    "E_caw": "the distance from the conflict-avoiding weights",
}
_GOALS = {
    "risk": "the smallest risk on new data",
    "conflict": "directions without conflict that generalize; x at least does not get worse",
    "optimization": "the smallest optimization error",
    "balance": "risk and conflict vanish alike",
    "weights": "risk and the distance from the conflict-avoiding weights vanish alike",
}


@dataclass(frozen=True)
class Plan:
    """Step sizes and steps for MoDo, what the theorems promise of them, and what they give up.

    Attributes:
        objective: What was asked for.
        n: How many training samples.
        strongly_convex: Whether the plan relies on strong convexity.
        T: Steps.
        alpha: Step size of x.
        gamma: Step size of λ.
        rho: Regularization of λ.
        schedule: How these grow with n.
        region: The region of the paper's Figure 2; None on a border.
        exponents: e by error: its bound is O(n^-e).
        given_up: What is not to be had with this plan, in words.
        bounds: The theorems' numbers by error, where constants were given and limits are met.
        refused: Why there is no number, by error.
        trivial: What each error is at most without any theorem, where constants were given.
    """

    objective: Objective
    n: int
    strongly_convex: bool
    T: int
    alpha: float
    gamma: float
    rho: float
    schedule: Schedule
    region: Region | None
    exponents: dict[str, Exponent]
    given_up: tuple[str, ...]
    bounds: dict[str, Bound] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    trivial: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        case = "strongly convex" if self.strongly_convex else "non-convex"
        where = f"region {self.region}" if self.region else "on a border of the regions"
        lines = [
            f"{self.objective}: {_GOALS[self.objective]} (MoDo, {case}, n = {self.n})",
            f"  T = {self.T}, α = {self.alpha:.3g}, γ = {self.gamma:.3g}, ρ = {self.rho:.3g}",
            f"  {self.schedule}; {where}",
            *(f"  {n:<5} {describe(e)}{self._number(n)}" for n, e in self.exponents.items()),
            *(f"  given up: {line}" for line in self.given_up),
        ]
        return "\n".join(lines)

    def _number(self, name: str) -> str:
        if name in self.refused:
            return f"; no number: {self.refused[name]}"
        if name not in self.bounds:
            return ""
        value, anyway = float(self.bounds[name]), self.trivial[name]
        empty = f", which says nothing: it is at most {anyway:.3g} anyway"
        return f"; at most {value:.3g} here{empty if value >= anyway else ''}"


def plan(
    n: int | None = None,
    objective: Objective = "balance",
    *,
    T: int | None = None,
    strongly_convex: bool | None = None,
    constants: Constants | None = None,
) -> Plan:
    r"""Step sizes and steps for MoDo with the best *rates* for a goal, by the paper's theorems.

    ================  ==========================================================================
    objective         what is made to vanish as fast as can be
    ================  ==========================================================================
    ``risk``          R_pop = R_opt + R_gen
    ``conflict``      the slower of √E_ca and R_gen, R_opt's bound not growing
    ``optimization``  R_opt
    ``balance``       the slower of R_pop and √E_ca
    ``weights``       the slower of R_pop and √E_caw, with ρ > 0
    ================  ==========================================================================

    Roots are taken of E_ca and E_caw, which are squares, to compare like with like. Ties go to
    fewer steps, then to a smaller R_opt and E_ca. R_opt only falls with T: without ``T``,
    ``optimization`` takes the most that the paper does, n².

    A rate says what happens as n grows; constants are not in it. So without ``constants`` the step
    sizes are n to the power of an exponent and *start a search*, nothing more. With them they are
    in the problem's units, α of 1/(2ℓ_{f,1}) and γ of 1/(√M ℓ_f²), respect the theorems' limits,
    and the bounds come as numbers: usually far above anything one would measure.

    Args:
        n: How many training samples; by default that of ``constants``.
        objective: The goal.
        T: How many steps, where that is given.
        strongly_convex: Whether every loss of every sample is; by default whether ``constants`` has
            ``mu``. No neural network is.
        constants: Those of the problem, such as `estimate_constants` gives.

    Example:
        >>> print(plan(10_000, "risk"))
        risk: the smallest risk on new data (MoDo, non-convex, n = 10000)
          T = 464, α = 0.0464, γ = 0.0464, ρ = 0
          α = Θ(T^-1/2), γ = Θ(T^-1/2), ρ = 0, T = Θ(n^2/3); on a border of the regions
          R_opt vanishes like n^-1/6
          R_gen vanishes like n^-1/6
          R_pop vanishes like n^-1/6
          E_ca  is not said to vanish
          E_caw has no bound
          given up: the distance from the conflict-avoiding direction is not said to vanish
    """
    samples = _samples(n, constants)
    if objective not in get_args(Objective):
        raise BadValue(
            f"objective must be one of {', '.join(get_args(Objective))}, found {objective!r}"
        )
    convex = _convex(strongly_convex, constants)
    if constants is not None and not convex:
        constants = replace(constants, mu=None)
    orders = known.orders(known.PLANNED, "SC" if convex else "NC")
    schedule = _schedule(objective, orders, samples, T)
    steps = T if T is not None else max(1, round(samples ** float(schedule.t)))
    alpha, gamma, rho = _sizes(schedule, samples, steps, constants)
    exponents = {name: orders[name].exponent(schedule) for name in ERRORS}
    numbers, refused = _numbers(constants, alpha, gamma, steps, rho)
    return Plan(
        objective=objective,
        n=samples,
        strongly_convex=convex,
        T=steps,
        alpha=alpha,
        gamma=gamma,
        rho=rho,
        schedule=schedule,
        region=region(schedule),
        exponents=exponents,
        given_up=_given_up(objective, exponents, schedule, orders),
        bounds=numbers,
        refused=refused,
        trivial={} if constants is None else bounds.trivial(constants),
    )


def goals(objective: Objective, orders: dict[str, Order]) -> list[list[Order]]:
    """The errors whose slowest is to be as fast as can be, then those to break ties by."""
    opt, pop, direction = orders["R_opt"], orders["R_pop"], root(orders["E_ca"])
    weights = root(orders["E_caw"])
    # With T given, R_gen may be what limits R_pop: what is left to choose is chosen without it.
    return {
        "risk": [[pop], [opt], [direction]],
        "conflict": [[direction, orders["R_gen"]], [direction], [opt]],
        "optimization": [[opt], [direction]],
        "balance": [[pop, direction], [opt, direction]],
        "weights": [[pop, weights], [opt, weights], [direction]],
    }[objective]


def _schedule(objective: Objective, orders: dict[str, Order], n: int, T: int | None) -> Schedule:
    t = None
    if T is not None:
        checks.count("T", T)
        # T = 1 is no power of n above 0.
        t = Fraction(math.log(max(T, 2)) / math.log(n)).limit_denominator(1000)
    elif objective == "optimization":
        t = Fraction(2)
    first, *then = goals(objective, orders)
    schedule, _ = best(
        first,
        t=t,
        then=then,
        bounded=[orders["R_opt"]] if objective == "conflict" else [],
        regularized=objective == "weights",
    )
    return schedule


def _samples(n: int | None, constants: Constants | None) -> int:
    if n is None:
        if constants is None:
            raise BadValue("n must be given where constants are not, found None")
        return constants.n
    if constants is not None and constants.n != n:
        raise BadValue(f"n must be that of constants, {constants.n}, found {n}")
    if checks.count("n", n) < 2:
        raise BadValue(f"n must be at least 2 for a power of it to mean anything, found {n}")
    return n


def _convex(asked: bool | None, constants: Constants | None) -> bool:
    known = constants is not None and constants.mu is not None
    if asked is None:
        return known
    if asked and constants is not None and not known:
        raise BadValue("strongly_convex must be False where constants has no mu, found True")
    return asked


def _sizes(
    schedule: Schedule, n: int, T: int, constants: Constants | None
) -> tuple[float, float, float]:
    """α, γ and ρ: n to the schedule's powers, in the problem's units and within the limits."""
    powers = {name: n ** float(schedule.power(name)) for name in ("alpha", "gamma", "rho")}
    if constants is None:
        return powers["alpha"], powers["gamma"], powers["rho"]
    unit = constants.ell_F * constants.ell_f  # of λ's problem: its curvature, and ρ's
    gamma = powers["gamma"] / unit
    if schedule.c >= 1:
        gamma = min(gamma, bounds.largest_gamma(constants, T))
    return powers["alpha"] * bounds.largest_alpha(constants), gamma, powers["rho"] * unit


def _numbers(
    constants: Constants | None, alpha: float, gamma: float, T: int, rho: float
) -> tuple[dict[str, Bound], dict[str, str]]:
    """The bounds by error that can be had, and why the others cannot."""
    if constants is None:
        return {}, {}
    wanted: dict[str, Callable[..., Bound]] = {
        "R_opt": bounds.optimization if constants.mu is None else bounds.optimization_sc,
        "R_gen": _best_generalization,
        "E_ca": bounds.conflict,
        **({"E_caw": bounds.conflict_weight} if rho else {}),
    }
    numbers, refused = {}, {}
    for name, bound in wanted.items():
        try:
            numbers[name] = bound(constants, alpha=alpha, gamma=gamma, T=T, rho=rho)
        except ValueError as reason:
            refused[name] = str(reason)
    if "R_opt" in numbers and "R_gen" in numbers:
        numbers["R_pop"] = bounds.combined(numbers["R_opt"], numbers["R_gen"])
    return {name: numbers[name] for name in ERRORS if name in numbers}, refused


def _best_generalization(
    constants: Constants, *, alpha: float, gamma: float, T: int, rho: float
) -> Bound:
    """R_gen, by the better of the theorems that hold; ρ is in neither."""
    everywhere = bounds.generalization(constants, T=T)
    if constants.mu is None or gamma > bounds.largest_gamma(constants, T):
        return everywhere
    slow = bounds.generalization_sc(constants, alpha=alpha, gamma=gamma, T=T)
    return min(everywhere, slow, key=float)


def _given_up(
    objective: Objective,
    exponents: dict[str, Exponent],
    schedule: Schedule,
    orders: dict[str, Order],
) -> tuple[str, ...]:
    """What does not vanish, and how much slower than at their best the others do."""
    told = ["R_opt", "R_gen", "E_ca"] + (["E_caw"] if objective == "weights" else [])
    lines = []
    for name in told:
        if exponents[name] <= 0:
            lines.append(f"{_WORDS[name]} {describe(exponents[name])}")
            continue
        _, (alone,) = best(
            [orders[name]], t=Fraction(schedule.t), regularized=schedule.r < math.inf
        )
        if alone > exponents[name]:
            lines.append(
                f"{_WORDS[name]} could vanish like n^-{shown(alone)} in as many steps, thinking of "
                "nothing else"
            )
    return tuple(lines)
