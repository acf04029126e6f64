r"""Bounds of the optimization error, :math:`E_A[\min_{t \le T} R_{opt}(x_t)]`."""

import math
from typing import Any

from trimol import _checks as checks
from trimol.theory._constants import Constants
from trimol.theory.bounds._bound import (
    CONVEX,
    LIPSCHITZ,
    SMOOTH,
    THREE_SAMPLES,
    Bound,
    Reading,
    arguments_of,
    check_steps,
    documented,
    is_printed,
)
from trimol.theory.bounds._limits import half_smooth

_OF = "E[min_t R_opt(x_t)]"


@documented
def optimization(
    constants: Constants, *, alpha: float, gamma: float, T: int, rho: float = 0.0
) -> Bound:
    r"""R_opt of MoDo: Theorem "PS optimization error of MoDo" (1), the non-convex case.

    .. math::
        \frac1T \sum_{t=1}^T E\,R_{opt}(x_t)^2 \le \frac{c_F}{\alpha T} + \rho
        + \frac\gamma2 (\sqrt M \ell_f^2 + \rho)(3 \sqrt M \ell_f^2 + \rho)
        + \frac\alpha2 \ell_{f,1} \ell_f^2

    and the least of the R_opt(x_t) is at most the root of their mean square. It holds in the
    strongly convex case, too. γ = ρ = 0 is static weighting.

    Args:
        constants: Those of the problem, with ``c_F``.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=4, n=100, c_F=1.0)
        >>> bound = optimization(c, alpha=0.1, gamma=0.001, T=1000)
        >>> round(bound.value, 3), bound.largest
        (0.257, 'noise of x')
    """
    check_steps(alpha, gamma, T, rho)
    step, drift = constants.weight_step(rho), constants.ell_F * constants.ell_f
    return Bound(
        _OF,
        {
            "start": constants.gap() / (alpha * T),
            "regularization": rho,
            # γ S₁/2 + γ S₃ of Lemma "opt_err_PS_min_norm".
            "moving weights": gamma / 2 * step * (step + 2 * drift),
            "noise of x": alpha / 2 * constants.ell_f1 * constants.ell_f**2,
        },
        "Theorem PS optimization error of MoDo (1) [thm:opt_err_modo_nonconvex_bounded_grad]",
        (SMOOTH, LIPSCHITZ, THREE_SAMPLES),
        (half_smooth(constants, alpha),),
        power=0.5,
    )


@documented
def optimization_last(
    constants: Constants,
    *,
    alpha: float,
    gamma: float,
    T: int,
    rho: float = 0.0,
    reading: Reading = "derived",
) -> Bound:
    r"""R_opt of MoDo's last iterate: Lemma "PS_opt_SC_MoDo_gammaT", the strongly convex case.

    .. math::
        E\,R_{opt}(x_T)^2 \le 2\ell_{f,1}(1-\alpha\mu)^{T-1} c_F + \frac{\alpha\ell_{f,1}^2
        \ell_f^2}{\mu} + \frac{\ell_{f,1}}{\mu} M\ell_f^2 (\sqrt M\ell_f^2+\rho)^2 (\gamma T)^2

    Args:
        constants: Those of the problem, with ``c_F`` and ``mu``.
        reading: The paper prints the last term without :math:`(\sqrt M\ell_f^2+\rho)^2`.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=100, c_F=1.0, mu=1.0)
        >>> round(float(optimization_last(c, alpha=0.01, gamma=0.0, T=1000)), 3)
        0.1
    """
    check_steps(alpha, gamma, T, rho)
    mu, smooth = constants.convexity(), constants.ell_f1
    # ‖λ_{t+1} − λ_1‖ ≤ γ t ‖(G₁ᵀG₂ + ρI) λ‖; the paper's proof writes ‖λ_{t+1} − λ_1‖ ≤ γ t.
    length = 1.0 if is_printed(reading) else constants.weight_step(rho)
    return Bound(
        "E[R_opt(x_T)]",
        {
            "start": 2 * smooth * constants.gap() * (1 - min(alpha * mu, 1.0)) ** (T - 1),
            "noise of x": alpha * smooth**2 * constants.ell_f**2 / mu,
            "moving weights": smooth / mu * (constants.ell_F * length * gamma * T) ** 2,
        },
        "Lemma last iterate [lemma:PS_opt_SC_MoDo_gammaT]",
        (SMOOTH, CONVEX, THREE_SAMPLES),
        (half_smooth(constants, alpha),),
        power=0.5,
        corrections=(
            "the paper's proof bounds ‖λ_{t+1} − λ_1‖ by γt; it is γt(√M ℓ_f² + ρ)",
            "the theorem writes (1 − α)^(T/2) for (1 − αμ)^(T/2)",
        ),
    )


