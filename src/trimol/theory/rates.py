r"""The paper's rates as data, and its Tables 1 and 2 made from them.

`orders` gives, for a method and a case, the `Order` of each error: the terms of the theorem's
bound, as powers of α, γ, ρ, T, n and M. Put a `Schedule` into them and you get an exponent;
`table1` and `table2` do that for the paper's tables, and find the step sizes that are best.

Errors are named as everywhere: R_opt, R_gen, R_pop, E_ca, E_caw (the last two are squares).
Constants and logarithms are left out: a rate says what happens as n grows, not what happens at
your n.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from trimol._failures import BadValue
from trimol.theory._orders import Branch, Decay, Exponent, Order, Power, Schedule, shown
from trimol.theory._search import best
from trimol.theory.bounds import Reading
from trimol.theory.bounds._bound import is_printed

Case = Literal["NC", "SC"]

HALF = Fraction(1, 2)
_OPT = "thm:opt_err_modo_nonconvex_bounded_grad"
PLANNED = "modo"  # the method that plans and regions are for
# The terms that many bounds share: c_F/(αT) and its decay where convex, α from the noise of x, and
# MoCo's tracking error 1/(βT) + β + α²/β².
_START = (Power.of(alpha="-1/2", T="-1/2"),)
_GONE = Decay(Power.of(alpha=1), HALF)
_NOISE = (Power.of(alpha="1/2"),)
_TRACKING = (Power.of(beta=-1, T=-1), Power.of(beta=1), Power.of(alpha=2, beta=-2))


def orders(method: str, case: Case = "NC", *, reading: Reading = "derived") -> dict[str, Order]:
    """The orders of the errors that the paper bounds for a method, by error.

    Args:
        method: One of `methods`: ``static``, ``modo``, ``smg``, ``moco``.
        case: ``"NC"`` (non-convex, Lipschitz, smooth) or ``"SC"`` (strongly convex, smooth).
        reading: ``"printed"`` is what the theorems state; ``"derived"`` is what their proofs give.

    Example:
        >>> print(orders("modo")["R_gen"])
        T^1/2 n^-1/2
    """
    known = _orders(is_printed(reading))
    if (method, case) not in known:
        pairs = ", ".join(f"{name} {its}" for name, its in known)
        raise BadValue(f"method and case must be one of {pairs}; found {method} {case}")
    errors = known[method, case]
    return {**errors, "R_pop": errors["R_opt"] + errors["R_gen"]}


def methods() -> tuple[str, ...]:
    """The methods whose rates the paper gives."""
    return tuple(dict.fromkeys(name for name, _ in _orders(True)))


def _orders(printed: bool) -> dict[tuple[str, Case], dict[str, Order]]:
    drawn, everywhere = _generalization(Power.of(T=1)), Order((_mean_branch(),), _OPT)
    smg_samples = Power.of(T=1) if printed else Power.of(T=2)
    modo = {"R_opt": everywhere, "R_gen": drawn, **_conflict(printed)}
    static = {
        "R_opt": Order((Branch(_START + _NOISE),), _OPT, "γ = ρ = 0"),
        "R_gen": drawn,
        "E_caw": Order((Branch((Power(()),)),), "Proposition CA weight distance of static"),
    }
    last = _last_branch(printed)
    return {
        ("static", "NC"): static,
        ("modo", "NC"): modo,
        ("static", "SC"): {
            **static,
            "R_opt": Order((Branch((_GONE, *_NOISE)),), _OPT, "γ = ρ = 0"),
            "R_gen": Order((_stable_branch(printed, static=True),), "thm:grad_stability_modo_sc"),
        },
        ("modo", "SC"): {
            **modo,
            "R_opt": Order((_mean_branch(), last), _OPT),
            "R_gen": Order(
                (_stable_branch(printed), *drawn.branches), "thm:grad_stability_modo_sc"
            ),
        },
        ("smg", "NC"): {
            "R_opt": Order((_tracked((Power.of(T=-1),)),), "thm:opt_err_smg_moco"),
            "R_gen": _generalization(smg_samples),
            "E_ca": Order((Branch((Power.of(T="-1/2"),)),), "crlr:bias_CA_mitigate"),
        },
        ("moco", "NC"): {
            "R_opt": Order((_tracked(_TRACKING),), "thm:opt_err_smg_moco"),
            "R_gen": drawn,
            "E_ca": Order((Branch(tuple(p.to(HALF) for p in _TRACKING)),), "crlr:bias_CA_mitigate"),
        },
    }


def _mean_branch() -> Branch:
    """R_opt of the best iterate, by the mean over the iterates."""
    return Branch((*_START, *_NOISE, Power.of(gamma="1/2", M="1/2"), Power.of(rho="1/2")))


def _last_branch(printed: bool) -> Branch:
    """R_opt of the last iterate, where objectives are strongly convex."""
    moved = Power.of(gamma=1, T=1, M="1/2" if printed else 1)
    return Branch((_GONE, *_NOISE, moved))


def _tracked(tracking: tuple[Power, ...]) -> Branch:
    """R_opt with min-norm weights of an estimate: the root of its squared error's fourth root."""
    return Branch((*_START, *_NOISE, *(power.to(Fraction(1, 8)) for power in tracking)))


