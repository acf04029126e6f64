r"""The paper's example whose stability is bounded from below (Example lower_bound_quadratic_SC).

.. math:: f_{z,m}(x) = \tfrac12 x^\top A x - b_m z^\top x, \qquad b = (1, 1 + \sqrt 2)

A has the least eigenvalue :math:`\mu = 16 n^{-1/3}` with eigenvector v, and the samples are
:math:`z_i = c_i v` with mean :math:`\mu v`. In the neighbouring data set one :math:`c_j` is less by
one, so that its mean is :math:`(\mu - 1/n) v`. Everything happens along v, and MoDo's two runs on
the two data sets stay apart by at least :math:`\gamma T/(2n^2) + 1/(16n)`.
"""

import math
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.tasks.quadratic import Quadratic
from trimol.tasks.task import Data

OBJECTIVES = 2


class StabilityLowerBound(Quadratic):
    r"""Two neighbouring data sets on which MoDo's runs provably part (Theorem "lower bound").

    The theorem's settings: :math:`\lambda_0 = (\tfrac12, \tfrac12)`, :math:`x_0 = 7v`,
    :math:`\alpha = 1/(4\mu T)` (`step_size`), :math:`0 < \gamma \le 1/(2MT\ell_F\ell_f)`
    (`gamma_limit`), ρ = 0, three draws, :math:`T \le 4n^{2/3}` (`longest`).

    Args:
        samples: n.
        angle: Turns the eigenvectors of A, in radians: the example is not about the axes.
        spread: The c_i are μ ± spread in turn, so that sampling is random; n must be even then.

    Example:
        >>> example = StabilityLowerBound(samples=100)
        >>> example.longest, round(example.mu, 3)
        (86, 3.447)
        >>> (example.data().train[0] - example.neighbour()).norm(dim=1).tolist()[:3]
        [1.0, 0.0, 0.0]
    """

    name: ClassVar[str] = "stability-lower-bound"

    def __init__(self, *, samples: int = 64, angle: float = 0.5, spread: float = 0.0) -> None:
        whole_number("samples", samples, least=1)
        if spread and samples % 2:
            raise BadValue(f"samples must be even for a spread of {spread}, found {samples}")
        self.direction = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        least = 16 * samples ** (-1 / 3)
        across = torch.stack([-self.direction[1], self.direction[0]])
        matrix = least * torch.outer(self.direction, self.direction)
        matrix = matrix + 2 * least * torch.outer(across, across)
        super().__init__(
            dimension=2,
            samples=samples,
            b1=(1.0,) * OBJECTIVES,
            b2=(1.0, 1 + math.sqrt(2)),
            eigenvalues=matrix,
        )
        self.spread = float(spread)
        self.start = 7 * self.direction

    @cached_property
    def _data(self) -> Data:
        """S; the test data is its mean μv."""
        return Data(train=(self._samples(),), test=(self.population[None],))

    def neighbour(self) -> Tensor:
        """S': the first sample is less by v."""
        other = self._samples()
        other[0] -= self.direction
        return other

    def _samples(self) -> Tensor:
        sign = 1 - 2 * (torch.arange(self.samples) % 2).double()
        return (self.mu + self.spread * sign)[:, None] * self.direction

    @property
    def population(self) -> Tensor:
        """The mean of S, μv: the example has no other population."""
        return self.mu * self.direction

    @property
    def longest(self) -> int:
        """The most steps T for which the theorem holds."""
        return math.floor(4 * math.pow(self.samples, 2 / 3))

    def step_size(self, steps: int) -> float:
        """α of the theorem."""
        return 1 / (4 * self.mu * self._allowed(steps))

    def gamma_limit(self, steps: int) -> float:
        """The largest γ of the theorem, with ℓ_f on the ball that holds both runs."""
        both = torch.cat([self._samples(), self.neighbour()])
        bound = self.lipschitz(both)
        return 1 / (2 * OBJECTIVES * self._allowed(steps) * math.sqrt(OBJECTIVES) * bound**2)

    def _allowed(self, steps: int) -> int:
        if not 1 <= steps <= self.longest:
            raise BadValue(f"steps must be from 1 to 4 n^(2/3) = {self.longest}, found {steps}")
        return steps
