"""`estimate_constants`: the theorems' constants, as far as a model and its data show them."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.data._draws import batch_size
from trimol.errors._inputs import LossVector, undisturbed
from trimol.gradients import Losses, jacobian
from trimol.gradients._params import checked
from trimol.gradients.curvature import Hessian, spectrum
from trimol.theory._constants import Constants


@dataclass(frozen=True)
class Measured:
    """A quantity seen many times; the theorems want its supremum, which nobody sees.

    Attributes:
        most: The largest value seen.
        least: The smallest.
        mean: Their mean.
        spread: Their standard deviation; 0 for a single value.
        count: How many there were.
    """

    most: float
    least: float
    mean: float
    spread: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measured":
        """From values.

        >>> Measured.of([1.0, 3.0])
        Measured(most=3.0, least=1.0, mean=2.0, spread=1.0, count=2)
        """
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
        return cls(max(values), min(values), mean, spread, len(values))

    def __str__(self) -> str:
        return f"{self.most:.3g} (mean {self.mean:.3g} ± {self.spread:.2g} of {self.count})"


@dataclass(frozen=True)
class Estimates:
    """What `estimate_constants` saw: *lower* bounds of the constants, of μ an upper one.

    Attributes:
        ell_f: Gradient norms ‖∇f_m‖, over batches, objectives and points.
        ell_f1: Largest absolute eigenvalues of the Hessians of f_m.
        smallest: Smallest eigenvalues of these Hessians.
        curvature_error: The largest Lanczos residual: how far off an eigenvalue may be.
        G: Frobenius norms of the batches' gradients.
        variance: The gradients' variance between single samples, at x; None with one batch.
        c_F: λ·(F_S(x) − floor), with λ uniform.
        M: Objectives.
        n: Samples.
        points: At how many points the constants were looked at.
    """

    ell_f: Measured
    ell_f1: Measured
    smallest: Measured
    curvature_error: float
    G: Measured
    variance: float | None
    c_F: float  # noqa: N815 (the paper's name)
    M: int
    n: int
    points: int

    @property
    def mu(self) -> float | None:
        """The least eigenvalue where it is positive, else None."""
        return self.smallest.least if self.smallest.least > 0 else None

    @property
    def mu_reason(self) -> str:
        """What the least eigenvalue says of strong convexity, in words."""
        least = f"{self.smallest.least:.3g}"
        if self.mu is None:
            return (
                f"none: a Hessian has the eigenvalue {least}, so the losses are not strongly convex"
            )
        return (
            f"at most {least}: every Hessian seen is positive definite, here; that it is so "
            "everywhere is for you to know"
        )

    def constants(self, *, safety: float = 1.0) -> Constants:
        """These as `Constants`, those that are suprema times ``safety``, μ divided by it.

        Args:
            safety: How much larger than what was seen the supremum is taken to be.
        """
        checks.positive("safety", safety)
        return Constants(
            ell_f=self.ell_f.most * safety,
            ell_f1=self.ell_f1.most * safety,
            M=self.M,
            n=self.n,
            c_F=self.c_F * safety,
            mu=None if self.mu is None else self.mu / safety,
            G=self.G.most * safety,
            variance=None if self.variance is None else self.variance * safety,
        )

    def __str__(self) -> str:
        variance = (
            "not to be told from one batch" if self.variance is None else f"{self.variance:.3g}"
        )
        return "\n".join(
            [
                f"seen at {self.points} point(s) in {self.n} samples, {self.M} objectives:",
                f"  ell_f    at least {self.ell_f}",
                f"  ell_f1   at least {self.ell_f1}, residual {self.curvature_error:.1g}",
                f"  mu       {self.mu_reason}",
                f"  G        at least {self.G}",
                f"  variance {variance}",
                f"  c_F      {self.c_F:.3g}, if no loss is below its floor",
            ]
        )


def estimate_constants(
    losses: Callable[[Any], Losses],
    params: Iterable[Tensor],
    loader: Iterable[Any],
    *,
    points: int = 1,
    radius: float = 0.0,
    curvature_batches: int = 4,
    products: int = 20,
    floor: float | Sequence[float] = 0.0,
    size: Callable[[Any], float] | None = None,
    seed: int = 0,
) -> Estimates:
    r"""Look at gradients and Hessians of a model for the constants of the theorems.

    The theorems' constants are suprema over all samples z and all points x. What can be seen is the
    largest value over *some*: over the batches of ``loader``, at x and ``points`` − 1 random points
    at distance ``radius``. That is a lower bound of the supremum, and a mean over a batch is at
    most the largest of its samples: to see ℓ_f of single samples, give batches of one. The spread
    over what was seen tells how rash it would be to take the largest for the supremum.

    - ℓ_f: the largest ‖∇f_m‖; G: the largest ‖∇F‖_F.
    - ℓ_{f,1}: the largest eigenvalue in size of a batch's Hessian of f_m, by Lanczos on
      Hessian-vector products: local, and from below.
    - μ: the smallest such eigenvalue, if positive. It tells that the losses curve up *here*. That
      they do everywhere is for you to know: of a neural network they do not.
    - variance: of the gradients of single samples, from that of batches of independent samples.
    - c_F: what the mean of the objectives has to lose, given the ``floor`` that no loss gets below.

    The model is called as it is: put it in eval mode. Nothing is changed: parameters are put back
    to the last bit, and so are random generators. It takes one pass over the data per point, M
    gradients a batch, and M · ``products`` Hessian-vector products on each of the curvature
    batches. It is for one process: the batches of others are not looked at.

    Args:
        losses: From a batch to its M losses, each the mean over the batch.
        params: The parameters x.
        loader: The training data: an iterable of batches that can be gone over ``points`` times.
        points: At how many points to look.
        radius: How far from x the further points are.
        curvature_batches: On how many of the first batches to look at Hessians.
        products: How many Hessian-vector products to take for each.
        floor: What each loss is at least; 0 for cross-entropies and squares.
        size: How many samples a batch holds; read off the batch by default.
        seed: Of the further points.

    Example:
        Two quadratics ½ Σ h_i (x_i − z_i)², whose Hessians have the eigenvalues h.

        >>> x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        >>> h = torch.tensor([[1.0, 3.0], [2.0, 2.0]], dtype=torch.float64)
        >>> def losses(z): return ((x - z) ** 2).mean(0) @ h.T / 2
        >>> seen = estimate_constants(losses, [x], torch.eye(2).double().split(1))
        >>> round(seen.ell_f.most, 6), round(seen.ell_f1.most, 6), round(seen.mu, 6)
        (3.0, 3.0, 1.0)
    """
    held = checked(params)
    checks.count("points", points)
    checks.nonnegative("radius", radius)
    checks.count("curvature_batches", curvature_batches)
    checks.count("products", products)
    survey = _Survey(LossVector(losses, held, None), held, batch_size if size is None else size)
    with undisturbed(held, losses, loader):
        for number in range(points):
            with _moved(held, radius if number else 0.0, seed + number):
                survey.look(loader, curvature_batches, products, first=not number)
    return survey.estimates(points, floor)


class _Survey:
    """Goes over the data, and keeps what it sees."""

    def __init__(
        self, losses: LossVector, params: Sequence[Tensor], size: Callable[[Any], float]
    ) -> None:
        self.losses, self.params, self.size = losses, params, size
        # Of every batch at every point: ‖∇f_m‖, ‖∇F‖_F, and the ends of the Hessians' spectra.
        self.norms: list[float] = []
        self.frobenius: list[float] = []
        self.largest: list[float] = []
        self.smallest: list[float] = []
        self.error = 0.0
        # At x itself, with b the batches' sizes: F, Σ b ∇F_b and Σ b ‖∇F_b‖_F².
        self.sizes: list[float] = []
        self.values: list[Tensor] = []
        self.total = torch.zeros(())
        self.squares = 0.0

    def look(
        self, loader: Iterable[Any], curvature_batches: int, products: int, *, first: bool
    ) -> None:
        """One pass over the data, where the parameters are now."""
        number = -1
        for number, batch in enumerate(loader):
            vector = self.losses(batch)
            rows = self._gradients(vector, number)
            if first:
                size = float(self.size(batch))
                self.sizes.append(size)
                self.values.append(vector.detach().double().cpu())
                self.total = self.total + size * rows
                self.squares += size * float(rows.square().sum())
            if number < curvature_batches:
                self._curvature(vector, products)
        if number < 0:
            again = "" if first else " again: pass something that can be gone over many times"
            raise BadValue(f"loader must hold at least one batch, found none{again}")

    def _gradients(self, vector: Tensor, number: int) -> Tensor:
        rows = jacobian(vector, self.params).to("cpu", torch.float64)
        if not rows.isfinite().all() or not vector.isfinite().all():
            raise BadValue(
                f"losses and gradients must be finite, found NaN or infinity in batch {number}"
            )
        self.norms += rows.norm(dim=1).tolist()
        self.frobenius.append(float(rows.norm()))
        return rows

    def _curvature(self, vector: Tensor, products: int) -> None:
        for loss in vector:
            ends = spectrum(Hessian(loss, self.params), products=products)
            self.largest.append(ends.norm)
            self.smallest.append(ends.smallest)
            self.error = max(self.error, ends.error)

    def estimates(self, points: int, floor: float | Sequence[float]) -> Estimates:
        """What was seen, summed up."""
        samples = math.fsum(self.sizes)
        means = torch.tensor(self.sizes, dtype=torch.float64) @ torch.stack(self.values) / samples
        return Estimates(
            ell_f=Measured.of(self.norms),
            ell_f1=Measured.of(self.largest),
            smallest=Measured.of(self.smallest),
            curvature_error=self.error,
            G=Measured.of(self.frobenius),
            variance=self._variance(samples),
            c_F=_gap(means, floor),
            M=len(means),
            n=round(samples),
            points=points,
        )

    def _variance(self, samples: float) -> float | None:
        """Of single samples: a mean over b independent ones has 1/b of their variance.

        Σ b ‖∇F_b − ∇F‖² over B batches has the mean (B − 1) variance.
        """
        if len(self.sizes) < 2:
            return None
        common = float(self.total.square().sum()) / samples
        return max(0.0, self.squares - common) / (len(self.sizes) - 1)


@contextmanager
def _moved(params: Sequence[Tensor], radius: float, seed: int) -> Iterator[None]:
    """With the parameters a random step of length ``radius`` away, and put back after."""
    if not radius:
        yield
        return
    kept = [p.detach().clone() for p in params]
    draw = torch.Generator().manual_seed(seed)
    steps = [torch.randn(p.shape, generator=draw, dtype=torch.float64) for p in params]
    length = math.sqrt(sum(float(s.square().sum()) for s in steps))
    try:
        with torch.no_grad():
            for p, step in zip(params, steps, strict=True):
                p.add_((step * (radius / length)).to(p))
        yield
    finally:
        with torch.no_grad():
            for p, before in zip(params, kept, strict=True):
                p.copy_(before)


def _gap(means: Tensor, floor: float | Sequence[float]) -> float:
    """λ·(F_S(x) − floor) with λ uniform."""
    lowest = torch.as_tensor(floor, dtype=torch.float64)
    if lowest.dim() and len(lowest) != len(means):
        raise BadValue(
            f"floor must be one number or {len(means)}, one per objective, found {len(lowest)}"
        )
    gap = float((means - lowest).mean())
    if not gap >= 0:
        raise BadValue(f"floor must be at most the mean losses, {means.tolist()}, found {floor!r}")
    return gap
