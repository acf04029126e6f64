"""Bounds of the generalization error and, with the optimization error added, of the risk."""

import math
from typing import Any

from trimol.theory._constants import Constants
from trimol.theory.bounds._bound import Bound, Reading, arguments_of, documented
from trimol.theory.bounds._optimization_error import optimization, optimization_sc
from trimol.theory.bounds._stability_upper import ANALYSED_SAMPLES, stability, stability_sc

_GEN, _POP = "E[R_gen]", "E[R_pop]"


@arguments_of(stability)
def generalization(constants: Constants, **steps: Any) -> Bound:
    r"""R_gen without convexity: Theorem "PS generalization error of MoDo in the NC case".

    .. math:: E[R_{gen}] \le E\|\nabla F(A(S)) - \nabla F_S(A(S))\|_F
        \le 4\epsilon_F + \sqrt{\mathrm{variance}/n}

    (Propositions "gen_err_minnorm_bound_grad" and "stability_gen_grad_F") with ε_F of `stability`.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=10_000)
        >>> generalization(c, T=12).terms
        {'stability': 0.48, 'sampling': 0.01}
    """
    return _generalization(constants, stability(constants, **steps))


@arguments_of(stability_sc)
def generalization_sc(constants: Constants, **steps: Any) -> Bound:
    """R_gen with strong convexity: Theorem "PS generalization error of MoDo in SC case".

    As `generalization`, with ε_F of `stability_sc`, whose limits these are.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=1000, mu=1.0)
        >>> generalization_sc(c, alpha=0.1, gamma=1e-6, T=100).largest
        'stability'
    """
    return _generalization(constants, stability_sc(constants, **steps))


@documented
def population(
    constants: Constants,
    *,
    alpha: float,
    gamma: float,
    T: int,
    rho: float = 0.0,
    samples: int = ANALYSED_SAMPLES,
    reading: Reading = "derived",
) -> Bound:
    """R_pop without convexity: `optimization` + `generalization` (the decomposition of the risk).

    It is about the iterate of least R_opt, which is seldom the one that is kept.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=10_000, c_F=1.0)
        >>> sorted(population(c, alpha=0.1, gamma=0.01, T=12).terms)
        ['generalization', 'optimization']
    """
    return combined(
        optimization(constants, alpha=alpha, gamma=gamma, T=T, rho=rho),
        generalization(constants, T=T, samples=samples, reading=reading),
    )


@arguments_of(population)
def population_sc(
    constants: Constants, *, rho: float = 0.0, samples: int = ANALYSED_SAMPLES, **steps: Any
) -> Bound:
    """R_pop with strong convexity: `optimization_sc` + `generalization_sc`.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=1000, mu=1.0, c_F=1.0)
        >>> len(population_sc(c, alpha=0.1, gamma=1e-6, T=100).limits)
        6
    """
    return combined(
        optimization_sc(constants, rho=rho, **steps),
        generalization_sc(constants, samples=samples, **steps),
    )


def _generalization(constants: Constants, stable: Bound) -> Bound:
    return Bound(
        _GEN,
        {
            "stability": 4 * math.sqrt(stable.value),
            "sampling": math.sqrt(constants.gradient_variance / constants.n),
        },
        f"Proposition MOL uniform stability and generalization [prop:stability_gen_grad_F], with "
        f"{stable.theorem}",
        (*stable.assumptions, "the training samples are independent draws from the population"),
        stable.limits,
        corrections=stable.corrections,
    )


def combined(opt: Bound, gen: Bound) -> Bound:
    """R_pop from bounds of R_opt and R_gen: their sum."""
    return Bound(
        _POP,
        {"optimization": opt.value, "generalization": gen.value},
        f"R_pop = R_opt + R_gen, with {opt.theorem} and {gen.theorem}",
        tuple(dict.fromkeys((*opt.assumptions, *gen.assumptions))),
        (*opt.limits, *gen.limits),
        corrections=(*opt.corrections, *gen.corrections),
    )
