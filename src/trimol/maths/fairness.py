r"""α-fair weights: the rate at which each objective improves is :math:`w^{-1/\alpha}`.

The direction :math:`d = J^\top w` improves objective i at the rate :math:`(Gw)_i`; the one that
maximises the α-fair utility :math:`\sum_i (g_i^\top d)^{1-\alpha} / (1-\alpha)` in a ball has
weights with :math:`(Gw)_i = w_i^{-1/\alpha}`. That is where the gradient of

.. math:: \tfrac12 w^\top G w - \sum_i \phi(w_i), \qquad \phi'(w) = w^{-p},\quad p = 1/\alpha

vanishes: strictly convex on w > 0, with a minimiser unless zero is in the gradients' convex hull.
A primal-dual Newton method on w and the rates s = Gw finds it to rounding in a handful of steps.
"""

import numpy as np
import scipy  # its submodules load when first used, which keeps the import short
import torch
from torch import Tensor

from trimol.maths import cone
from trimol.maths._numerics import Array, noise_of
from trimol.maths._validation import checked_gramian


def fair_weights(gramian: Tensor, alpha: float, rounding: float = 0.0) -> Tensor:
    """The w > 0 with G w = w^(-1/α), in float64, of gradients rounded to ``rounding``.

    At a Pareto stationary point (zero in the gradients' convex hull, to rounding) there is none:
    the min-norm weights, whose direction is zero, take its place. So they do where a Gramian of
    low precision is so far from positive semi-definite that Newton's method does not converge.
    """
    G = checked_gramian(gramian)
    weights, norm = cone.shortest(G, gramian.dtype, noise_of(gramian, rounding))
    if norm:
        fair = alpha_fair(G, alpha)
        error = np.abs(G @ fair - fair ** (-1 / alpha)) / (np.abs(G) @ fair)
        weights = fair if error.max() < 1e-8 else weights
    return torch.from_numpy(weights)


def alpha_fair(gramian: Array, alpha: float) -> Array:
    """The w > 0 with G w = w^(-1/α), for a G whose min-norm point is not zero (unchecked).

    In terms of the cosines C and y = ‖g‖w the equations are s = Cy and log s + p log y = log k,
    k = ‖g‖^(p-1), so that for α = 1 the gradients' scales drop out altogether. Elsewhere, scales
    that are orders of magnitude apart are approached in stages.
    """
    p = 1 / alpha
    norms = np.sqrt(gramian.diagonal())
    C = gramian / norms / norms[:, None]
    target = (p - 1) * np.log(norms)
    target, centre = target - target.mean(), target.mean()
    stages = 1 + int(np.ptp(target) / (4 * (1 + p)))
    apart = np.exp(target / (stages * (1 + p)))
    y, s = np.ones_like(norms), np.ones_like(norms)
    for stage in range(1, stages + 1):  # each starts where orthogonal gradients would end
        y, s = _newton(C, y * apart, s * apart, target * (stage / stages), p)
    return np.asarray(y * np.exp(centre / (1 + p)) / norms)


def _newton(C: Array, y: Array, s: Array, target: Array, p: float) -> tuple[Array, Array]:
    """Newton on s = Cy, log s + p log y = target, inside y, s > 0, until only rounding is left."""
    best, least = (y, s), np.inf
    for _ in range(1000):  # ten or so; hundreds for scales and α both at their extremes
        off, uneven = C @ y - s, np.log(s) + p * np.log(y) - target
        error = float(max(np.abs(uneven).max(), (np.abs(off) / (np.abs(C) @ y)).max()))
        if error < least:
            best, least = (y, s), error
        elif least < 1e-9:
            break
        # Eliminate ds: (C + diag(p s / y)) dy = -s·uneven - off, positive definite.
        _, step, failed = scipy.linalg.lapack.dposv(C + np.diag(p * s / y), -s * uneven - off)
        if failed:
            break
        # s is carried along, not computed: it may be far below the rounding of Cy.
        dy = step / y
        ds = -uneven - p * dy
        # At most nine tenths of the way to the border of y, s > 0.
        length = min(1.0, 0.9 / max(float(-dy.min()), float(-ds.min()), 0.9))
        y, s = y * (1 + length * dy), s * (1 + length * ds)
    return best
