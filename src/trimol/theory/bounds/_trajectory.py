"""How large gradients get on the way, and what that alone says about the errors."""

import math

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.theory._constants import Constants


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