def _generalization(samples: Power) -> Order:
    """R_gen by the probability, samples/n, that the sample that differs is ever drawn.

    The other term, n^-1/2, is never the larger.
    """
    root = samples.to(HALF)
    return Order((Branch((Power((*root.powers, ("n", -HALF))),)),), "crlr:bound_stab_grad_MGDA")


def _stable_branch(printed: bool, *, static: bool = False) -> Branch:
    """R_gen where objectives are strongly convex: 4ε_F, and the sampling error n^-1/2."""
    weights = Power.of(gamma="1/2", n="-1/2", M=1)
    terms = (
        Power.of(n="-1/2"),
        Power.of(alpha="1/2", n="-1/2", M="1/2"),
        Power.of(n=-1, M=1 if printed else "1/2"),
    )
    return Branch(terms if static else (*terms, weights), slow_weights=not static)


def _conflict(printed: bool) -> dict[str, Order]:
    regularization = (Power.of(gamma=-1, rho=1), Power.of(rho=1)) if printed else (Power.of(rho=1),)
    direction = (
        Power.of(gamma=-1, T=-1),
        Power.of(alpha="1/2", gamma="-1/2", M="1/2"),
        Power.of(gamma=1, M=1),
        *regularization,
    )
    weights = (
        Decay(Power.of(gamma=1, rho=1)),
        Power.of(gamma=1, rho=-1, M=1),
        Power.of(gamma=1, rho=1),
        Power.of(alpha=1, gamma=-1, rho=-2, M=1),
    )
    return {
        "E_ca": Order((Branch(direction),), "lemma:converge_MGDA_bounded_grad"),
        "E_caw": Order((Branch(weights),), "thm:dist_CA_weight"),
    }


@dataclass(frozen=True)
class RiskRow:
    """A row of Table 1.

    Attributes:
        case: NC or SC.
        method: ``static`` or ``modo`` (the table's "Dynamic").
        condition: For which γ the row holds, where that matters.
        optimization: R_opt's order, terms that others dominate left out.
        generalization: R_gen's.
        risk: The exponent of the best R_pop: O(n^-risk).
        schedule: A schedule that reaches it, with the fewest steps.
        weight_distance: E_caw's order.
    """

    case: Case
    method: str
    condition: str
    optimization: Order
    generalization: Order
    risk: Exponent
    schedule: Schedule
    weight_distance: Order


def table1(*, reading: Reading = "derived") -> tuple[RiskRow, ...]:
    """Table 1 of the paper: errors of static and dynamic weighting, and the best risk.

    Example:
        >>> for row in table1():
        ...     print(row.case, row.method, row.condition or "·", row.generalization, row.risk)
        NC static · T^1/2 n^-1/2 1/6
        NC modo · T^1/2 n^-1/2 1/6
        SC static · n^-1/2 1/2
        SC modo γ = O(1/T) n^-1/2 1/2
        SC modo otherwise T^1/2 n^-1/2 1/6
    """
    rows = []
    for case in get_args(Case):
        for method in ("static", "modo"):
            errors = orders(method, case, reading=reading)
            branches = errors["R_gen"].branches
            for branch in branches:
                condition = "γ = O(1/T)" if branch.slow_weights else "otherwise"
                condition = condition if len(branches) > 1 else ""
                rows.append(_risk_row(case, method, condition, branch, errors))
    return tuple(rows)


def _risk_row(
    case: Case, method: str, condition: str, gen: Branch, errors: dict[str, Order]
) -> RiskRow:
    # Where γ is not O(1/T), the branch of R_opt that takes γT → 0 is of no use.
    opt, weights = errors["R_opt"], errors["E_caw"]
    usable = Order(opt.branches[:1], opt.theorem) if condition == "otherwise" else opt
    schedule, (risk,) = best([usable + Order((gen,))], static=method == "static")
    return RiskRow(
        case,
        method,
        condition,
        Order(tuple(map(dominant, opt.branches)), opt.theorem),
        Order((dominant(gen),), errors["R_gen"].theorem),
        risk,
        schedule,
        Order(tuple(map(dominant, weights.branches)), weights.theorem),
    )


def dominant(branch: Branch) -> Branch:
    """Without the terms that another is at least as large as for *every* schedule.

    >>> print(dominant(Branch((Power.of(n=-1), Power.of(n="-1/2"), Power.of(alpha=1, n="-1/2")))))
    n^-1/2
    """
    terms = branch.terms
    kept = [t for t in terms if not any(_dominates(o, t) for o in terms if o is not t)]
    return Branch(tuple(kept), branch.slow_weights)


