r"""The min-norm point of the simplex: MGDA's subproblem, with the paper's ρ.

Solved exactly, in float64, whatever the dtype and device of the Gramian.

*Scaling.* Gradients differ in norm by orders of magnitude, so with :math:`H = G + \rho I` we work
on :math:`C = D^{-1} H D^{-1}`, where :math:`D` holds powers of two and the diagonal of :math:`C`
is in [1/2, 2): the scaling itself rounds nothing. With :math:`y = D\lambda` up to a factor and
:math:`c = D^{-1}\mathbf 1` the problem is to minimise :math:`y^\top C y` over :math:`y \ge 0`,
:math:`c^\top y = 1`.

*Face solution.* On a support :math:`S` the minimiser solves the linear system

.. math:: \begin{pmatrix} C_{SS} & c_S \\ c_S^\top & 0 \end{pmatrix}
          \begin{pmatrix} y_S \\ -s \end{pmatrix} = \begin{pmatrix} 0 \\ 1 \end{pmatrix}

which is regular even where :math:`C_{SS}` is not (Pareto stationary points, :math:`s = 0`).

*Certificate.* :math:`\lambda` is the minimiser if and only if :math:`(H\lambda)_i \ge s :=
\lambda^\top H\lambda` for every i, with equality on the support. We accept :math:`\lambda` when
this holds, entry by entry, to ``ROUNDING`` times the error of merely evaluating it,
:math:`\sum_j |H_{ij}|\lambda_j + \lambda^\top|H|\lambda`.

What differs is only how the support is found: compiled NNLS for one Gramian, all supports at once
for a batch with few objectives, a batched active set for a batch with many.
"""

import numpy as np
import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.maths._faces import active_set, best_support
from trimol.maths._numerics import (
    EPS,
    ROUNDING,
    Array,
    equilibrate,
    float64,
    nnls,
    polish,
    regularised,
    result_dtype,
    tolerance_of,
)
from trimol.maths._validation import checked_gramian, checked_rho

# Up to this M a batch tries all 2^M - 1 supports (31 for 5); beyond, the active set is cheaper.
_ENUMERATE_UP_TO = 5
# Replicas enumerated at once: bounds the memory of a batch to about 50 MB.
_CHUNK = 4096


def min_norm(gramian: Tensor, rho: float = 0.0) -> Tensor:
    r"""Find the weights of the min-norm point in the convex hull of M gradients, exactly.

    .. math:: \lambda^*_\rho = \arg\min_{\lambda \in \Delta^M}
              \lambda^\top G \lambda + \rho \|\lambda\|^2, \qquad G = J J^\top

    With ``rho = 0`` this is the subproblem of MGDA: the weights whose common descent direction
    :math:`-J^\top\lambda` is shortest. The result satisfies the optimality conditions to
    rounding, relative to each objective's own scale: objectives whose gradient norms differ by
    1e±8, that repeat, oppose or vanish are no special case. (If ``gramian`` itself is indefinite,
    as low-precision Gramians of dependent gradients are, then to the rounding of its dtype.)

    M = 1 and M = 2 are closed forms. One larger Gramian goes to scipy's compiled NNLS and is
    polished and certified on the support found. A batch of Gramians is solved by
    :func:`min_norm_batched`, all at once on the device of ``gramian``; both give the same
    weights to rounding wherever the minimiser is unique.

    Where the minimiser is not unique (``rho = 0`` and dependent gradients) any one is returned,
    with two promises: if some gradients are exactly zero, the weight is uniform over these (all
    zero: uniform over all); two equal gradients alone get one half each. With duplicates among
    three or more, how their common weight is shared is not specified.

    Args:
        gramian: ``G``, symmetric positive semi-definite, of shape ``(M, M)``, or a batch
            ``(..., M, M)``.
        rho: ``ρ ≥ 0``, the regularisation of the weights; any ``ρ > 0`` makes them unique.

    Returns:
        ``λ`` of shape ``(M,)`` or ``(..., M)``, on the device and in the dtype of ``gramian``
        (the default dtype for integers).

    Raises:
        TypeError: ``gramian`` is no real tensor, or ``rho`` no real number.
        ValueError: ``gramian`` is not square, not finite, not symmetric, or visibly not positive
            semi-definite; ``rho`` is negative or not finite.

    Example:
        >>> import torch
        >>> jacobian = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> min_norm(jacobian @ jacobian.T)
        tensor([0.8000, 0.2000])
        >>> min_norm(jacobian @ jacobian.T, rho=1.0)
        tensor([0.7143, 0.2857])

    References:
        J.-A. Désidéri, *Multiple-gradient descent algorithm (MGDA) for multiobjective
        optimization*, C. R. Math. 350, 2012. L. Chen, H. Fernando, Y. Ying, T. Chen, *Three-Way
        Trade-Off in Multi-Objective Learning: Optimization, Generalization and
        Conflict-Avoidance*, NeurIPS 2023 (λ*_ρ).
    """
    array = checked_gramian(gramian)
    rho = checked_rho(rho)
    if array.ndim == 2:
        weights = torch.from_numpy(min_norm_one(array, rho, tolerance_of(gramian.dtype)))
    else:
        weights = min_norm_batched(gramian.detach(), rho)
    return weights.to(result_dtype(gramian)).to(gramian.device)


