r"""The dual cone: the nearest direction along which every objective improves by a given amount.

For gradients :math:`g_i` (rows of :math:`J`, Gramian :math:`G = JJ^\top`) the point nearest to
:math:`J^\top u` among the d with :math:`Jd \ge f` is :math:`J^\top(u + v)`, where

.. math:: v = \arg\min_{v \ge 0}\ \tfrac12 v^\top G v - (f - Gu)^\top v .

Both solvers work on the equilibrated Gramian with scipy's compiled NNLS, exactly as
:mod:`trimol.maths.min_norm` does and with the same parts: nothing here depends on the gradients'
scale.
"""

import math

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when first used, which keeps the import short
import torch

from trimol.maths._numerics import (
    ROUNDING,
    Array,
    equilibrate,
    factor,
    nnls,
    polish,
    regularised,
    tolerance_of,
)
from trimol.maths.min_norm import min_norm_one

_Mask = npt.NDArray[np.bool_]

# Up to this M, one NNLS after another is faster than the overhead of a batch.
_ONE_BY_ONE_UP_TO = 16
# Exchanges of block pivoting before a problem is left to NNLS; five to ten do, for almost all.
_PIVOTS = 50


def shortest(gramian: Array, dtype: torch.dtype, noise: float) -> tuple[Array, float]:
    """The min-norm weights and the norm they reach: zero where that is ``noise`` (`noise_of`).

    Zero tells a Pareto stationary point: no direction improves every objective.
    """
    weights = min_norm_one(gramian, 0.0, tolerance_of(dtype))
    squared = float(weights @ gramian @ weights)
    reached = squared > 2 * noise * float(weights @ np.abs(gramian) @ weights)
    return weights, math.sqrt(squared) if reached else 0.0


def push(gramian: Array, short: Array) -> Array:
    """argmin ½vᵀGv - vᵀ ``short`` over v ≥ 0: what to add where Jd falls ``short`` of f.

    This is Lawson and Hanson's least distance programming: min ‖x‖ with Jx ≥ short has the
    solution on the ray of argmin ‖Aᵀy‖² + (yᵀ short - 1)², the problem of the min-norm point.
    Feasible targets only: at a stationary point no more than zero can be reached.
    """
    C, inverse = equilibrate(regularised(gramian, 0.0))
    c = inverse * short
    if not c.max() > 0:
        return np.zeros_like(c)
    c = c / np.abs(c).max()
    y = inverse * polish(C, c, nnls(C, c))
    along, squared = y @ short, y @ gramian @ y
    return np.asarray(y * (along / squared)) if along > 0 and squared > 0 else np.zeros_like(c)


def pushes(gramian: Array) -> Array:
    """Row i is the v that takes gᵢ to the dual cone {d: Jd ≥ 0}.

    One NNLS for each gradient with a conflict. Beyond a few objectives all at once, by block
    pivoting; then NNLS has only those left for which that finds no certified solution.
    """
    size = len(gramian)
    pushed = np.zeros_like(gramian)
    left = np.flatnonzero((gramian < 0).any(1))
    if not len(left):
        return pushed
    if size == 2:
        pushed[0, 1], pushed[1, 0] = -gramian[0, 1] / gramian[1, 1], -gramian[0, 1] / gramian[0, 0]
        return pushed
    C, inverse = equilibrate(regularised(gramian, 0.0))
    if size > _ONE_BY_ONE_UP_TO:
        pushed[left], solved = _pivoted(C, C[left])
        left = left[~solved]
    if len(left):
        A, order = factor(C)
        place = np.argsort(order)
        for i in left:
            pushed[i, order] = scipy.optimize.nnls(A, -A[:, place[i]])[0]
    return np.asarray(pushed * inverse / inverse[:, None])


def pushes_from(gramian: Array, starts: Array) -> Array:
    """Row i is the v that takes a step to the dual cone along which the losses change by starts[i].

    As `pushes`, whose steps are the gradients themselves.
    """
    return np.stack([push(gramian, -start) for start in starts])


def _pivoted(C: Array, q: Array) -> tuple[Array, _Mask]:
    """Solve y ≥ 0, Cy + q ≥ 0, yᵀ(Cy + q) = 0 for every row of q; tell where that succeeded.

    Block principal pivoting (Júdice and Pires): solve on a support and exchange all infeasible
    entries, while their number falls at least every fourth time; else only the last of them.
    """
    count, size = q.shape
    solution, solved = np.zeros_like(q), np.zeros(count, dtype=bool)
    rows, support = np.arange(count), q < 0  # of the problems that are not finished
    fewest, patience = np.full(count, size + 1), np.full(count, 3)
    for _ in range(_PIVOTS):
        y = _on_supports(C, q, support)
        regular = ~np.isnan(y).any(1)  # what is singular is left to NNLS
        rows, q, support, y = rows[regular], q[regular], support[regular], y[regular]
        fewest, patience = fewest[regular], patience[regular]
        # Certified: y ≥ 0 on the support, slack ≥ 0 off it and zero on it, to rounding.
        slack = y @ C + q
        allowed = 4 * ROUNDING * (np.abs(y) @ np.abs(C) + np.abs(q))
        wrong = np.where(support, ~(y >= 0), ~(slack >= -allowed))
        number = wrong.sum(1)
        certified = (number == 0) & (~support | (np.abs(slack) <= allowed)).all(1)
        solution[rows[certified]], solved[rows[certified]] = y[certified], True

        going = number > 0
        if not going.any():
            break
        # Exchange every wrong entry while that helps, the last one alone when it does not.
        better = number < fewest
        patience = np.where(better, 3, patience - 1)
        fewest = np.minimum(number, fewest)
        last = np.arange(size) == size - 1 - wrong[:, ::-1].argmax(1)[:, None]
        support ^= np.where((patience >= 0)[:, None], wrong, wrong & last)
        # Go on with the problems that have wrong entries.
        rows, q, support = rows[going], q[going], support[going]
        fewest, patience = fewest[going], patience[going]
    return solution, solved


def _on_supports(C: Array, q: Array, support: _Mask) -> Array:
    """The y with (Cy + q)ᵢ = 0 on each row's support and y = 0 elsewhere; NaN where C is singular.

    By Cholesky, one problem after another: M of them at M = 512 take a second.
    """
    y = np.zeros_like(q)
    for row, target, inside in zip(y, q, support, strict=True):
        places = inside.nonzero()[0]
        if len(places):
            block = C[places[:, None], places]
            _, solution, singular = scipy.linalg.lapack.dposv(block, -target[places])
            row[places] = np.nan if singular else solution
    return y
