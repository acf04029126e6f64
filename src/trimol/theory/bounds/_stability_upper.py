r"""Upper bounds of the MOL uniform stability,
:math:`\epsilon_F^2 = \sup_z E_A\|\nabla F_z(A(S)) - \nabla F_z(A(S'))\|_F^2` for neighbouring data.
"""

from typing import Any

from trimol import _checks as checks
from trimol.theory._constants import Constants
from trimol.theory.bounds._bound import (
    CONVEX,
    SMOOTH,
    Bound,
    Limit,
    Reading,
    arguments_of,
    check_steps,
    documented,
    is_printed,
)
from trimol.theory.bounds._limits import contracting, half_smooth, slow_weights

ANALYSED_SAMPLES = 3
_OF = "ε_F²"
_ARGUMENT = "Theorem Argument stability of MoDo in the SC case [thm:bound_E_diff_x_lam_warm_modo]"


@documented
def stability(
    constants: Constants, *, T: int, samples: int = ANALYSED_SAMPLES, reading: Reading = "derived"
) -> Bound:
    r"""ε_F² without convexity: Theorem "PS generalization error of MoDo in the NC case" (a).

    .. math:: \epsilon_F^2 \le 4 G^2\, P(\text{the sample that differs is ever drawn})
        \le 4 G^2 \min(1, kT/n)

    with k = ``samples``. It holds for every method whose result depends on the samples drawn alone
    (MoDo, MoCo, static weighting, SMG with the mean of its batch sizes as k).

    Args:
        samples: How many samples a step looks at, all draws together: 3 in the paper's proofs, the
            batch size in practice. At one epoch, kT = n, the bound is trivial.
        reading: The paper prints 4G²T/n: one sample a step, where its algorithm draws two and its
            proofs three.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=1000)
        >>> float(stability(c, T=10)), float(stability(c, T=10, reading="printed"))
        (0.12, 0.04)
    """
    checks.count("T", T)
    checks.count("samples", samples)
    drawn = T / constants.n if is_printed(reading) else min(1.0, samples * T / constants.n)
    return Bound(
        _OF,
        {"sample drawn": 4 * constants.second_moment * drawn},
        "Theorem PS generalization error of MoDo in the NC case (a) [crlr:bound_stab_grad_MGDA]",
        (
            "E_A‖∇F_z(A(S))‖_F² ≤ G² for every z and S, also given that the sample was drawn",
            "the result depends on the samples drawn alone",
        ),
        corrections=(
            "the paper counts one sample a step; its algorithm draws two, its proofs three",
            "for SMG, with O(t) samples at step t, kT is O(T²), not the O(T) of the paper",
        ),
    )


@documented
def argument_stability(
    constants: Constants,
    *,
    alpha: float,
    gamma: float,
    T: int,
    samples: int = ANALYSED_SAMPLES,
    reading: Reading = "derived",
) -> Bound:
    r"""E‖A(S) − A(S')‖² of MoDo: Theorem "Argument stability of MoDo in the SC case".

    .. math::
        \frac{16 k \ell_f^2}{\mu n (1 - 2k/n)} \Big(\alpha + \frac{(4 + \frac5{108}) k}{\mu n}
        + \frac{5 M\ell_f^2 \gamma}{12 \mu}\Big)

    with k = ``samples``, for :math:`\alpha \le \min\{1/(2\ell_{f,1}), \mu/(2\ell_{f,1}^2)\}` and
    :math:`\gamma T \le \min\{\mu^2/(120\ell_F^2\ell_{g,1}), 1/(8(3\ell_F^2 + 2\ell_{g,1}))\}`.

    Args:
        constants: Those of the problem, with ``mu``.
        reading: The paper prints, for k = 3, :math:`\frac{48\ell_f^2}{\mu n}(\alpha + \frac{12 +
            4M\ell_f^2}{\mu n} + \frac{10M\ell_f^4\gamma}{\mu})`, whose terms do not scale alike
            when the losses are multiplied by a number.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=1000, mu=1.0)
        >>> bound = argument_stability(c, alpha=0.1, gamma=1e-6, T=100)
        >>> round(float(bound), 5), bound.largest
        (0.00542, 'noise of x')
    """
    check_steps(alpha, gamma, T)
    checks.count("samples", samples)
    printed = is_printed(reading)
    crowded = Limit("samples", samples, (constants.n - 1) // 2, "(n - 1)/2, rounded down")
    if printed:
        terms = _printed_terms(constants, alpha, gamma)
    else:
        crowded.check(_ARGUMENT)
        terms = _derived_terms(constants, alpha, gamma, samples)
    return Bound(
        "E‖A(S) − A(S')‖²",
        terms,
        _ARGUMENT,
        (SMOOTH, CONVEX),
        (
            half_smooth(constants, alpha),
            contracting(constants, alpha),
            *slow_weights(constants, gamma, T, printed=printed),
            *(() if printed else (crowded,)),
        ),
        corrections=(
            "the paper's proof uses γT ≤ 1, which is no limit of its theorem, and c₂ ≤ 5ℓ_f²/μ for "
            "5Mℓ_f²/μ; with its own limit γT ≤ 1/(8c₃) it gives 5Mℓ_f²γ/(12μ) for 10Mℓ_f⁴γ/μ, and "
            "5k/(108μn) for 4Mℓ_f²/(μn)",
            "the paper's limits on γT have ℓ_f where its proof needs ℓ_F",
            "the paper's contraction takes P(i* ∉ I_t) as one: a factor 1/(1 − 2k/n)",
        ),
    )


def _derived_terms(constants: Constants, alpha: float, gamma: float, k: int) -> dict[str, float]:
    mu, n, ell_f = constants.convexity(), constants.n, constants.ell_f
    # The proof's (e) drops P(i* ∉ I_t) ≥ 1 − k/n: with it a step contracts by ¼αμ(1 − 2k/n).
    scale = 16 * k * ell_f**2 / (mu * n) / (1 - 2 * k / n)
    # λ's recursion, summed, has γ·γT: with γT ≤ 1/(8c₃) and c₂/c₃ ≤ 5/(3μ) it is this.
    return {
        "noise of x": scale * alpha,
        "few samples": scale * (4 + 5 / 108) * k / (mu * n),
        "moving weights": scale * 5 / 12 * constants.M * ell_f**2 * gamma / mu,
    }


def _printed_terms(constants: Constants, alpha: float, gamma: float) -> dict[str, float]:
    mu, n, M, ell_f = constants.convexity(), constants.n, constants.M, constants.ell_f
    scale = 48 * ell_f**2 / (mu * n)
    return {
        "noise of x": scale * alpha,
        "few samples": scale * (12 + 4 * M * ell_f**2) / (mu * n),
        "moving weights": scale * 10 * M * ell_f**4 * gamma / mu,
    }


@arguments_of(argument_stability)
def stability_sc(constants: Constants, **steps: Any) -> Bound:
    r"""ε_F² with strong convexity: Theorem "PS generalization error of MoDo in SC case" (a).

    :math:`\ell_{F,1}^2 = M\ell_{f,1}^2` times `argument_stability`, with its limits.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=1000, mu=1.0)
        >>> round(float(stability_sc(c, alpha=0.1, gamma=1e-6, T=100)), 4)
        0.0108
    """
    arguments = argument_stability(constants, **steps)
    return Bound(
        _OF,
        {name: constants.ell_F1**2 * value for name, value in arguments.terms.items()},
        "Theorem PS generalization error of MoDo in SC case (a) [thm:grad_stability_modo_sc]",
        arguments.assumptions,
        arguments.limits,
        corrections=arguments.corrections,
    )