def min_norm_one(gramian: Array, rho: float, tolerance: float) -> Array:
    """Solve one problem: a closed form, or NNLS, polished and certified.

    Only an indefinite ``gramian`` cannot be certified to rounding; beyond ``tolerance``, raise.
    """
    size = gramian.shape[-1]
    if size == 1:
        return np.ones(1)
    if size == 2:
        return np.array(_min_norm_two(gramian.tolist(), rho))
    H = regularised(gramian, rho)
    if not H.diagonal().all():  # gradients of zero
        zero = (H.diagonal() == 0).astype(np.float64)
        return np.asarray(zero / zero.sum())
    # Guess the support, solve on it to the last digits, and prove the result; else repair it.
    C, c = equilibrate(H)
    y, residual = _certified(C, c, polish(C, c, nnls(C, c)))
    if not residual <= ROUNDING:
        y, residual = _repair(C, c, y, residual)
    if not residual <= tolerance:
        raise BadValue(
            "gramian must be positive semi-definite, found least eigenvalue "
            f"{_least_eigenvalue(C):.3g} after scaling to unit diagonal"
        )
    return np.asarray(c * y / (c @ y))


def _min_norm_two(gramian: list[list[float]], rho: float) -> tuple[float, float]:
    """Solve M = 2: λ = (a, b) / (a + b), a = G22 - G12 + ρ, b = G11 - G12 + ρ, cut to [0, 1]."""
    (g11, g12), (g21, g22) = gramian
    cross = g12 / 16 + g21 / 16  # all is scaled by 1/8, lest the sums overflow
    first = (g22 / 8 - cross) + rho / 8
    second = (g11 / 8 - cross) + rho / 8
    if first <= 0 and second <= 0:
        return 0.5, 0.5
    first, second = max(first, 0.0), max(second, 0.0)
    return first / (first + second), second / (first + second)


def _certified(C: Array, c: Array, y: Array) -> tuple[Array, float]:
    """Return ``y`` (scaled to max 1) and by how much it fails the certificate (module docstring).

    In the scaled variables: (Cy)_i ≥ s c_i with s = yᵀCy / cᵀy, equality where y_i > 0, judged
    relative to the rounding error of evaluating both sides.
    """
    y = y / y.max()
    product, magnitude = C @ y, np.abs(C) @ y
    share = y / (c @ y)
    slack = (product - (share @ product) * c) / (magnitude + (share @ magnitude) * c)
    return y, float(max(-slack.min(), slack[y > 0].max()))


def _repair(C: Array, c: Array, y: Array, residual: float) -> tuple[Array, float]:
    """Find a certified y where NNLS did not; return the best one and by how much it fails."""
    if len(c) <= _ENUMERATE_UP_TO:
        candidates = best_support(torch.from_numpy(C), torch.from_numpy(c))[None].numpy()
    else:
        candidates = _raised(C, c)
    for candidate in candidates:
        candidate, failure = _certified(C, c, candidate)
        if not residual <= failure:
            y, residual = candidate, failure
    return y, residual


def _raised(C: Array, c: Array) -> Array:
    """Return a batch of y: from active sets on C, or on C raised to definiteness.

    A degenerate C (dependent gradients) is singular or, by its own rounding, indefinite. Raising
    its diagonal by a few units of rounding (or by its negative eigenvalue) makes the support
    unique and changes the certificate by no more than that.
    """
    deficit = max(0.0, -_least_eigenvalue(C))
    raises = [deficit + 2 * EPS * 4.0**k for k in range(8)]
    if deficit <= ROUNDING:
        raises.append(0.0)
    raised = np.stack([C + np.diag(delta * np.diagonal(C)) for delta in raises])
    supports = np.stack([nnls(each, c) > 0 for each in raised])
    repeated = torch.from_numpy(c).expand(len(raises), -1)
    return active_set(torch.from_numpy(raised), repeated, torch.from_numpy(supports))[0].numpy()


def _least_eigenvalue(C: Array) -> float:
    return float(np.linalg.eigvalsh(C)[0])