def _dominates(large: object, small: object) -> bool:
    """Whether small/large has no negative power of a step size and no positive one of T and n."""
    if not isinstance(large, Power) or not isinstance(small, Power):
        return False
    steps = all(small[v] >= large[v] for v in ("alpha", "gamma", "rho", "beta"))
    return steps and all(small[v] <= large[v] for v in ("T", "n"))


@dataclass(frozen=True)
class AlgorithmRow:
    """A row of Table 2.

    Attributes:
        method: As in `methods`; of prior work, the name in that paper.
        source: Whose theorem.
        batch: The batch size: ``"1"`` or ``"t"``, in O(·).
        nonconvex: Whether it covers non-convex objectives.
        lipschitz_weights: Whether it assumes that λ*(x) is Lipschitz.
        bounded_function: Whether it assumes bounded objectives.
        optimization: R_opt is O(T^-optimization).
        conflict: E_ca is O(T^-conflict); None where it does not vanish or is not bounded.
        generalization: R_gen's order; None where there is none.
        schedule: The step sizes that reach this; None for prior work.
    """

    method: str
    source: str
    batch: str
    nonconvex: bool
    lipschitz_weights: bool
    bounded_function: bool
    optimization: Fraction
    conflict: Fraction | None
    generalization: Order | None = None
    schedule: Schedule | None = None


# As the paper quotes them: other papers' theorems, not derived from anything here.
PRIOR = (
    AlgorithmRow(
        "smg", "Liu and Vicente 2021, Thm 5.3", "t", False, True, False, Fraction(1, 8), None
    ),
    AlgorithmRow(
        "crmogm", "Zhou et al. 2022, Thm 3", "1", True, False, True, Fraction(1, 4), None
    ),
    AlgorithmRow(
        "moco", "Fernando et al. 2022, Thm 2", "1", True, False, False, Fraction(1, 20),
        Fraction(1, 5),
    ),
    AlgorithmRow(
        "moco", "Fernando et al. 2022, Thm 4", "1", True, False, True, Fraction(1, 4), None
    ),
)  # fmt: skip


def table2(*, reading: Reading = "derived") -> tuple[AlgorithmRow, ...]:
    """Table 2 of the paper: prior results as it quotes them, and its own from `orders`.

    A method's row balances R_opt with the root of E_ca (both are norms of directions then); MoDo
    has one more that thinks of R_opt alone.

    Example:
        >>> for row in table2()[4:]:
        ...     print(row.method, row.optimization, row.conflict, row.generalization)
        smg 1/8 1/2 T n^-1/2
        moco 1/16 1/4 T^1/2 n^-1/2
        modo 1/4 None T^1/2 n^-1/2
        modo 1/8 1/4 T^1/2 n^-1/2
    """
    return (
        *PRIOR,
        _own_row("smg", "t", reading, balanced=True),
        _own_row("moco", "1", reading, balanced=True),
        _own_row("modo", "1", reading, balanced=False),
        _own_row("modo", "1", reading, balanced=True),
    )


def _own_row(method: str, batch: str, reading: Reading, *, balanced: bool) -> AlgorithmRow:
    errors = orders(method, reading=reading)
    opt, ca = errors["R_opt"], errors["E_ca"]
    goals = [opt, root(ca)] if balanced else [opt]
    schedule, _ = best(goals, t=Fraction(1), then=[[opt], [ca]])
    vanishing = ca.exponent(schedule)
    return AlgorithmRow(
        method,
        "this paper",
        batch,
        nonconvex=True,
        lipschitz_weights=False,
        bounded_function=False,
        optimization=Fraction(opt.exponent(schedule)),
        conflict=Fraction(vanishing) if vanishing > 0 else None,
        generalization=errors["R_gen"],
        schedule=schedule,
    )


def root(order: Order) -> Order:
    """The order of the root of a squared error."""
    halved = (Branch(tuple(t.to(HALF) for t in b.terms), b.slow_weights) for b in order.branches)
    return Order(tuple(halved), order.theorem)


def describe(exponent: Exponent) -> str:
    """What an error with this exponent does as n grows, in words.

    >>> describe(Fraction(1, 4)), describe(Fraction(0)), describe(Fraction(-1, 2))
    ('vanishes like n^-1/4', 'is not said to vanish', 'has a bound that grows like n^1/2')
    """
    if exponent == math.inf:
        return "vanishes faster than any power of n"
    if exponent > 0:
        return f"vanishes like n^-{shown(exponent)}"
    if exponent == 0:
        return "is not said to vanish"
    if exponent == -math.inf:
        return "has no bound"
    return f"has a bound that grows like n^{shown(-exponent)}"
