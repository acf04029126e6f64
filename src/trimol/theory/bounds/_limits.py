"""The limits that the theorems set on step sizes, and what limits the errors without a theorem."""

import math

from trimol import _checks as checks
from trimol._failures import BadValue
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


def trajectory_gradient(
    *, ell_f1: float, mu: float, optimum_radius: float, start_radius: float
) -> float:
    r"""ℓ_f along the iterates: Lemma "x_t bounded for SC and smooth objectives".

    A strongly convex function has no bounded gradient on :math:`R^d`. But with :math:`\alpha \le
    1/\ell_{f,1}` the iterates stay within :math:`c_x = \max\{(1 + \sqrt{6\ell_{f,1}/\mu})
    c_{x^*}, c_{x_0}\}` of the origin, where gradients are at most :math:`\ell_f = \ell_{f,1}
    (c_x + c_{x^*})`.

    Args:
        ell_f1: ℓ_{f,1}.
        mu: μ.
        optimum_radius: c_{x*}: the minimizers of all F_z λ are within this of the origin.
        start_radius: c_{x_0}: x_0 is within this of the origin.

    Example:
        >>> trajectory_gradient(ell_f1=6.0, mu=1.0, optimum_radius=1.0, start_radius=0.0)
        48.0
    """
    checks.positive("ell_f1", ell_f1)
    checks.positive("mu", mu)
    checks.nonnegative("optimum_radius", optimum_radius)
    checks.nonnegative("start_radius", start_radius)
    if mu > ell_f1:
        raise BadValue(f"mu must be at most ell_f1 = {ell_f1:g}, found {mu:g}")
    radius = max((1 + math.sqrt(6 * ell_f1 / mu)) * optimum_radius, start_radius)
    return ell_f1 * (radius + optimum_radius)


def trivial(constants: Constants) -> dict[str, float]:
    """What each error is at most because no gradient is longer than ℓ_f and λ is on the simplex.

    A bound above this says nothing.

    Example:
        >>> trivial(Constants(ell_f=3.0, ell_f1=1.0, M=2, n=10))
        {'R_opt': 3.0, 'R_gen': 3.0, 'R_pop': 3.0, 'E_ca': 36.0, 'E_caw': 2.0}
    """
    longest = constants.ell_f
    return {
        "R_opt": longest,
        "R_gen": longest,
        "R_pop": longest,
        "E_ca": (2 * longest) ** 2,
        "E_caw": 2.0,
    }