def min_norm_batched(gramian: Tensor, rho: float) -> Tensor:
    """Solve a batch ``(..., M, M)`` → ``(..., M)`` in torch, unchecked, in float64.

    M ≤ 2: closed forms. M ≤ 5: all supports at once, the one that meets the optimality
    conditions best. Both are pure torch without a sync, and work under ``vmap``.
    M > 5: a batched active set, which syncs once per iteration to see whether it is done; what it
    leaves uncertified (rare, degenerate Gramians) is solved one by one on the CPU.
    """
    size = gramian.shape[-1]
    flat = float64(gramian).reshape(-1, size, size)
    parts = torch.split(flat, _CHUNK)
    if size <= _ENUMERATE_UP_TO:
        weights = [_min_norm_small(part, rho) for part in parts]
    else:
        weights = [_min_norm_large(part, rho, tolerance_of(gramian.dtype)) for part in parts]
    return torch.cat(weights).reshape(gramian.shape[:-1])


def _min_norm_small(gramian: Tensor, rho: float) -> Tensor:
    """Solve float64 ``(..., M, M)`` with M ≤ 5 by closed form or enumeration; no sync."""
    size = gramian.shape[-1]
    if size == 1:
        return torch.ones_like(gramian[..., 0])
    if size == 2:
        return _min_norm_pairs(gramian, rho)
    C, c, zero = _equilibrate_batch(gramian, rho)
    return _weights(best_support(C, c), c, zero)


def _min_norm_large(gramian: Tensor, rho: float, tolerance: float) -> Tensor:
    """Solve float64 ``(B, M, M)`` by the batched active set, one by one what that leaves."""
    C, c, zero = _equilibrate_batch(gramian, rho)
    # Start where the shortest gradient has all the weight.
    vertex = torch.nn.functional.one_hot(c.argmax(-1), c.shape[-1]).bool()
    y, residual = active_set(C, c, vertex)
    weights = _weights(y, c, zero)
    for index in (~(residual <= ROUNDING) & ~zero.any(-1)).nonzero()[:, 0].tolist():
        alone = min_norm_one(gramian[index].cpu().numpy(), rho, tolerance)
        weights[index] = torch.from_numpy(alone).to(weights.device)
    return weights


def _min_norm_pairs(gramian: Tensor, rho: float) -> Tensor:
    """Do as `_min_norm_two`, operation by operation, for ``(..., 2, 2)``."""
    diagonal = gramian.diagonal(dim1=-2, dim2=-1)
    cross = gramian[..., 0, 1] / 16 + gramian[..., 1, 0] / 16
    ahead = (diagonal.flip(-1) / 8 - cross[..., None]) + rho / 8
    tied = (ahead <= 0).all(-1, keepdim=True)
    ahead = torch.where(tied, torch.ones_like(ahead), ahead.clamp(min=0))
    return ahead / ahead.sum(-1, keepdim=True)


def min_norm_pairs_on_host(gramian: Array, rho: float) -> Array:
    """Do as `_min_norm_pairs`, operation by operation, for ``(B, 2, 2)`` in NumPy.

    Few small Gramians are all overhead, of which an operator of NumPy has a fraction.
    """
    cross = gramian[:, 0, 1] / 16 + gramian[:, 1, 0] / 16
    ahead = np.empty(gramian.shape[:-1])
    ahead[:, 0] = (gramian[:, 1, 1] / 8 - cross) + rho / 8
    ahead[:, 1] = (gramian[:, 0, 0] / 8 - cross) + rho / 8
    ahead[(ahead <= 0).all(1)] = 1
    np.maximum(ahead, 0, out=ahead)
    return np.asarray(ahead / ahead.sum(1, keepdims=True))


def _equilibrate_batch(gramian: Tensor, rho: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return C and c as `equilibrate` does, and which rows are zero (their C_ii is 1)."""
    eighth = gramian / 8
    squared = eighth.diagonal(dim1=-2, dim2=-1) + rho / 8
    zero = squared == 0
    squared = squared + zero.to(squared.dtype)
    H = (eighth + eighth.mT) / 2
    H = torch.diagonal_scatter(H, squared, dim1=-2, dim2=-1)
    exponent = (torch.frexp(squared).exponent // 2).to(H.dtype)
    inverse = torch.exp2(-exponent)
    C = H * inverse[..., None] * inverse[..., None, :]
    return C, torch.exp2(exponent.amin(-1, keepdim=True) - exponent), zero


def _weights(y: Tensor, c: Tensor, zero: Tensor) -> Tensor:
    """Undo the scaling; where gradients are zero, weigh these alone."""
    weights = torch.where(zero.any(-1, keepdim=True), zero.to(y.dtype), c * y)
    return weights / weights.sum(-1, keepdim=True)
