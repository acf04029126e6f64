"""CAGrad: the best step for the worst-off objective, near the mean gradient."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when first used, which keeps the import short
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.gradients._stepping import Momentum
from trimol.maths import cone
from trimol.maths._by_products import Judged
from trimol.maths._numerics import EPS, above_noise, noise_of, without_conflict
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import RoundedMethod, each
from trimol.methods._products import ProductsMethod, ProductsOptions
from trimol.methods.base import Objectives, Range

_ROUNDING = 1e-14  # relative to the error of evaluating the optimality conditions
_Array = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


def cagrad_weights(
    gramian: Tensor, c: float, rounding: float = 0.0, momentum: Momentum | None = None
) -> Tensor:
    """The weights 1/M + v of CAGrad's direction, in float64, from the Gramian.

    d maximises μ = min gᵢᵀd within distance r = c‖g₀‖ of g₀. For a given μ the nearest d with
    Jd ≥ μ is ``cone.push``'s, and its distance D(μ) is convex with slope 1ᵀv / D: Newton from the
    right, started at the dual's value for the min-norm point (an upper bound of μ), leads to
    D(μ) = r, solved in closed form as soon as the support of v is the right one.
    At a Pareto stationary point μ = 0, and d is the nearest d without conflict, of gradients that
    are rounded to ``rounding`` (`above_noise`; for c ≥ 1, which promises it, `without_conflict`).
    With ``momentum``, all of this is said of the optimizer's steps: g₀ is its step with the mean.
    """
    checked, noise = checked_gramian(gramian), noise_of(gramian, rounding)
    if momentum is not None:
        G = above_noise(checked, rounding)
        return torch.from_numpy(_solved(G, c, noise, gramian.dtype, _moving(G, momentum)))
    solve = functools.partial(_solved, c=c, noise=noise, dtype=gramian.dtype)
    if c < 1:
        return torch.from_numpy(solve(above_noise(checked, rounding)))
    return torch.from_numpy(without_conflict(solve, checked, rounding))


class _Centre(NamedTuple):
    """Where the search is centred: the mean gradient g₀, or the optimizer's step with it."""

    mean: _Array  # J g₀
    squared: float  # ‖g₀‖²


def _moving(G: _Array, momentum: Momentum) -> _Centre:
    """That of k + S g₀, in the metric: J of it is h + G.mean, h = Jk."""
    pull = momentum.pull.cpu().numpy()
    squared = float(G.mean() + 2 * pull.mean() + momentum.size)
    return _Centre(G.mean(1) + pull, max(squared, 0.0))


def _solved(
    G: _Array, c: float, noise: float, dtype: torch.dtype, centre: _Centre | None = None
) -> _Array:
    """1/M + v; ``noise`` is relative to squared norms (`noise_of`)."""
    size = len(G)
    # J g₀, so that its mean is ‖g₀‖². No radius: the mean gradient it is.
    uniform = np.full(size, 1 / size)
    mean, squared = centre or _Centre(G.mean(1), G.mean(1).mean())
    if c == 0 or not squared > 2 * noise * np.abs(G).mean():
        return uniform
    radius = c * math.sqrt(squared)
    # The dual at the min-norm point w: μ ≤ g_wᵀg₀ + r‖g_w‖.
    v, norm = cone.shortest(G, dtype, noise)
    level = float(mean @ v + radius * norm) if norm else 0.0
    for _ in range(100):
        if (exact := _on_support(G, mean, radius, v > 0)) is not None:
            return uniform + exact
        # D(μ), the distance of the nearest d with Jd ≥ μ.
        v = cone.push(G, level - mean)
        distance = math.sqrt(max(float(v @ G @ v), 0.0))
        if not distance > radius * (1 + 1e-13):
            break
        # Newton: μ ← μ − (D − r) / D′ with D′ = 1ᵀv / D, written with v scaled to the radius.
        v *= radius / distance
        level -= (distance - radius) * radius / v.sum()
    return uniform + v


def _on_support(G: _Array, mean: _Array, radius: float, support: _Mask) -> _Array | None:
    """The v with (Gv + mean)ᵢ = μ on the support and vᵀGv = r², if it is the solution."""
    inside = support.nonzero()[0]
    if not len(inside) or not G.diagonal()[inside].all():
        return None
    # G⁻¹1 and G⁻¹mean on the support, by Cholesky of the cosines: scales differ by much.
    scale = 1 / np.sqrt(G.diagonal()[inside])
    sides = np.stack([np.ones_like(scale), mean[inside]], 1)
    C = G[inside[:, None], inside] * scale * scale[:, None]
    _, solved, singular = scipy.linalg.lapack.dposv(C, sides * scale[:, None])[:3]
    if singular:
        return None
    one, pull = (solved * scale[:, None]).T
    # vᵀGv = a μ² − 2 b μ + c for v = μ G⁻¹1 − G⁻¹mean: of the two μ with r² the larger.
    a, b, c = one.sum(), one @ sides[:, 1], pull @ sides[:, 1]
    level = (b + math.sqrt(max(b * b - a * (c - radius**2), 0.0))) / a
    v = np.zeros_like(mean)
    v[inside] = level * one - pull
    # It is the solution if v ≥ 0 and Jd ≥ μ, with equality on the support, all to rounding.
    reached, magnitude = G @ v + mean, np.abs(G) @ np.abs(v) + np.abs(mean) + abs(level)
    optimal = v.min() >= 0 and ((reached - level) >= -_ROUNDING * magnitude).all()
    exact = (np.abs(reached - level)[inside] <= _ROUNDING * magnitude[inside]).all()
    return v if optimal and exact and abs(v @ G @ v / radius**2 - 1) < 1e-12 else None


