"""Bounds of the distances from conflict avoidance, E_ca of directions and E_caw of weights."""

import math

from trimol import _checks as checks
from trimol.theory._constants import Constants
from trimol.theory.bounds._bound import (
    LIPSCHITZ,
    SMOOTH,
    THREE_SAMPLES,
    Bound,
    Limit,
    Reading,
    check_steps,
    documented,
    is_printed,
)
from trimol.theory.bounds._limits import half_smooth

_OF = "mean_t E_ca(x_t, λ_{t+1})"
_TRACKED = "Theorem CA direction distances of SMG and MoCo [crlr:bias_CA_mitigate]"


@documented
def conflict(
    constants: Constants,
    *,
    alpha: float,
    gamma: float,
    T: int,
    rho: float = 0.0,
    reading: Reading = "derived",
) -> Bound:
    r"""E_ca of MoDo, averaged over the steps: Theorem "CA direction distance of MoDo".

    .. math::
        \frac1T \sum_{t=1}^T E_{ca}(x_t, \lambda_{t+1}) \le \frac{8}{\gamma T}
        + 12 \sqrt{M \ell_{f,1} \ell_f^2 \frac\alpha\gamma} + 6\rho
        + 2\gamma(1 + M\ell_f^2\gamma)(\sqrt M\ell_f^2 + \rho)^2

    Args:
        gamma: Step size of λ, above 0: weights that do not move have no such bound.
        reading: The paper prints 2ρ/γ + 4ρ for 6ρ, and (1 + Mγ) for (1 + Mℓ_f²γ).

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=100)
        >>> bound = conflict(c, alpha=1e-4, gamma=0.01, T=100_000)
        >>> {name: round(value, 3) for name, value in bound.terms.items()}
        {'start': 0.008, 'moving x': 1.2, 'regularization': 0.0, 'noise of the weights': 0.02}
    """
    check_steps(alpha, gamma, T, rho)
    checks.positive("gamma", gamma)
    printed = is_printed(reading)
    ell_f, M = constants.ell_f, constants.M
    # Strong convexity of λ's problem gives −ρ(‖λ_t‖² − ‖λ*‖² + …), at most ρ; the paper divides by
    # γ. ‖∇F_S(λ_{t+1} − λ_t)‖² ≤ ℓ_F² γ² S₁ keeps ℓ_f²; the paper's last line loses it.
    regularization = 2 * rho / gamma + 4 * rho if printed else 6 * rho
    one_step = M * gamma if printed else M * ell_f**2 * gamma
    return Bound(
        _OF,
        {
            "start": 8 / (gamma * T),
            "moving x": 12 * math.sqrt(M * constants.ell_f1 * ell_f**2 * alpha / gamma),
            "regularization": regularization,
            "noise of the weights": 2 * gamma * (1 + one_step) * constants.weight_step(rho) ** 2,
        },
        "Theorem CA direction distance of MoDo [lemma:converge_MGDA_bounded_grad]",
        (SMOOTH, LIPSCHITZ, THREE_SAMPLES),
        (),
        corrections=(
            "the paper prints 2ρ/γ where its proof gives 2ρ (larger for γ < 1, no bound for γ > 1)",
            "the paper prints 2γ(1 + Mγ) where its proof gives 2γ(1 + Mℓ_f²γ)",
        ),
    )


