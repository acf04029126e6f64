"""Hypervolume gradient: a population of points that spreads over the front."""

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol._failures import BadValue
from trimol.gradients import Evidence
from trimol.maths import fronts
from trimol.maths._numerics import Array
from trimol.methods.base import Method, Needs, Objectives, Options, State

# How much beyond the worst point of the first step the reference lies, relative.
_MARGIN = 0.1


def hvgrad_weights(losses: Array, reference: Array) -> Array:
    """−∂HV/∂f of each point within its layer, K × M; each point's sum to 1/K.

    A point that is beyond the reference in some objectives has its weight on these, equally.
    """
    slopes = np.zeros_like(losses)
    layers = fronts.ranks(losses)
    for layer in range(layers.max() + 1):
        slopes[layers == layer] = -fronts.hypervolume_gradient(losses[layers == layer], reference)
    beyond = losses >= reference
    slopes = np.where(beyond.any(1, keepdims=True), beyond, slopes)
    totals = slopes.sum(1, keepdims=True)
    shares = np.where(totals > 0, slopes, 1) / np.where(totals > 0, totals, losses.shape[1])
    return np.asarray(shares / len(losses))


class HVGrad(Method):
    r"""Hypervolume maximisation: K models at once, so that together they dominate the most.

    The losses are those of K points (models) of M objectives each, point after point:
    :math:`f_{1,1}, \dots, f_{1,M}, f_{2,1}, \dots, f_{K,M}`. With the reference point r

    .. math::
        \lambda_{k,m} = \frac1K\, \frac{\partial_{k,m}}{\sum_j \partial_{k,j}}, \qquad
        \partial_{k,m} = -\frac{\partial\, \mathrm{HV}(F_1, \dots, F_K; r)}{\partial f_{k,m}}

    each point's weights sum to 1/K, so that a point in a crowd moves as fast as others. A dominated
    point would have no weights: the hypervolume is that of its own layer of the population
    (nondominated, nondominated without those, …). A point beyond r in some objectives has its
    weight on these, equally. The hypervolume and its gradient are exact
    (:mod:`trimol.maths.fronts`), at a cost of O(K^(M-1)) for each loss.

    What that promises: with all points within r, a small step on the full gradient raises the
    hypervolume unless every nondominated point is stationary for its weights. It reaches non-convex
    parts of a front, too. Points that start as equals stay equals: start them apart.

    One backward: plain training, of K models. `trimol.tasks` has a task of K copies of a model.

    Args:
        objectives: K·M, or as many names.
        points: K.
        reference_point: r, M numbers. None: the worst of each objective among the points of the
            first step, and a tenth of its size more; kept from then on.
        weights: λ before the first step; matters only where that step's losses are not finite.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.2, 0.4], requires_grad=True)  # two points, two losses each
        >>> hvgrad = trimol.HVGrad([x], objectives=4, points=2, reference_point=[1.0, 1.0])
        >>> hvgrad(torch.stack([x**2, (x - 1) ** 2], dim=1).flatten()).backward()
        >>> hvgrad.weights.reshape(2, 2)
        tensor([[0.3750, 0.1250],
                [0.1250, 0.3750]], dtype=torch.float64)

    Reference:
        T. M. Deist, M. Grewal, F. J. W. M. Dankers, T. Alderliesten, P. A. N. Bosman,
        *Multi-Objective Learning Using HV Maximization*, EMO 2023.
    """

    needs: ClassVar[Needs] = "losses"
    summary: ClassVar[str] = (
        "Weights of K models at once, along the gradient of the hypervolume that they dominate."
    )
    reference: ClassVar[str] = "deist2023multi"
    shown: ClassVar[tuple[str, ...]] = ("points",)
    spreads: ClassVar[str | None] = "points"
    reference_point: Tensor

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        points: int = 1,
        reference_point: Tensor | Sequence[float] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.points = checks.count("points", points)
        if self.objectives % self.points:
            raise BadValue(
                f"points must divide the number of losses, {self.objectives}, found {points}"
            )
        each = self.objectives // self.points
        unknown = [math.inf] * each  # until the first step
        corner = torch.tensor(unknown, dtype=torch.float64)
        if reference_point is not None:
            corner = checks.vector("reference_point", reference_point, each)
        self.carry(reference_point=corner.to(self.weights.device))

    def weigh(self, evidence: Evidence) -> State:
        """The shares of the hypervolume's gradient, and r."""
        values = evidence.values().to(self.weights)
        losses = values.unflatten(-1, (self.points, -1))
        worst = losses.amax(-2)
        first = self.reference_point.isinf()
        corner = torch.where(first, worst + _MARGIN * worst.abs(), self.reference_point)
        pairs = zip(_runs(losses, 2), _runs(corner, 1), strict=True)
        told = np.stack([hvgrad_weights(own, r) for own, r in pairs]).reshape(values.shape)
        return {"weights": torch.from_numpy(told).to(self.weights), "reference_point": corner}


def _runs(tensor: Tensor, own: int) -> Array:
    """What each run has, of ``own`` dimensions, one run after another."""
    array = tensor.cpu().numpy()
    return array.reshape(-1, *array.shape[array.ndim - own :])
