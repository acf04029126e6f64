"""IMTL-G: the direction that is as long as seen from every gradient."""

from typing import ClassVar

import numpy as np
import scipy  # its submodules load when first used, which keeps the import short
import torch
from torch import Tensor

from trimol.gradients._stepping import Momentum
from trimol.maths._numerics import Array, noise_of
from trimol.maths._validation import checked_gramian
from trimol.methods._gramian import RoundedMethod, each


def imtlg_weights(gramian: Tensor, rounding: float = 0.0, pull: Tensor | None = None) -> Tensor:
    """The weights that sum to one and project equally on all gradients, in float64.

    With the cosines C, y = ‖g‖λ and the common projection s: Cy = s·1 and Σ yᵢ/‖gᵢ‖ = 1, one
    linear system, which has a solution even where C is singular (then s = 0, or gradients repeat
    and share their weight). A zero gradient has no direction to project on: no weight. Where no
    such weights exist, λ ∝ 1/‖g‖, as if the gradients were orthogonal. With ``pull``, Gᵀk, it is
    the step k + S G λ whose projections are the same: Cy + Gᵀk/‖g‖ = s·1.
    """
    G = checked_gramian(gramian)
    size, norms = len(G), np.sqrt(G.diagonal())
    inside = norms.nonzero()[0]
    if not len(inside):
        return torch.full((size,), 1 / size, dtype=torch.float64)
    # Cy − s·1 = 0 and Σ yᵢ/‖gᵢ‖ = 1 (both sides times the shortest norm), for (y, s).
    used = norms[inside]
    inverse = used.min() / used
    system = np.zeros((len(inside) + 1, len(inside) + 1))
    chosen = G if len(inside) == size else G[inside[:, None], inside]
    system[:-1, :-1] = chosen / used / used[:, None]
    system[:-1, -1], system[-1, :-1] = -1, inverse
    target = np.zeros(len(inside) + 1)
    target[-1] = 1
    if pull is not None:
        target[:-1] = -pull.cpu().numpy()[inside] / used / used.min()
    y = _solution(system, target, noise_of(gramian, rounding))[:-1]
    if not abs(inverse @ y - 1) < 1e-3:
        y = np.ones_like(y)
    weights = np.zeros(size)
    weights[inside] = inverse * y / (inverse @ y)
    return torch.from_numpy(weights)


def _solution(system: Array, target: Array, noise: float) -> Array:
    """The solution; where there are many, to ``noise``, the shortest; where none is, the nearest.

    An LU factor tells its condition in the 1-norm, which is at most M times off that of the
    singular values (and the estimate 10 times): where none of these is noise, it is a tenth of
    the work of least squares.
    """
    factors, _, solution, singular = scipy.linalg.lapack.dgesv(system, target)
    norm = np.abs(system).sum(0).max()
    if not singular and scipy.linalg.lapack.dgecon(factors, norm)[0] > 10 * len(target) * noise:
        return np.asarray(solution)
    return np.asarray(np.linalg.lstsq(system, target, rcond=noise)[0])


class IMTLG(RoundedMethod):
    r"""Impartial multi-task learning, its gradient balance: no objective's gradient is favoured.

    .. math::
        \lambda:\ \sum_i \lambda_i = 1, \qquad
        d^\top \frac{g_i}{\|g_i\|} = d^\top \frac{g_j}{\|g_j\|}\ \text{ for all } i, j, \qquad
        d = \sum_i \lambda_i g_i, \qquad x_{t+1} = x_t - \alpha\, d

    Closed form: a linear system of M + 1 unknowns. Weights may be negative, and so may the common
    projection: the method balances, it does not promise descent. The direction of :math:`d` does
    not depend on the scale of any single loss, its sign and length do. One backward per objective.

    Example:
        >>> import torch, trimol
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> imtlg = trimol.IMTLG([x], objectives=2)
        >>> imtlg(torch.stack([x[0], 3 * x[1]])).backward()
        >>> x.grad, imtlg.weights
        (tensor([0.7500, 0.7500]), tensor([0.7500, 0.2500], dtype=torch.float64))

    Reference:
        L. Liu, Y. Li, Z. Kuang, J.-H. Xue, Y. Chen, W. Yang, Q. Liao, W. Zhang, *Towards Impartial
        Multi-task Learning*, ICLR 2021.
    """

    summary: ClassVar[str] = "The direction whose projection on every gradient is the same."
    reference: ClassVar[str] = "liu2021towards"

    def solve_rounded(self, gramian: Tensor, rounding: float) -> Tensor:
        """The weights of equal projections."""
        return each(imtlg_weights, [gramian], rounding)

    def solve_moving(self, gramian: Tensor, momentum: Momentum, rounding: float) -> Tensor:
        """The weights of equal projections of the optimizer's step."""
        return imtlg_weights(gramian, rounding, momentum.pull)