@arguments_of(optimization_last)
def optimization_sc(constants: Constants, *, reading: Reading = "derived", **steps: Any) -> Bound:
    """R_opt of MoDo: Theorem "PS optimization error of MoDo" (2), the strongly convex case.

    The smaller of `optimization` and `optimization_last`.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=100, c_F=1.0, mu=1.0)
        >>> optimization_sc(c, alpha=0.1, gamma=0.1, T=1000).of  # λ moves too much for the last
        'E[min_t R_opt(x_t)]'
    """
    last = optimization_last(constants, reading=reading, **steps)
    return min(optimization(constants, **steps), last, key=float)


@documented
def optimization_tracked(constants: Constants, *, alpha: float, T: int, tracking: float) -> Bound:
    r"""R_opt of a method that moves along the min-norm direction of an *estimate* Q_t of ∇F_S(x_t).

    .. math::
        \frac1T \sum_{t=1}^T E\,R_{opt}(x_t)^2 \le \frac{c_F}{\alpha T}
        + 2\ell_f^{3/2} \tau^{1/4} + \frac\alpha2 \ell_{f,1}\ell_f^2,
        \qquad \tau = \frac1T \sum_{t=1}^T E\|Q_t - \nabla F_S(x_t)\|^2

    For MoCo, Q_t is its tracker. The paper takes :math:`\tau = O(1/(\beta T) + \beta +
    \alpha^2/\beta^2)` from elsewhere, without constants: τ is to be measured, or use
    `trimol.theory.rates`.

    Args:
        constants: Those of the problem, with ``c_F``.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=100, c_F=1.0)
        >>> optimization_tracked(c, alpha=0.1, T=1000, tracking=0.0001).largest
        'error of the estimate'
    """
    check_steps(alpha, 0.0, T)
    checks.nonnegative("tracking", tracking)
    return Bound(
        _OF,
        {
            "start": constants.gap() / (alpha * T),
            "error of the estimate": 2 * constants.ell_f**1.5 * tracking**0.25,
            "noise of x": alpha / 2 * constants.ell_f1 * constants.ell_f**2,
        },
        "Theorem PS optimization errors of SMG and MoCo [thm:opt_err_smg_moco]",
        (SMOOTH, LIPSCHITZ, "ρ = 0, and ‖Q_t λ‖ ≤ ℓ_f"),
        (half_smooth(constants, alpha),),
        power=0.5,
    )


@documented
def optimization_smg(constants: Constants, *, alpha: float, T: int, growth: float = 1.0) -> Bound:
    r"""R_opt of SMG, whose batch at step t holds at least ``growth`` · t samples.

    `optimization_tracked` with :math:`\tau \le M\ell_f^2 (1 + \ln T)/(\mathrm{growth}\,T)`.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=100, c_F=1.0)
        >>> few, many = (float(optimization_smg(c, alpha=0.1, T=100, growth=g)) for g in (1, 16))
        >>> few > many
        True
    """
    checks.positive("growth", growth)
    checks.count("T", T)
    harmonic = 1 + math.log(T)  # at least Σ_{t ≤ T} 1/t
    tracking = constants.ell_F**2 * harmonic / (growth * T)
    return optimization_tracked(constants, alpha=alpha, T=T, tracking=tracking)
