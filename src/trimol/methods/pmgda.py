"""PMGDA: to the ray of a preference first, then the conflict-avoiding descent of MGDA."""

from collections.abc import Iterable
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from trimol import _checks as checks
from trimol.gradients import Evidence
from trimol.maths._linear import over_simplex
from trimol.maths._numerics import EPS, Array, tolerance_of
from trimol.maths._validation import checked_gramian
from trimol.maths.min_norm import min_norm_one
from trimol.methods._gramian import each
from trimol.methods._preferring import (
    GramianPreferringMethod,
    GramianPreferringOptions,
    off_the_ray,
)
from trimol.methods.base import Needs, Objectives


def pmgda_weights(
    gramian: Tensor, above: Tensor, prefer: Tensor, sigma: float, tol: float
) -> Tensor:
    """MGDA's weights within ``tol`` of the ray; else those of a step that goes towards it."""
    C = checked_gramian(gramian)
    size = C.diagonal().max()
    _, distance, slope = off_the_ray(above.cpu(), prefer.cpu())
    sine = float(distance) / max(float(above.norm()), np.finfo(np.float64).tiny)
    corrected = _corrected(C / size, slope.numpy(), sigma) if sine > tol and size > 0 else None
    if corrected is None:
        return torch.from_numpy(min_norm_one(C, 0.0, tolerance_of(gramian.dtype)))
    return torch.from_numpy(sine * np.sqrt(C.diagonal() / size).mean() * corrected)


def _corrected(C: Array, slope: Array, sigma: float) -> Array | None:
    """The weights of v, the combination of unit gradients that is best for the worst loss.

    None where the distance h has no gradient, so that no step lowers it (at a stationary point of
    it). ∇h = G ``slope``: what is needed of it is in the Gramian.
    """
    size = len(C)
    wide = np.column_stack([np.eye(size), slope])
    full = wide.T @ C @ wide
    if not full[-1, -1] > 16 * size * EPS * (np.abs(slope) @ np.abs(C) @ np.abs(slope)):
        return None
    lengths = np.sqrt(full.diagonal())
    units = np.divide(1.0, lengths, out=np.zeros(size + 1), where=lengths > 0)
    along = full * units  # ⟨g_i, u_j⟩, the last row that of ∇h
    # For (μ, t): raise t, with ⟨g_i, v⟩ ≥ t for all i and ⟨∇h, v⟩ ≥ σ‖∇h‖.
    worst = np.append(-np.ones(size), 0.0)
    rows, least = np.column_stack([along, worst]), np.append(np.zeros(size), sigma * lengths[-1])
    mixed = over_simplex(np.append(np.zeros(size + 1), 1.0), rows, least, free=1)
    if mixed is None:  # by rounding: μ all on ∇h satisfies it
        mixed = np.append(np.zeros(size), 1.0)
    return np.asarray(wide @ (mixed * units))


class PMGDA(GramianPreferringMethod):
    r"""Preference-based MGDA: correct the way to the ray where it is off it, else descend.

    With :math:`y = f(x) - z` and the unit vector :math:`u \propto 1/p` of the ray
    (:math:`p` = ``prefer``, :math:`z` = ``ideal``), the constraint is the distance from it,
    :math:`h = \|y - (u^\top y) u\|`. Where :math:`h \le \tau \|y\|` the step is that of `MGDA`.
    Elsewhere it is a combination of the unit vectors along the gradients and along ∇h,

    .. math::
        v = \arg\max_v \min_m\, \nabla f_m^\top v \quad \text{s.t.} \quad
        \nabla h^\top v \ge \sigma \|\nabla h\|, \qquad
        v = \sum_m \mu_m \frac{\nabla f_m}{\|\nabla f_m\|} + \mu_h \frac{\nabla h}{\|\nabla h\|},
        \quad \mu \in \Delta^{M+1}

    with :math:`\sigma` = ``sigma`` and :math:`\tau` = ``tol``: the best step for the worst-off loss
    among those that go to the ray at a given rate. It is a linear program, solved by trying all
    vertices for M ≤ 4, and by HiGHS beyond (:mod:`trimol.maths._linear`). As h is a function of the
    losses, v is a weighted sum of their gradients; a weight may be negative, where a loss is too
    low for the ray.

    The paper leaves v at a length of at most one. Here it is times the mean length of the gradients
    and h/‖y‖, so that it has the size of MGDA's step and gets shorter towards the ray.

    What that promises, for small steps on the full gradient: x ends at a Pareto stationary point
    within ``tol`` of the ray where the ray crosses the front, on non-convex fronts too; where it
    does not, where no step gets nearer to the ray. One backward per objective.

    Args:
        sigma: σ, from 0 to 1: how much of the fastest way to the ray a correction takes.
        tol: τ: how far from the ray f − z may end, relative to its length (the sine of the angle
            between them).

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.5], requires_grad=True)
        >>> pmgda = trimol.PMGDA([x], objectives=2, prefer=[0.2, 0.8])
        >>> optimizer = torch.optim.SGD([x], lr=0.05)
        >>> for _ in range(200):
        ...     optimizer.zero_grad()
        ...     pmgda(torch.cat([x**2, (x - 3) ** 2])).backward()
        ...     optimizer.step()
        >>> abs(x.item() - 2) < 0.05  # 0.2 · 2² = 0.8 · 1²
        True

    Reference:
        X. Zhang, X. Lin, Q. Zhang, *PMGDA: A Preference-based Multiple Gradient Descent Algorithm*,
        2024.
    """

    needs: ClassVar[Needs] = "gramian"
    summary: ClassVar[str] = (
        "MGDA on the ray of a preference, and off it the best step that goes back at a given rate."
    )
    reference: ClassVar[str] = "zhang2024pmgda"
    shown: ClassVar[tuple[str, ...]] = ("sigma", "tol")
    prefers: ClassVar[str | None] = "prefer"

    def __init__(
        self,
        params: Iterable[Tensor],
        objectives: Objectives,
        *,
        sigma: float = 0.8,
        tol: float = 0.01,
        **options: Unpack[GramianPreferringOptions],
    ) -> None:
        super().__init__(params, objectives, **options)
        self.sigma = checks.fraction("sigma", sigma)
        self.tol = checks.positive("tol", tol)

    def weigh(self, evidence: Evidence) -> Tensor:
        """The weights of the correction, or of MGDA."""
        above = self.above_ideal(evidence)
        gramian = evidence.gramian(chunk=self.chunk).to(self.weights)
        prefer = self.prefer.to(self.weights).expand_as(above)
        told = each(pmgda_weights, [gramian, above, prefer], self.sigma, self.tol)
        return told.to(self.weights)
