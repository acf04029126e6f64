r"""The paper's non-convex toy (Figures 1, 5, 6, 7): a valley between two starts and a front.

.. math::
    f_{z,1} &= c_1 h_1 + c_2 g_{z,1}, \qquad f_{z,2} = c_1 h_2 + c_2 g_{z,2} \\
    h_1 &= \ln \max(|\tfrac12(-x_1 - 7) - \tanh(-x_2)|,\ 5\cdot10^{-6}) + 6 \\
    h_2 &= \ln \max(|\tfrac12(-x_1 + 3) + \tanh(-x_2) + 2|,\ 5\cdot10^{-6}) + 6 \\
    g_{z,1} &= ((-x_1 + 3.5)^2 + k(-x_2 - 1)^2) / 10 - 20 - 2 z_1 x_1 - 5.5 z_2 x_2 \\
    g_{z,2} &= ((-x_1 - 3.5)^2 + k(-x_2 - 1)^2) / 10 - 20 + 2 z_1 x_1 - 5.5 z_2 x_2 \\
    c_1 &= \max(\tanh(x_2 / 2), 0), \qquad c_2 = \max(\tanh(-x_2 / 2), 0)

with k = 0.5. The paper prints k = 0.1 and :math:`-\tanh(-x_2)` in h2, which put the front at
x2 ≈ −41, out of the paper's own figures; its trajectories come from the formulas above. The printed
ones are ``variant="printed"``.

f is linear in z. So a batch is its mean z, a training set its mean :math:`\bar z`, and the
population z = 0.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import scipy  # its submodules load when first used
import torch
from torch import Tensor

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.data._files.datasets import MissingData, locate
from trimol.tasks._point import Formula
from trimol.tasks._settings import read_settings
from trimol.tasks.task import Batch, Data, Settings

Variant = Literal["corrected", "printed"]
# The three initial points of the paper's figures.
STARTS = ((-8.5, 7.5), (-10.0, -3.0), (9.0, 9.0))
SAMPLES = 20
_FLOOR = 5e-6  # of the argument of the logarithm
_SIDES = np.array([1.0, -1.0])
_BOWLS = 3.5 * _SIDES  # x1 at the bottom of g without noise
_OFFSETS = np.array([-7.0, 7.0])  # of the arguments of h, times two
# k of g, and the sign of tanh(−x2) in h2, by variant.
_CONSTANTS = {"corrected": (0.5, 1.0), "printed": (0.1, -1.0)}


@dataclass(frozen=True)
class ToyAnswer:
    """What is known about the toy for one mean of the data."""

    minimisers: Tensor  # argmin f_1 and argmin f_2, 2 × 2
    of_mean: Tensor  # the minimiser of the mean of both
    pareto: Tensor  # Pareto optimal points from argmin f_1 to argmin f_2, K × 2
    front: Tensor  # F of these, K × 2


class Toy(Formula):
    r"""Two objectives in the plane, with noise below the valley x2 = 0 only.

    Args:
        variant: ``"corrected"``, which makes the paper's figures, or ``"printed"``, as in its text.
        start: Which of the paper's initial points: 0, 1 or 2; or two numbers.
        data: ``"authors"``: the authors' 20 samples, from ``toy/z.csv`` under ``$TRIMOL_DATA`` or
            the user's cache. ``"drawn"``: 20 samples of N(0, I). ``"auto"``: the former if they are
            there; `source` says which.
        seed: Names the samples that are drawn.

    Example:
        >>> toy = Toy(data="drawn")
        >>> toy.answer(torch.zeros(2)).of_mean.round(decimals=3).tolist()
        [0.0, -4.609]
        >>> toy.values(torch.tensor([-8.5, 7.5]), torch.zeros(2))
        tensor([6.5524, 7.9008])
    """

    name: ClassVar[str] = "toy"
    objectives: tuple[str, ...] = ("f1", "f2")
    settings: ClassVar[Mapping[str, Settings]] = read_settings(__file__, "toy")
    batch_size: int = 16  # of its 20 samples

    def __init__(
        self,
        *,
        variant: Variant = "corrected",
        start: int | tuple[float, float] = 0,
        data: Literal["auto", "authors", "drawn"] = "auto",
        seed: int = 0,
    ) -> None:
        if variant not in _CONSTANTS:
            raise BadValue(f"variant must be one of {', '.join(_CONSTANTS)}, found {variant!r}")
        if data not in ("auto", "authors", "drawn"):
            raise BadValue(f"data must be auto, authors or drawn, found {data!r}")
        self.variant = variant
        self.start = _start(start)
        self.seed = whole_number("seed", seed, least=0)
        self._which = data
        self._k, self._sign = _CONSTANTS[variant]
        self._bends = np.array([1.0, -self._sign])  # of tanh(x2) in the arguments of h

    # --- a task ---------------------------------------------------------------------------------

    def optimizer(self, params: Any, lr: float) -> torch.optim.Optimizer:
        """Adam, as in the paper (its step there decays by 0.05 powers of t)."""
        return torch.optim.Adam(params, lr=lr)

    def data(self) -> Data:
        """The samples; the test data is the population, which is its mean z = 0."""
        return Data(train=(self._samples[0],), test=(torch.zeros(1, 2, dtype=torch.float64),))

    @property
    def source(self) -> str:
        """Where the samples come from, in words."""
        return self._samples[1]

    @cached_property
    def _samples(self) -> tuple[Tensor, str]:
        if self._which != "drawn":
            try:
                return _read(), "the authors' 20 samples"
            except MissingData:
                if self._which == "authors":
                    raise
        drawn = np.random.default_rng(self.seed).standard_normal((SAMPLES, 2))
        return torch.from_numpy(drawn), f"{SAMPLES} samples of N(0, I) drawn with seed {self.seed}"

    # --- closed forms ---------------------------------------------------------------------------

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x) at a mean z, of shape (..., 2); leading dimensions are a batch."""
        half = torch.tanh(x[..., 1] / 2)
        upper, lower = half.clamp(min=0), (-half).clamp(min=0)
        logs = torch.log(self._arguments(x).abs().clamp(min=_FLOOR)) + 6
        return upper[..., None] * logs + lower[..., None] * self._bowls(x, z)

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x) at a mean z, (..., 2 objectives, 2 coordinates): the product rule, no autograd.

        On the host, in NumPy: an operator of torch takes longer than these few numbers.
        """
        points, mean = x.numpy(), z.numpy()
        x1, x2 = points[..., :1], points[..., 1:]
        half, whole = np.tanh(x2 / 2), np.tanh(x2)
        # One of c1, c2 is zero, so F is c = |tanh(x2 / 2)| times g below x2 = 0, times h above.
        below = x2 < 0
        towards = x1 - _BOWLS
        pull = 2 * _SIDES * mean[..., :1]
        noise = 5.5 * mean[..., 1:]
        g = (towards**2 + self._k * (x2 + 1) ** 2) / 10 - 20 - pull * x1 - noise * x2
        argument = (_OFFSETS - x1) / 2 + self._bends * whole
        size = np.abs(argument)
        h = np.log(np.maximum(size, _FLOOR)) + 6
        inverse = (size > _FLOOR) / np.where(size > _FLOOR, argument, 1.0)
        in_x1 = np.where(below, towards / 5 - pull, -inverse / 2)
        in_x2 = np.where(
            below, self._k * (x2 + 1) / 5 - noise, inverse * self._bends * (1 - whole**2)
        )
        c, slope = np.abs(half), np.sign(x2) * (1 - half**2) / 2
        return torch.from_numpy(
            np.stack([c * in_x1, c * in_x2 + slope * np.where(below, g, h)], -1)
        )

    def _arguments(self, x: Tensor) -> Tensor:
        """What h1 and h2 take the logarithm of, with its sign."""
        x1, bend = x[..., 0], torch.tanh(x[..., 1])
        return torch.stack([(-x1 - 7) / 2 + bend, (-x1 + 3) / 2 - self._sign * bend + 2], -1)

    def _bowls(self, x: Tensor, z: Tensor) -> Tensor:
        """g_{z,1} and g_{z,2}."""
        x1, x2 = x[..., 0], x[..., 1]
        common = self._k * (x2 + 1).square() / 10 - 20 - 5.5 * z[..., 1] * x2
        pull = 2 * z[..., 0] * x1
        return torch.stack(
            [(x1 - 3.5).square() / 10 + common - pull, (x1 + 3.5).square() / 10 + common + pull], -1
        )

    def answer(self, z: Tensor, points: int = 201) -> ToyAnswer:
        r"""Minimisers and Pareto front for a mean z, to rounding.

        Below x2 = 0 both objectives share the factor c2, so that λᵀF = c2 · λᵀg is least where

        .. math:: x_1 = (2\lambda_1 - 1)(3.5 + 10 z_1), \qquad
                  x_2 = \arg\min_{x_2 < 0} c_2(x_2)\, (\lambda^\top g)(x_1, x_2)

        the latter a root in one variable. (The segment between argmin f1 and argmin f2, which the
        paper's figures show, has the same ends and lies above this curve by less than a line's
        width there.)
        """
        shares = torch.linspace(1, -1, points, dtype=torch.float64)  # 2λ₁ − 1
        pareto = torch.stack([self._least(z.double(), float(share)) for share in shares])
        front = self.values(pareto, z.double())
        of_mean = self._least(z.double(), 0.0)
        return ToyAnswer(pareto[[0, -1]], of_mean, pareto, front)

    def true_front(self, batch: Batch, points: int) -> Tensor:
        """F along the Pareto optimal points, at the samples' mean z."""
        return self.answer(batch[0].mean(0), points).front

    def _least(self, z: Tensor, share: float) -> Tensor:
        """The minimiser below x2 = 0 of the objectives weighted by (1 ± share) / 2."""
        z1, z2 = z.tolist()
        x1 = share * (3.5 + 10 * z1)
        rest = (x1**2 + 3.5**2) / 10 - share * (0.7 + 2 * z1) * x1 - 20

        def bowl(x2: Any) -> Any:
            return self._k * (x2 + 1) ** 2 / 10 - 5.5 * z2 * x2 + rest

        def slope(x2: Any) -> Any:
            """Of the product tanh(−x2/2) · bowl."""
            half = np.tanh(-x2 / 2)
            return half * (self._k * (x2 + 1) / 5 - 5.5 * z2) - (1 - half**2) / 2 * bowl(x2)

        # Beyond the bottom of the parabola the product only rises, tanh being flat there.
        grid = -np.linspace(1e-6, 2 * max(1.0, abs(1 - 27.5 * z2 / self._k)) + 20, 2001)
        best = int(np.clip(np.argmin(np.tanh(-grid / 2) * bowl(grid)), 1, len(grid) - 2))
        x2 = scipy.optimize.brentq(slope, grid[best + 1], grid[best - 1], xtol=1e-14)
        return torch.tensor([x1, x2], dtype=torch.float64)


def _start(start: int | tuple[float, float]) -> tuple[float, float]:
    if isinstance(start, int) and start in range(len(STARTS)):
        return STARTS[start]
    if isinstance(start, int) or len(start) != 2:
        raise BadValue(f"start must be 0, 1, 2 or two numbers, found {start!r}")
    return (float(start[0]), float(start[1]))


def _read() -> Tensor:
    path = locate("toy", "z.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [[float(row["z1"]), float(row["z2"])] for row in csv.DictReader(file)]
    if len(rows) != SAMPLES:
        raise BadValue(f"{path} must have {SAMPLES} samples, found {len(rows)}")
    return torch.tensor(rows, dtype=torch.float64)
