r"""Bounds, with a stated confidence, from a few independent batches.

Notation: n batches (*clusters*) with n_b samples each; :math:`w_b = n_b / \bar n`. A mean over them
is the ratio estimate :math:`\bar v = \frac1n \sum_b w_b v_b`, with the residuals
:math:`c_b = w_b (v_b - \bar v)` and their covariance
:math:`\hat\Sigma = \frac1{n-1} \sum_b c_b c_b^\top`, so that :math:`\bar v - \mu` is normal with
covariance :math:`\hat\Sigma/n` where n is not too small. Batches drawn without replacement vary
less: leaving the finite-population correction out errs on the safe side.

*A number* is bounded by Student's t. *A norm* is not: :math:`\|\bar v\|^2` is too large by
:math:`\mathrm{tr}\,\Sigma/n` on average, which is all there is of it at a stationary point. With a
the error of :math:`\bar v` along :math:`\mu` and :math:`e_\perp` the rest of it,

.. math:: \|\bar v\|^2 = (\|\mu\| + a)^2 + \|e_\perp\|^2, \quad\text{hence}\quad
          \|\mu\| \le -a + \sqrt{\|\bar v\|^2 - \|e_\perp\|^2} .

:math:`-a` is at most Student's t times :math:`\sqrt{\lambda_1/n}`, whatever the direction of
:math:`\mu`, and :math:`\|e_\perp\|^2` is at least a sum of :math:`\lambda_i \chi^2_1/n` over all
eigenvalues of the covariance but the first (interlacing), whose lower quantile is that of the F
distribution with the same two moments (Welch, Satterthwaite). Each takes half of the error
probability. The eigenvalues are the sample's: their spread is too large on average, and the bound
with it.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import scipy
import torch
from torch import Tensor


@dataclass(frozen=True)
class Bracket:
    """An estimate, and between which numbers the truth lies.

    Attributes:
        value: The estimate, corrected for the part that noise adds.
        error: Its standard error; NaN where there is none (E_caw has its bounds only).
        low: A lower bound of the true value.
        high: An upper bound; both hold together with the stated confidence.
    """

    value: float
    error: float
    low: float
    high: float

    def covers(self, truth: float) -> bool:
        """Whether ``truth`` is in the bracket."""
        return self.low <= truth <= self.high


@dataclass(frozen=True)
class Numbers:
    """K numbers of each of n clusters."""

    values: Tensor  # n × K, in float64
    sizes: Tensor  # samples of each cluster: n, or n × K where each number has its own

    @cached_property
    def mean(self) -> Tensor:
        """The K ratio estimates v̄ = Σ n_b v_b / Σ n_b."""
        sizes = self._sizes
        return (self.values * sizes).sum(0) / sizes.sum(0)

    @cached_property
    def error(self) -> Tensor:
        """Their standard errors, √(Σ c_b² / (n(n − 1)))."""
        n = len(self.sizes)
        return (self._residuals.square().sum(0) / (n - 1) / n).sqrt()

    def lower(self, alpha: float) -> Tensor:
        """Bounds from below, each too large with probability ``alpha``: v̄ − t σ̂/√n."""
        return self.mean - student(alpha, len(self.sizes) - 1) * self.error

    def combined(self, coefficients: Tensor) -> "Numbers":
        """Σ_k a_k v_k: one number a cluster, v̄ + c_b, which has the same mean and residuals."""
        alike = (self.mean + self._residuals) @ coefficients[:, None]
        return Numbers(alike, torch.ones_like(alike[:, 0]))

    @property
    def _sizes(self) -> Tensor:
        return self.sizes if self.sizes.dim() > 1 else self.sizes[:, None]

    @property
    def _residuals(self) -> Tensor:
        """c_b = w_b (v_b − v̄), with w_b = n_b/n̄."""
        return self._sizes / self._sizes.mean(0) * (self.values - self.mean)


@dataclass(frozen=True)
class Norm:
    """The norm of the mean of n vectors of any length, from their inner products."""

    gramian: Tensor  # ⟨v_a, v_b⟩ of the n clusters, n × n, in float64
    sizes: Tensor  # samples of each cluster

    @cached_property
    def square(self) -> float:
        """The unbiased estimate of ‖μ‖²: ‖v̄‖² − tr Σ̂/n. It can be negative."""
        return self._plain - float(self._spectrum.sum()) / len(self.sizes)

    @cached_property
    def square_error(self) -> float:
        """The standard error of `square`: √(4 μᵀΣμ/n + 2 tr Σ²/(n(n − 1)))."""
        n = len(self.sizes)
        noise = float(self._spectrum.square().sum())  # tr Σ̂²
        # v̄ᵀΣ̂v̄ from the inner products ⟨c_b, v̄⟩; it is μᵀΣμ + tr Σ²/n on average.
        along = self._residual @ self.gramian @ self._share
        slope = float(along.square().sum()) / (n - 1) - noise / n
        return math.sqrt(4 * max(slope, 0.0) / n + 2 * noise / (n * (n - 1)))

    def upper(self, alpha: float) -> float:
        """A bound of ‖μ‖ from above, too small with probability ``alpha``.

        ‖μ‖ ≤ −a + √(‖v̄‖² − ‖e_⊥‖²) of the module's docstring, α/2 for each of the two unknowns.
        """
        n = len(self.sizes)
        largest, rest = float(self._spectrum[-1]), self._spectrum[:-1]
        # −a ≤ t √(λ₁/n): the noise along μ is at most that along the noisiest direction.
        along = student(alpha / 2, n - 1) * math.sqrt(largest / n)
        # ‖e_⊥‖² ≥ Σ_{i>1} λ_i χ²_1/n: by interlacing, whichever direction μ takes out.
        across = _lower_quantile(rest, n, alpha / 2) / n
        return along + math.sqrt(max(self._plain - across, 0.0))

    @cached_property
    def _plain(self) -> float:
        """‖v̄‖²."""
        return max(float(self._share @ self.gramian @ self._share), 0.0)

    @property
    def _share(self) -> Tensor:
        """n_b/Σ n_b, so that v̄ is the sum of the vectors times these."""
        return self.sizes.div(self.sizes.sum())

    @cached_property
    def _residual(self) -> Tensor:
        """The n × n matrix that takes the vectors to their residuals c_b."""
        weights = self.sizes / self.sizes.mean()
        return weights[:, None] * (torch.eye(len(weights)).to(weights) - self._share)

    @cached_property
    def _spectrum(self) -> Tensor:
        """The eigenvalues of Σ̂ that can differ from zero, rising: those of ⟨c_a, c_b⟩/(n − 1)."""
        residuals = self._residual @ self.gramian @ self._residual.T
        eigenvalues: Tensor = torch.linalg.eigvalsh((residuals + residuals.T) / 2)
        return eigenvalues.clamp_min(0) / (len(self.sizes) - 1)


def root(square: float, error: float, low: float, high: float) -> Bracket:
    """From the square of a norm and its standard error to the norm's, inside its bounds.

    The error is √(s + e) − √s: e/(2√s) where s is large beside e, and √e at zero.
    """
    value = min(max(math.sqrt(max(square, 0.0)), low), high)
    return Bracket(value, math.sqrt(value**2 + error) - value, low, high)


def student(alpha: float, freedom: int) -> float:
    """The value that a Student t variable exceeds with probability ``alpha``."""
    return float(scipy.special.stdtrit(freedom, 1 - alpha))


def _lower_quantile(spectrum: Tensor, clusters: int, alpha: float) -> float:
    """The ``alpha`` quantile of Σ λ_i χ²_1, the λ_i estimated from so many clusters."""
    total, squares = float(spectrum.sum()), float(spectrum.square().sum())
    if squares == 0:
        return 0.0
    # Welch and Satterthwaite: Σ λ_i F with the two moments of Σ λ_i χ²_1, f = (Σλ)²/Σλ².
    freedom = total**2 / squares
    return total * float(scipy.special.fdtri(freedom, freedom * (clusters - 1), alpha))