class _WorstOff:
    """CAGrad's dual: min over the simplex of F(w) = g_wᵀg₀ + r‖g_w‖, r = c‖g₀‖.

    Any d in the ball has min gᵢᵀd ≤ F(w), and that of w, g₀ + r g_w/‖g_w‖, has gᵢᵀd = ∂F/∂wᵢ: so
    F(w) − min ∂F/∂wᵢ bounds what d loses.

    Args:
        c: c.
        mean: G times uniform weights.
    """

    def __init__(self, c: float, mean: _Array) -> None:
        self.c, self.mean, self.squared = c, mean, max(float(mean.mean()), 0.0)

    def solve(self, gramian: _Array) -> _Array:
        """w."""
        v = _solved(gramian, self.c, len(gramian) * EPS, torch.float64) - 1 / len(gramian)
        return v / v.sum() if v.sum() > 0 else np.full(len(v), 1 / len(v))

    def judge(self, point: _Array, product: _Array) -> Judged:
        """What d loses, relative to F(w) where c promises no conflict, else to ‖g₀‖²."""
        radius, norm = self.c * math.sqrt(self.squared), math.sqrt(max(float(point @ product), 0.0))
        scale = radius / norm if norm > 0 else 0.0
        slope = self.mean + scale * product
        value = float(point @ slope)
        size = value if self.c >= 1 else self.squared
        return Judged(1 / len(point) + scale * point, size, value - float(slope.min()))


class CAGrad(ProductsMethod, RoundedMethod):
    r"""Conflict-averse gradient descent: improves the worst-off objective, close to the mean.

    .. math::
        d^* = \arg\max_{d}\ \min_i\ g_i^\top d \quad \text{s.t.}\quad \|d - g_0\| \le c\, \|g_0\|,
        \qquad g_0 = \tfrac1M \sum_i g_i, \qquad x_{t+1} = x_t - \alpha\, d^*

    with c = ``c``. The solution is :math:`d^* = g_0 + c\|g_0\|\, g_w / \|g_w\|`, with w on the
    simplex minimising :math:`g_w^\top g_0 + c\|g_0\| \|g_w\|`: weights that sum to more than one.
    c = 0 is the mean of the losses; c ≥ 1 never conflicts. It is solved exactly. One backward per
    objective.

    With ``solver="products"`` it is solved to a gap that is known, as in :class:`MGDA`: with F(w)
    what w minimises, and μ its least value, the best that can be done for the worst-off objective,

    .. math::
        \min_i\, g_i^\top d \ge F(w) - \text{gap}\, s \ge \mu - \text{gap}\, s,

    where s is :math:`\|g_0\|^2`, or F(w) for c ≥ 1, so that a gap below 1 conflicts with nothing.

    Args:
        c: The radius of the search, relative to ‖g₀‖.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> cagrad = trimol.CAGrad([x], objectives=2, c=0.5)
        >>> cagrad(torch.stack([x[0], -x[1]])).backward()
        >>> cagrad.weights
        tensor([0.7500, 0.7500], dtype=torch.float64)

    Reference:
        B. Liu, X. Liu, X. Jin, P. Stone, Q. Liu, *Conflict-Averse Gradient Descent for Multi-task
        Learning*, NeurIPS 2021, Algorithm 1 (without the division by 1 + c² of its code).
    """

    summary: ClassVar[str] = (
        "The best step for the worst-off objective within a ball around the mean gradient."
    )
    reference: ClassVar[str] = "liu2021conflict"
    shown: ClassVar[tuple[str, ...]] = ("c", "solver")
    search: ClassVar[Mapping[str, Range]] = {"c": (0.1, 1.0)}
    fewest: ClassVar[int] = 2  # that of the mean gradient is the first
    backwards_left: ClassVar[int] = 1

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        c: float = 0.4,
        **options: Unpack[ProductsOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.c = checks.nonnegative("c", c)
        if c == 0:
            self.refuse("c=0, which needs no gradients")

    def sought(self, product: Callable[[_Array], _Array]) -> _WorstOff:
        """The worst-off objective's best, around the mean gradient."""
        return _WorstOff(self.c, product(np.full(self.objectives, 1 / self.objectives)))

    def exact(self, evidence: Evidence) -> Tensor:
        """1/M + v from all gradients."""
        weights = self.weights_of(evidence)
        added = weights - 1 / self.objectives
        if "gramian" in evidence.findings and evidence.momentum is None and added.sum() > 0:
            self.note_gap(evidence, evidence.findings["gramian"], added / added.sum())
        return weights

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """1/M + v."""
        return each(cagrad_weights, [gramian], self.c, rounding)

    def solve_moving(self, gramian: Tensor, momentum: Momentum, rounding: float) -> Tensor:
        """The same of the optimizer's steps."""
        return cagrad_weights(gramian, self.c, rounding, momentum)
