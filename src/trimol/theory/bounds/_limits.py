"""The limits that the theorems set on step sizes."""

import math

from trimol import _checks as checks
from trimol.theory._constants import Constants
from trimol.theory.bounds._bound import Limit


def half_smooth(constants: Constants, alpha: float) -> Limit:
    """α ≤ 1/(2ℓ_{f,1}), of every theorem about the optimization error."""
    return Limit("alpha", alpha, 1 / (2 * constants.ell_f1), "1/(2 ell_f1)")


def contracting(constants: Constants, alpha: float) -> Limit:
    """α ≤ μ/(2ℓ_{f,1}²), of the stability in the strongly convex case."""
    mu = constants.convexity()
    return Limit("alpha", alpha, mu / (2 * constants.ell_f1**2), "mu/(2 ell_f1^2)")


def slow_weights(
    constants: Constants, gamma: float, T: int, *, printed: bool = False
) -> tuple[Limit, ...]:
    """γ = O(1/T), of the stability in the strongly convex case.

    The theorem prints ℓ_f where its proof needs ℓ_F = √M ℓ_f.
    """
    mu, ell_g1 = constants.convexity(), constants.ell_g1
    ell = constants.ell_f if printed else constants.ell_F
    name = "ell_f" if printed else "ell_F"
    return (
        Limit(
            "gamma * T",
            gamma * T,
            mu**2 / (120 * ell**2 * ell_g1),
            f"mu^2/(120 {name}^2 ell_g1)",
        ),
        Limit(
            "gamma * T",
            gamma * T,
            1 / (8 * (3 * ell**2 + 2 * ell_g1)),
            f"1/(8 (3 {name}^2 + 2 ell_g1))",
        ),
    )


def largest_alpha(constants: Constants) -> float:
    """The largest α that all theorems allow: 1/(2ℓ_{f,1}), with μ also μ/(2ℓ_{f,1}²).

    >>> largest_alpha(Constants(ell_f=1.0, ell_f1=2.0, M=2, n=10))
    0.25
    """
    most = half_smooth(constants, 0.0).most
    return most if constants.mu is None else min(most, contracting(constants, 0.0).most)


def largest_gamma(constants: Constants, T: int) -> float:
    """The largest γ for which stability in the strongly convex case is a theorem; ∞ without μ.

    >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=10, mu=1.0)
    >>> round(1 / largest_gamma(c, T=10))  # 120 ell_F² ell_g1 T / μ²
    2400
    """
    checks.count("T", T)
    if constants.mu is None:
        return math.inf
    return min(limit.most for limit in slow_weights(constants, 0.0, T)) / T
