r"""The paper's strongly convex toy (Figure 3): quadratics that share their curvature.

.. math:: f_{z,m}(x) = \tfrac12 b_{1,m}\, x^\top A x - b_{2,m}\, z^\top x, \qquad b_{1,m} > 0

f is linear in z, so a batch is its mean z, a training set its mean :math:`\bar z`, and the
population E[z]. At a mean z everything has a closed form:
:math:`\nabla f_m = b_{1,m} A x - b_{2,m} z`, and the Pareto stationary points are the segment
:math:`x = r A^{-1} z` with :math:`\min_m b_{2,m}/b_{1,m} \le r \le \max_m b_{2,m}/b_{1,m}`.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from trimol import simplex
from trimol._checks import nonnegative, whole_number
from trimol._failures import BadValue
from trimol.tasks._point import Formula
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings

Law = Literal["normal", "uniform"]


class Quadratic(Formula):
    r"""M quadratics in d dimensions, pulled apart by b2.

    The paper gives M = 3, b1 = (1, 2, 1), b2 = (1, 3, 2); the rest of the defaults is ours. E[z]
    must not be zero, or the population has no conflict: all its minimisers would be 0.

    Args:
        dimension: d.
        samples: n, the size of the training set.
        b1: The curvatures' factors, positive, one per objective.
        b2: The pulls' factors, one per objective.
        eigenvalues: Those of A, which is diagonal then; the identity by default. Or, for any A,
            a d × d symmetric positive definite matrix.
        mean: E[z], in every coordinate.
        std: The standard deviation of z in every coordinate.
        law: ``"normal"``, or ``"uniform"``: bounded, as theorems with a sup over z want it.
        start: x_0, in every coordinate.
        seed: Names the training set.

    Example:
        >>> task = Quadratic(dimension=2, samples=20)
        >>> task.population
        tensor([1., 1.], dtype=torch.float64)
        >>> task.mu, task.smoothness
        (1.0, 2.0)
        >>> task.pareto(task.population, points=3).tolist()
        [[1.0, 1.0], [1.5, 1.5], [2.0, 2.0]]
    """

    name: ClassVar[str] = "quadratic"
    objectives: tuple[str, ...] = ("f1", "f2", "f3")
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "quadratic")

    def __init__(
        self,
        *,
        dimension: int = 2,
        samples: int = 20,
        b1: Sequence[float] = (1.0, 2.0, 1.0),
        b2: Sequence[float] = (1.0, 3.0, 2.0),
        eigenvalues: Sequence[float] | Sequence[Sequence[float]] | Tensor | None = None,
        mean: float = 1.0,
        std: float = 1.0,
        law: Law = "normal",
        start: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.dimension = whole_number("dimension", dimension, least=1)
        self.samples = whole_number("samples", samples, least=1)
        self.b1 = _row("b1", b1)
        self.b2 = _row("b2", b2, length=len(self.b1))
        if not (self.b1 > 0).all():
            raise BadValue(f"b1 must be positive, found {self.b1.tolist()}")
        if law not in ("normal", "uniform"):
            raise BadValue(f"law must be normal or uniform, found {law!r}")
        self.matrix = _matrix(eigenvalues, self.dimension)
        self.mean, self.law = float(mean), law
        self.std = nonnegative("std", std)
        self.seed = whole_number("seed", seed, least=0)
        self.start: Tensor = torch.full((self.dimension,), float(start), dtype=torch.float64)
        # The class names three; how many there are is each instance's.
        self.objectives = tuple(f"f{m + 1}" for m in range(len(self.b1)))

    # --- a task ---------------------------------------------------------------------------------

    def data(self) -> Data:
        """A training set; the test data is the population, which is its mean."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        return Data(train=(self.draw([self.seed])[0],), test=(self.population[None],))

    def draw(self, seeds: Sequence[int]) -> Tensor:
        """Training sets, one for each seed: (len(seeds), n, d). Set i depends on seed i only."""
        shape = (self.samples, self.dimension)
        noise = np.stack([self._noise(np.random.default_rng(seed), shape) for seed in seeds])
        return self.mean + self.std * torch.from_numpy(noise)

    def _noise(self, random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Noise of mean 0 and variance 1."""
        if self.law == "normal":
            return random.standard_normal(shape)
        return random.uniform(-math.sqrt(3), math.sqrt(3), shape)

    # --- closed forms ---------------------------------------------------------------------------

    @property
    def population(self) -> Tensor:
        """E[z]."""
        return torch.full((self.dimension,), self.mean, dtype=torch.float64)

    @property
    def mu(self) -> float:
        """μ: every f_{z,m} is so strongly convex."""
        return float(self.b1.min() * torch.linalg.eigvalsh(self.matrix)[0])

    @property
    def smoothness(self) -> float:
        """ℓ_{f,1}: every ∇f_{z,m} is so Lipschitz."""
        return float(self.b1.max() * torch.linalg.eigvalsh(self.matrix)[-1])

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x) at a mean z, of shape (..., M); leading dimensions are a batch."""
        curved = ((x @ self.matrix) * x).sum(-1, keepdim=True) / 2
        return self.b1 * curved - self.b2 * (z * x).sum(-1, keepdim=True)

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x) at a mean z, of shape (..., M, d)."""
        steep = (x @ self.matrix)[..., None, :]
        return self.b1[:, None] * steep - self.b2[:, None] * z[..., None, :]

    def avoiding(self, x: Tensor, z: Tensor, rho: float = 0.0) -> Tensor:
        """λ*_ρ(x), the conflict-avoiding weights at a mean z, of shape (..., M)."""
        gradients = self.jacobian(x, z)
        return simplex.min_norm(gradients @ gradients.mT, rho)

    def minimiser(self, weights: Tensor, z: Tensor) -> Tensor:
        """The minimiser of λᵀF at a mean z: (b2ᵀλ / b1ᵀλ) A⁻¹z."""
        ratio = (weights @ self.b2) / (weights @ self.b1)
        shape: Tensor = torch.linalg.solve(self.matrix, z)
        return ratio[..., None] * shape

    def pareto(self, z: Tensor, points: int = 101) -> Tensor:
        """Pareto optimal points at a mean z, points × d; `values` maps them to the front."""
        ratios = self.b2 / self.b1
        steps = torch.linspace(0, 1, points, dtype=torch.float64)
        along = ratios.min() + steps * (ratios.max() - ratios.min())
        shape: Tensor = torch.linalg.solve(self.matrix, z)
        return along[:, None] * shape

    def true_front(self, batch: Batch, points: int) -> Tensor:
        """F along the segment of the Pareto optimal points, at the samples' mean z."""
        mean = batch[0].mean(0)
        return self.values(self.pareto(mean, points), mean)

    def radius(self, z: Tensor, start: Tensor | None = None) -> float:
        r"""c_x: no iterate gets further from 0, for step sizes α ≤ 1/ℓ_{f,1} on these samples.

        A step is :math:`x_{t+1} = (I - \alpha\beta_1 A)x_t + \alpha\beta_2 z` with
        :math:`\beta_i = b_i^\top\lambda`, so that
        :math:`\|x_{t+1}\| \le (1 - \alpha\beta_1 a)\|x_t\| + \alpha|\beta_2|\|z\|` with a the least
        eigenvalue of A: never beyond the larger of :math:`\|x_0\|` and
        :math:`\max_\lambda |\beta_2|/\beta_1 \cdot \max\|z\| / a`. The ratio is largest at a vertex
        of the simplex. (Lemma "x_t bounded" of the paper, with its constant.)

        The samples z are of shape (..., d); x_0 is the task's own by default.
        """
        least = float(torch.linalg.eigvalsh(self.matrix)[0])
        pull = float((self.b2.abs() / self.b1).max() * z.norm(dim=-1).max()) / least
        return max(pull, float((self.start if start is None else start).norm()))

    def lipschitz(self, z: Tensor, start: Tensor | None = None) -> float:
        r"""ℓ_f on the ball of `radius`: :math:`\max_m b_{1,m}\|A\|c_x + |b_{2,m}|\max\|z\|`."""
        largest = float(torch.linalg.eigvalsh(self.matrix)[-1])
        reach = self.b1 * largest * self.radius(z, start)
        return float((reach + self.b2.abs() * z.norm(dim=-1).max()).max())


def _row(name: str, given: object, *, length: int | None = None) -> Tensor:
    row = torch.as_tensor(given, dtype=torch.float64)
    if row.dim() != 1 or not len(row) or not row.isfinite().all():
        raise BadValue(f"{name} must be finite numbers in one dimension, found {given!r}")
    if length not in (None, len(row)):
        raise BadValue(f"{name} must have {length} entries, found {len(row)}")
    return row


def _matrix(given: object, dimension: int) -> Tensor:
    if given is None:
        return torch.eye(dimension, dtype=torch.float64)
    matrix = torch.as_tensor(given, dtype=torch.float64)
    if matrix.dim() == 1:
        matrix = torch.diag(matrix)
    if matrix.shape != (dimension, dimension):
        raise BadValue(
            f"eigenvalues must be {dimension} numbers or a {dimension} × {dimension} matrix, found "
            f"shape {tuple(matrix.shape)}"
        )
    if not torch.allclose(matrix, matrix.T) or not torch.linalg.eigvalsh(matrix)[0] > 0:
        raise BadValue("eigenvalues must be those of a symmetric positive definite matrix")
    return matrix
