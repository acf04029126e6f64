r"""Angles and lengths of mean gradients, from those of a few batches, with bounds.

Notation: n batches, M objectives, :math:`v_{b,m}` the gradient of objective m on batch b, and
:math:`K_{ai,bj} = \langle v_{a,i}, v_{b,j} \rangle`. The inner products of the means,
:math:`\langle \bar v_i, \bar v_j \rangle`, are off by :math:`\mathrm{tr}\,\Sigma_{ij}/n` on
average: the same noise is in both factors. Products of *different* batches have no such part, so
that

.. math:: U_{ij} = \frac{1}{n(n-1)} \sum_{a \ne b} K_{ai,bj}

is unbiased, a U-statistic. What is a smooth function of U (a cosine, a ratio of lengths) gets its
standard error by the jackknife: U without each of the batches, one after the other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from trimol.errors._bracket import Bracket, student
from trimol.gradients._rows import products


@dataclass(frozen=True)
class Spread:
    """The gradients of n batches, by their inner products.

    Attributes:
        products: K, n × M × n × M in float64.
        confidence: With which probability each bracket covers the truth.
    """

    products: Tensor
    confidence: float = 0.95

    @property
    def batches(self) -> int:
        """n."""
        return self.products.shape[0]

    @cached_property
    def gramian(self) -> Tensor:
        """U, M × M. Its diagonal can be negative, where noise is all there is."""
        n = self.batches
        return self._different / (n * (n - 1))

    @property
    def plain(self) -> Tensor:
        """That of the mean gradients, M × M, with the noise that is in it: never indefinite."""
        mean = self.products.mean((0, 2))
        return (mean + mean.T) / 2

    @property
    def variance(self) -> Tensor:
        """tr Σ_mm of each objective: the squared length of the noise of one batch, on average."""
        return _variance(self._squares.sum(0), self._totals, self.batches)

    def bracket(self, statistic: Callable[[Tensor], Tensor]) -> Bracket:
        """A statistic of U with its bounds; the whole line where it is not defined.

        Args:
            statistic: From Gramians, ... × M × M, to numbers; NaN where it is not defined.
        """
        return self._jackknife(float(statistic(self.gramian)), statistic(self._without))

    def _jackknife(self, value: float, without: Tensor) -> Bracket:
        """A number with its bounds, from what it is without each of the batches."""
        n = self.batches
        if not math.isfinite(value) or not without.isfinite().all():
            return Bracket(math.nan, math.nan, -math.inf, math.inf)
        error = float(((n - 1) / n * (without - without.mean()).square().sum()).sqrt())
        half = student((1 - self.confidence) / 2, n - 1) * error
        return Bracket(value, error, value - half, value + half)

    def norm(self, weights: Tensor) -> Bracket:
        """The length of a combination of the mean gradients.

        By the jackknife of the length. Where noise may be all there is, so that some of the squares
        are negative, from 0 to the root of the square's bound.
        """
        found = self.bracket(lambda gramian: _form(gramian, weights, weights).sqrt())
        if math.isfinite(found.value):
            return Bracket(found.value, found.error, max(found.low, 0.0), found.high)
        square = self.bracket(lambda gramian: _form(gramian, weights, weights))
        value, high = (math.sqrt(max(x, 0.0)) for x in (square.value, square.high))
        return Bracket(value, math.nan, 0.0, high)

    def noise(self, objective: int) -> Bracket:
        """tr Σ_mm/‖∇f_m‖², by its logarithm; without an upper bound if the gradient may be zero."""
        n, m = self.batches, objective
        variance = float(self.variance[m])
        if variance == 0:
            return Bracket(0.0, 0.0, 0.0, 0.0)
        rest = self._squares.sum(0) - self._squares
        without = _variance(rest, self._totals_without, n - 1)[:, m]
        found = self._jackknife(
            math.log(variance) - _log(float(self.gramian[m, m])),
            without.log() - self._without[:, m, m].log(),
        )
        norm = self.norm(torch.eye(len(self._totals))[m].double())
        if not math.isfinite(found.value) or not norm.low > 0:
            value, low = (variance / x**2 if x > 0 else math.inf for x in (norm.value, norm.high))
            return Bracket(value, math.nan, low, math.inf)
        value, low, high = (math.exp(x) for x in (found.value, found.low, found.high))
        return Bracket(value, math.nan, low, high)

    def cosine(self, first: Tensor, second: Tensor) -> Bracket:
        """The cosine of two combinations of the mean gradients.

        Unknown, from −1 to 1, if one of them is not certain to differ from zero.
        """
        if not min(self.norm(first).low, self.norm(second).low) > 0:
            return Bracket(math.nan, math.nan, -1.0, 1.0)
        found = self.bracket(lambda gramian: _cosine(gramian, first, second))
        value, low, high = (min(max(x, -1.0), 1.0) for x in (found.value, found.low, found.high))
        return Bracket(value, found.error, low, high)

    @cached_property
    def _same(self) -> Tensor:
        """K_{bi,bj}, n × M × M."""
        return torch.einsum("bibj->bij", self.products)

    @cached_property
    def _squares(self) -> Tensor:
        """‖v_b,m‖², n × M."""
        return self._same.diagonal(dim1=-2, dim2=-1)

    @cached_property
    def _totals(self) -> Tensor:
        """‖Σ_b v_b,m‖², M numbers."""
        return self.products.sum((0, 2)).diagonal()

    @cached_property
    def _totals_without(self) -> Tensor:
        """The same without each of the batches, n × M."""
        with_all = torch.einsum("aibi->ai", self.products)
        return self._totals - 2 * with_all + self._squares

    @cached_property
    def _different(self) -> Tensor:
        """Σ_{a≠b} K_{ai,bj}, M × M."""
        return self.products.sum((0, 2)) - self._same.sum(0)

    @cached_property
    def _without(self) -> Tensor:
        """U without each of the batches, n × M × M."""
        n = self.batches
        rows = self.products.sum(2) - self._same
        columns = self.products.sum(0).transpose(0, 1) - self._same
        return (self._different - rows - columns) / ((n - 1) * (n - 2))


def spread(
    rows: Sequence[Tensor], sizes: Tensor, *, scale: Tensor | None = None, confidence: float = 0.95
) -> Spread:
    """From the M × d gradients of n batches.

    Args:
        rows: Those of each batch, each a mean over its samples.
        sizes: How many samples each batch has, n or n × M.
        scale: The diagonal of S, d numbers, for inner products :math:`v^\\top S w`.
        confidence: With which probability each bracket covers the truth.

    Example:
        >>> rows = [torch.tensor([[1.0, 0.0], [-1.0, b]]) for b in (-0.1, 0.1, 0.0)]
        >>> found = spread(rows, torch.ones(3))
        >>> found.gramian[0].tolist()
        [1.0, -1.0]
        >>> found.cosine(*torch.eye(2).double()).high < 0
        True
    """
    n, objectives = len(rows), len(rows[0])
    flat = torch.cat(list(rows))
    given = products(flat, flat, scale).cpu().reshape(n, objectives, n, objectives)
    even = _even(sizes.double().reshape(n, -1).expand(n, objectives))
    return Spread(torch.einsum("iac,cidj,jbd->aibj", even, given, even), confidence)


def _even(sizes: Tensor) -> Tensor:
    """For each objective the n × n matrix that makes batches of all sizes count alike.

    A batch with s times the usual number of samples counts as v̄ + s (v_b − v̄), with v̄ the mean over
    samples: that is then their plain mean, and their spread that of v̄.
    """
    shares = (sizes / sizes.mean(0)).T
    mean = shares[:, None, :] / len(sizes)
    return mean + torch.diag_embed(shares) - shares[..., None] * mean


def _variance(squares: Tensor, totals: Tensor, batches: int) -> Tensor:
    """Σ_b ‖v_b − v̄‖²/(n − 1), from Σ_b ‖v_b‖² and ‖Σ_b v_b‖²."""
    return ((squares - totals / batches) / (batches - 1)).clamp_min(0)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


def _form(gramian: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.einsum("...ij,i,j->...", gramian, first, second)


def _cosine(gramian: Tensor, first: Tensor, second: Tensor) -> Tensor:
    lengths = _form(gramian, first, first), _form(gramian, second, second)
    # A negative square gives NaN: not defined.
    return _form(gramian, first, second) / lengths[0].sqrt() / lengths[1].sqrt()
