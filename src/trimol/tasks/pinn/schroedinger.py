"""The nonlinear Schrödinger equation: a bound state of two solitons, on a ring."""

import math
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimol._failures import BadValue
from trimol.tasks.pinn._field import Field
from trimol.tasks.pinn.equation import Equation, Points, stacked

HALF, LAST = 5.0, math.pi / 2
_MODES, _SLICES, _STEPS = 1024, 201, 8
_Complex = NDArray[np.complex128]


class Schroedinger(Equation):
    r"""The nonlinear Schrödinger equation: three losses of one network (Re h, Im h)(x, t).

    .. math:: i h_t + \tfrac12 h_{xx} + |h|^2 h = 0 \ \text{ for } |x| < 5,\ 0 < t < \pi/2, \qquad
              h(x, 0) = \frac{2}{\cosh x}

    with h and h_x the same at both ends. The reference is computed here, by 1024 Fourier modes in x
    and splitting of the fourth order in t. It is known at 201 times, and so the points inside have
    one of these. (Between them it cannot be interpolated: the slope of 2/cosh x jumps by 0.05 where
    the ends meet, and the fast waves that leave this kink are of size 1e-3.)

    Example:
        >>> task = Schroedinger(points=10, conditions=5, held_out=10)
        >>> task.solution(np.array([[0.0, 0.0]])).round(4).tolist()
        [[2.0, 0.0]]

    Reference:
        M. Raissi, P. Perdikaris, G. E. Karniadakis, *Physics-Informed Neural Networks*, Journal of
        Computational Physics 2019, section 3.1.1.
    """

    name: ClassVar[str] = "schroedinger"
    objectives: tuple[str, ...] = ("equation", "initial", "boundary")
    low: ClassVar[tuple[float, float]] = (-HALF, 0.0)
    high: ClassVar[tuple[float, float]] = (HALF, LAST)
    outputs: ClassVar[int] = 2
    twice: ClassVar[tuple[int, ...]] = (0,)

    def solution(self, points: Points) -> Points:
        """The Fourier series in x, at one of the times that it is known at."""
        found = np.concatenate([_at(part) for part in np.array_split(points, 8)])
        return stacked(found.real, found.imag)

    def drawn(self, random: np.random.Generator, size: int) -> Sequence[Points]:
        """Inside, at t = 0, and at the left end, which the right end is compared with."""
        inside, start, ends = (self.inside(random, size) for _ in range(3))
        inside[:, 1] = random.integers(0, _SLICES, size) * LAST / (_SLICES - 1)
        start[:, 1], ends[:, 0] = 0.0, -HALF
        return inside, start, ends

    def left_over(self, model: Field, points: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of the equation's two parts, of the initial values, of the ends' values and slopes."""
        inside, start, left = points
        h, _, h_t, h_xx = model.derivatives(inside)
        turned = torch.stack([-h_t[:, 1], h_t[:, 0]], -1)  # i h_t
        equation = turned + h_xx / 2 + h.square().sum(-1, keepdim=True) * h
        wanted = torch.stack([2 / torch.cosh(start[:, 0]), torch.zeros_like(start[:, 0])], -1)
        ends = model.derivatives(left)[:2] - model.derivatives(left * left.new_tensor([-1, 1]))[:2]
        return equation, model(start) - wanted, torch.cat(list(ends), -1)


def _at(points: Points) -> _Complex:
    """h at points, whose times must be among those of the reference."""
    place = points[:, 1] * (_SLICES - 1) / LAST
    number = place.round().astype(int)
    if np.abs(place - number).max(initial=0) > 1e-6:
        raise BadValue(
            f"t must be a multiple of {LAST / (_SLICES - 1):g}, found {points[:, 1].tolist()}"
        )
    waves = np.exp(1j * points[:, :1] * _numbers())
    return np.asarray((_reference()[number] * waves).sum(1))


def _numbers() -> NDArray[np.float64]:
    return np.asarray(np.fft.fftfreq(_MODES, 1 / _MODES) * math.pi / HALF)


@cache
def _reference(steps: int = _STEPS) -> _Complex:
    """The Fourier coefficients of h at every time, with so many steps between two of them."""
    x = np.arange(_MODES) * 2 * HALF / _MODES
    h = (2 / np.cosh((x + HALF) % (2 * HALF) - HALF)).astype(np.complex128)
    found = [np.fft.fft(h)]
    for _ in range(_SLICES - 1):
        for _ in range(steps):
            h = _step(h, LAST / (_SLICES - 1) / steps)
        found.append(np.fft.fft(h))
    return np.stack(found) / _MODES


def _step(h: _Complex, length: float) -> _Complex:
    """Yoshida's splitting of the fourth order: three Strang steps, the middle one backwards."""
    outer = 1 / (2 - 2 ** (1 / 3))
    for share in (outer, 1 - 2 * outer, outer):
        turn = np.exp(-0.25j * _numbers() ** 2 * share * length)
        h = np.fft.ifft(turn * np.fft.fft(h))
        h = h * np.exp(1j * np.abs(h) ** 2 * share * length)
        h = np.fft.ifft(turn * np.fft.fft(h))
    return np.asarray(h)
