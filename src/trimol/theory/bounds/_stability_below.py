"""Lower bounds of the stability: examples on which no analysis can do better."""

import math

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.theory.bounds._bound import Bound, Limit, Reading, is_printed

_LOWER_NC = "Lemma Lower bound in the NC case [lemma:lower_bound_stability_NC]"
_LOWER_SC = "Theorem lower bound, Example quadratic SC [thm:lower_bound]"


def stability_lower(*, T: int, n: int, reading: Reading = "derived") -> Bound:
    r"""ε_F² of MoDo from below, without convexity: Lemma "Lower bound … in the NC case".

    The example: two equal objectives sin(x + z), data of zeros with one −π/8 in its neighbour,
    x₀ = π/4, α = π/80 and 2 ≤ T ≤ 10 < n. The sample that differs is drawn with probability at
    least 2T/(3n); the runs part by at least sin²(π/16) α then, and never come closer.

    Args:
        T: Steps, from 2 to 10.
        n: Samples, more than 10.
        reading: The paper prints 7π/800 for sin²(π/16)·π/80 = 0.38π/800: it takes both of a step's
            samples to be the one that differs, and 0.076 π/80 to be at least 7π/800. It leaves out
            that there are two objectives.

    Example:
        >>> tiny = stability_lower(T=10, n=100)
        >>> tiny.lower, f"{tiny.value:.2g}"
        (True, '4.4e-08')
    """
    if checks.count("T", T) not in range(2, 11):
        raise BadValue(f"T must be from 2 to 10 for {_LOWER_NC}, found {T}")
    if checks.count("n", n) <= 10:
        raise BadValue(f"n must be more than 10 for {_LOWER_NC}, found {n}")
    if is_printed(reading):
        apart, objectives = 7 * math.pi / 800, 1
    else:
        apart, objectives = math.sin(math.pi / 16) ** 2 * math.pi / 80, 2
    gradients = objectives * (math.sin(math.pi / 8) * apart) ** 2
    return Bound(
        "ε_F²",
        {"sample drawn": gradients * 2 * T / (3 * n)},
        _LOWER_NC,
        ("the lemma's example", "α = π/80"),
        lower=True,
    )


def stability_lower_sc(
    *, n: int, gamma: float, T: int, ell_f: float, reading: Reading = "derived"
) -> Bound:
    r"""E‖A(S) − A(S')‖ of MoDo from below, with strong convexity: Theorem "lower bound".

    The example: M = 2, :math:`f_{z,m}(x) = \frac12 x^\top A x - b_m z^\top x`, b = (1, 1 + √2),
    :math:`\mu = 16 n^{-1/3}`, λ₀ = (½, ½), x₀ = 7v, α = 1/(4μT), ρ = 0 and
    :math:`\gamma \le 1/(2MT\ell_F\ell_f)`. The means of the differences of x and λ obey a linear
    recursion; solved, it says

    .. math::
        E\|x_T - x'_T\| \ge \frac{b^\top\lambda_0}{n}\Big(T c_1 + c_2\, a\, \frac{1-r^T}{1-r}\Big),
        \quad a = \alpha(1-\gamma\mu^2),\ r = (1-\alpha\mu)(1-\gamma\mu^2),\
        c_1 = \frac{a\gamma}{n(a+\gamma\mu)},\ c_2 = 1 - \frac{\gamma}{n(a+\gamma\mu)}

    Squared, times Mμ², it is a lower bound of ε_F²: Ω(M/n²).

    Args:
        n: Samples.
        gamma: Step size of λ.
        T: Steps.
        ell_f: ℓ_f along the example's iterates.
        reading: The paper prints γT/(2n²) + 1/(16n), for T ≤ 4n^{2/3}. Its 1/(16n) needs μ ≤ 2
            (n ≥ 512) and, with that μ, makes ε_F² only Ω(M n^{-8/3}).

    Example:
        >>> lower = stability_lower_sc(n=1000, gamma=1e-6, T=100, ell_f=20.0)
        >>> printed = stability_lower_sc(n=1000, gamma=1e-6, T=100, ell_f=20.0, reading="printed")
        >>> lower.value > printed.value > 0
        True
    """
    checks.count("n", n)
    checks.positive("gamma", gamma)
    checks.count("T", T)
    checks.positive("ell_f", ell_f)
    M, mu = 2, 16 * n ** (-1 / 3)
    slow = 1 / (2 * M * T * math.sqrt(M) * ell_f**2)
    limits = [Limit("gamma", gamma, slow, "1/(2 M T ell_F ell_f)")]
    if is_printed(reading):
        limits.append(Limit("T", T, 4 * n ** (2 / 3), "4 n^(2/3)"))
        terms = {"moving weights": gamma * T / (2 * n**2), "noise of x": 1 / (16 * n)}
    else:
        limits.append(Limit("gamma * mu^2", gamma * mu**2, 0.5, "1/2"))
        terms = _recursion(n, gamma, T, mu)
    return Bound(
        "E‖A(S) − A(S')‖",
        terms,
        _LOWER_SC,
        ("the theorem's example", "α = 1/(4μT)"),
        tuple(limits),
        lower=True,
        corrections=(
            "the paper's c₂ ≥ 1 has α for α(1 − γμ²): it is just below one",
            "the paper's sum of powers of r, 1/(8α) = μT/2, needs μ ≤ 2, thus n ≥ 512",
        ),
    )


def _recursion(n: int, gamma: float, T: int, mu: float) -> dict[str, float]:
    """The proof's recursion for the mean differences of x and λ, solved."""
    alpha = 1 / (4 * mu * T)
    # a, r, c₁ and c₂ of the docstring of `stability_lower_sc`.
    a = alpha * (1 - gamma * mu**2)
    rate = (1 - alpha * mu) * (1 - gamma * mu**2)
    along = a * gamma / n / (a + gamma * mu)
    across = 1 - gamma / n / (a + gamma * mu)
    powers = (1 - rate**T) / (1 - rate)  # 1 + r + … + r^(T−1)
    start = 1 + 1 / math.sqrt(2)  # bᵀλ₀, and E[bᵀλ'_t] does not fall (Lemma "grad_geq_0")
    return {
        "moving weights": start * T * along / n,
        "noise of x": start * across * a * powers / n,
    }