@documented
def conflict_weight(
    constants: Constants, *, alpha: float, gamma: float, T: int, rho: float
) -> Bound:
    r"""E_caw of MoDo at the last step: Theorem "CA weight distance of MoDo".

    .. math::
        E_{caw}(x_T, \lambda_{T+1}) \le 4(1-\rho\gamma)^T + \frac\gamma\rho (\sqrt M\ell_f^2+\rho)^2
        + \frac{8 \alpha M \ell_{f,1}\ell_f^2}{\rho^2\gamma}

    Args:
        gamma: Step size of λ, above 0.
        rho: Regularization of λ, above 0, with ργ ≤ 1 (which the theorem does not state but uses).

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=100)
        >>> conflict_weight(c, alpha=1e-5, gamma=0.1, T=1000, rho=0.1).largest
        'noise of the weights'
    """
    check_steps(alpha, gamma, T, rho)
    checks.positive("gamma", gamma)
    checks.positive("rho", rho)
    moving = constants.M * constants.ell_f1 * constants.ell_f**2
    return Bound(
        "E_caw(x_T, λ_{T+1})",
        {
            "start": 4 * (1 - min(rho * gamma, 1.0)) ** T,
            "noise of the weights": gamma / rho * constants.weight_step(rho) ** 2,
            "moving x": 8 * alpha * moving / rho / rho / gamma,
        },
        "Theorem CA weight distance of MoDo [thm:dist_CA_weight]",
        (SMOOTH, LIPSCHITZ),
        (Limit("rho * gamma", rho * gamma, 1.0, "1"),),
    )


def conflict_weight_static(M: int) -> tuple[Bound, Bound]:
    """E_caw of the *worst* static weights, from below and from above, whatever is trained for.

    Proposition "CA weight distance of static weighting": some λ is at least (1 − 1/M)² away, and
    none is further than the simplex is wide, √2 (the paper writes 4 for its square). The proof
    chooses λ after x_T; for a λ that x was trained with the lower bound fails
    (docs/paper/synthetic.md).

    Example:
        >>> below, above = conflict_weight_static(2)
        >>> float(below), float(above)
        (0.25, 2.0)
    """
    checks.count("M", M)
    of, theorem = "E_caw(x_T, λ)", "Proposition CA weight distance of static weighting"
    below = Bound(of, {"far corner": (1 - 1 / M) ** 2}, theorem, lower=True)
    return below, Bound(of, {"diameter": 2.0 if M > 1 else 0.0}, theorem)


@documented
def conflict_tracked(constants: Constants, *, alpha: float, tracking: float) -> Bound:
    r"""E_ca of a method that moves along the min-norm direction of an estimate of ∇F_S (MoCo).

    .. math::
        \frac1T \sum_{t=1}^T E_{ca} \le 4\ell_f \sqrt\tau,
        \qquad \tau = \frac1T \sum_{t=1}^T E\|Q_t - \nabla F_S(x_t)\|^2

    Args:
        alpha: Step size of x, which the theorem limits.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=2, n=100)
        >>> float(conflict_tracked(c, alpha=0.1, tracking=0.01))
        0.4
    """
    checks.positive("alpha", alpha)
    checks.nonnegative("tracking", tracking)
    return Bound(
        _OF,
        {"error of the estimate": 4 * constants.ell_f * math.sqrt(tracking)},
        _TRACKED,
        (SMOOTH, LIPSCHITZ, "ρ = 0, and ‖Q_t λ‖ ≤ ℓ_f"),
        (half_smooth(constants, alpha),),
    )


@documented
def conflict_smg(constants: Constants, *, alpha: float, T: int, growth: float = 1.0) -> Bound:
    r"""E_ca of SMG, whose batch at step t holds at least ``growth`` · t samples.

    :math:`4\ell_f` times the mean of :math:`\sqrt{M\ell_f^2/(\mathrm{growth}\,t)}`, with
    :math:`\sum_{t\le T} t^{-1/2} \le 2\sqrt T`.

    Example:
        >>> c = Constants(ell_f=1.0, ell_f1=1.0, M=1, n=100)
        >>> float(conflict_smg(c, alpha=0.1, T=100))
        0.8
    """
    checks.positive("alpha", alpha)
    checks.count("T", T)
    checks.positive("growth", growth)
    deviation = constants.ell_F / math.sqrt(growth * T)
    return Bound(
        _OF,
        {"error of the batches": 8 * constants.ell_f * deviation},
        _TRACKED,
        (SMOOTH, LIPSCHITZ, "ρ = 0"),
        (half_smooth(constants, alpha),),
    )
