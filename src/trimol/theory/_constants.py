"""The constants that the theorems are stated in, checked."""

import math
from dataclasses import dataclass

from trimol import _checks as checks
from trimol._failures import BadValue


@dataclass(frozen=True)
class Constants:
    r"""What the theorems assume of a problem. Each is a supremum over *all* samples and points.

    Attributes:
        ell_f: ℓ_f, every :math:`\|\nabla f_{z,m}(x)\|` is at most this (Lipschitz objectives; for
            strongly convex ones on the iterates only:
            `trimol.theory.bounds.trajectory_gradient`).
        ell_f1: ℓ_{f,1}, every :math:`\nabla f_{z,m}` is Lipschitz with this constant.
        M: How many objectives.
        n: How many training samples.
        c_F: At least :math:`F_S(x_1)\lambda_1 - \min_x F_S(x)\lambda_1`: what there is to gain.
            Needed for the optimization error.
        mu: μ > 0, every :math:`f_{z,m}` is μ-strongly convex; None where they are not.
        G: Every :math:`E_A\|\nabla F_z(A(S))\|_F^2` is at most G². None is √M ℓ_f.
        variance: At least the variance of :math:`\nabla F_z` over the population, in Frobenius
            norm. None is G², as a variance is at most the second moment.

    Example:
        >>> Constants(ell_f=2.0, ell_f1=1.0, M=4, n=100).second_moment
        16.0
    """

    ell_f: float
    ell_f1: float
    M: int
    n: int
    c_F: float | None = None  # noqa: N815 (the paper's name)
    mu: float | None = None
    G: float | None = None
    variance: float | None = None

    def __post_init__(self) -> None:
        checks.positive("ell_f", self.ell_f)
        checks.positive("ell_f1", self.ell_f1)
        checks.count("M", self.M)
        checks.count("n", self.n)
        for name in ("c_F", "G", "variance"):
            value = getattr(self, name)
            if value is not None:
                checks.nonnegative(name, value)
        if self.mu is not None:
            checks.positive("mu", self.mu)
            if self.mu > self.ell_f1:
                raise BadValue(f"mu must be at most ell_f1 = {self.ell_f1:g}, found {self.mu:g}")

    @property
    def ell_F(self) -> float:  # noqa: N802 (the paper's name)
        """ℓ_F = √M ℓ_f, the Lipschitz constant of F_z in Frobenius norm."""
        return math.sqrt(self.M) * self.ell_f

    @property
    def ell_F1(self) -> float:  # noqa: N802 (the paper's name)
        """ℓ_{F,1} = √M ℓ_{f,1}, the Lipschitz constant of ∇F_z in Frobenius norm."""
        return math.sqrt(self.M) * self.ell_f1

    @property
    def ell_g1(self) -> float:
        """ℓ_{g,1} = ℓ_f ℓ_{F,1} + ℓ_F ℓ_{f,1}: how fast the step on λ changes with x."""
        return self.ell_f * self.ell_F1 + self.ell_F * self.ell_f1

    @property
    def second_moment(self) -> float:
        """G²."""
        return self.ell_F**2 if self.G is None else self.G**2

    @property
    def gradient_variance(self) -> float:
        """The variance, or G² for want of it."""
        return self.second_moment if self.variance is None else self.variance

    def weight_step(self, rho: float) -> float:
        """√M ℓ_f² + ρ: a step on λ, divided by γ, is at most this long."""
        return self.ell_F * self.ell_f + rho

    def gap(self) -> float:
        """c_F, which the optimization error needs."""
        if self.c_F is None:
            raise BadValue("constants must have c_F for a bound of the optimization error")
        return self.c_F

    def convexity(self) -> float:
        """μ, which the strongly convex case needs."""
        if self.mu is None:
            raise BadValue("constants must have mu > 0 for a bound of the strongly convex case")
        return self.mu
