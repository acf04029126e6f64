r"""The simplex: projection onto it, and the exact min-norm point in it.

Both problems of multi-objective learning that live on the simplex of weights

.. math:: \Delta^M = \{ \lambda \in \mathbb{R}^M : \lambda \ge 0,\ \mathbf 1^\top \lambda = 1 \}

are solved here exactly, in float64, whatever the dtype and device of the input: :func:`project`
(the step of MoDo) and :func:`min_norm` (the subproblem of MGDA, with the paper's ρ). Maths only:
inputs are detached, nothing is differentiated.

How :func:`min_norm` is exact
-----------------------------
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
this holds, entry by entry, to :data:`_ROUNDING` times the error of merely evaluating it,
:math:`\sum_j |H_{ij}|\lambda_j + \lambda^\top|H|\lambda`.

What differs is only how the support is found: compiled NNLS for one Gramian, all supports at once
for a batch with few objectives, a batched active set for a batch with many.
"""

from __future__ import annotations

import contextlib
import functools
import math
from numbers import Real

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when first used, which keeps the import short
import torch
from torch import Tensor

from trimol._failures import BadType, BadValue

__all__ = ["min_norm", "project"]

_Array = npt.NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
# A certificate is accepted at 16 units of rounding; exact solutions reach 1 to 5.
_ROUNDING = 16 * _EPS
# Up to this M a batch tries all 2^M - 1 supports (31 for 5); beyond, the active set is cheaper.
_ENUMERATE_UP_TO = 5
# Replicas enumerated at once: bounds the memory of a batch to about 50 MB.
_CHUNK = 4096


# --- projection -----------------------------------------------------------------------------------


def project(v: Tensor) -> Tensor:
    r"""Project onto the simplex: the nearest weights to ``v``.

    .. math:: \Pi_{\Delta^M}(v) = \arg\min_{\lambda \in \Delta^M} \|\lambda - v\|^2
              = \max(v - \theta, 0), \quad \theta \text{ such that the entries sum to } 1.

    The threshold θ is found exactly by sorting. A point that is on the simplex to the rounding of
    its dtype comes back bit for bit, so projecting twice is projecting once.

    Args:
        v: Finite values of shape ``(..., M)``; leading dimensions are a batch.

    Returns:
        Weights of the shape, device and dtype of ``v`` (the default dtype for integers).

    Raises:
        TypeError: ``v`` is no real tensor.
        ValueError: ``v`` has no entries to weigh, or a NaN or inf.

    Example:
        >>> import torch
        >>> project(torch.tensor([0.5, 0.75, -3.0]))
        tensor([0.3750, 0.6250, 0.0000])

    References:
        J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra, *Efficient projections onto the
        l1-ball for learning in high dimensions*, ICML 2008, figure 1.
    """
    _check_real_tensor("v", v)
    if v.ndim < 1 or v.shape[-1] < 1:
        raise BadValue(f"v must have shape (..., M) with M >= 1, found {tuple(v.shape)}")
    v = v.detach()
    finite = torch.isfinite(v)
    if not finite.all():
        index = tuple((~finite).nonzero()[0].tolist())
        raise BadValue(f"v must be finite, found {v[index].item()} at index {index}")
    return _project(v)


def _project(v: Tensor) -> Tensor:
    """Do what :func:`project` does, unchecked: pure torch, no sync, works under ``vmap``.

    NaN or inf in a vector makes that vector's result NaN.
    """
    x = _float64(v)
    # What sums to 1 to the rounding of its dtype is left alone, to the last bit.
    rounding = _finfo(v.dtype).eps / 2 + 4 * _EPS
    # The projection is the same after any shift. Large values are moved to max = 0, which loses
    # nothing that matters: entries below max - 1 get no weight, so they are cut off there.
    top = x.amax(-1, keepdim=True)
    shift = top * (top.abs() > 1)
    x = torch.maximum(x - shift, top - shift - 1)

    rank = torch.arange(1, x.shape[-1] + 1, device=x.device)
    descending = x.sort(-1, descending=True).values
    # excess_k = (sum of the k largest) - 1; the 1 is taken off the largest entry first, where the
    # subtraction is exact.
    excess = (descending - (rank == 1).to(x.dtype)).cumsum(-1)
    size = (rank * descending > excess).sum(-1, keepdim=True).clamp(min=1)
    excess = excess.gather(-1, size - 1)
    theta = excess / size * (excess.abs() > rounding)
    weights = (x - theta).clamp(min=0)

    # θ is rounded, and its error counts once for every weight: spread what that adds up to.
    drift = weights.sum(-1, keepdim=True) - 1
    spread = (drift.abs() > rounding) & (weights > 0)
    weights = (weights - drift / size * spread).clamp(min=0)
    return weights.to(_result_dtype(v)).to(v.device)


def _project_on_host(v: Tensor) -> Tensor:
    """Do as :func:`_project`, operation by operation, in NumPy: float64 of shape ``(B, M)``.

    Few small vectors are all overhead, of which an operator of NumPy has a fraction.
    """
    if v.device.type != "cpu":
        return _project(v)
    x: _Array = v.detach().numpy()
    top = x.max(1, keepdims=True)
    shift = top * (np.abs(top) > 1)
    x = np.maximum(x - shift, top - shift - 1)

    rank = np.arange(1, x.shape[1] + 1)
    descending = -np.sort(-x, axis=1)
    excess = (descending - (rank == 1)).cumsum(1)
    size = np.maximum((rank * descending > excess).sum(1, keepdims=True), 1)
    excess = np.take_along_axis(excess, size - 1, 1)
    rounding = 4.5 * _EPS
    theta = excess / size * (np.abs(excess) > rounding)
    weights = np.maximum(x - theta, 0)

    drift = weights.sum(1, keepdims=True) - 1
    spread = (np.abs(drift) > rounding) & (weights > 0)
    return torch.from_numpy(np.maximum(weights - drift / size * spread, 0))


# --- the min-norm point ---------------------------------------------------------------------------


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
    :func:`_min_norm_batched`, all at once on the device of ``gramian``; both give the same
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
    array = _checked_gramian(gramian)
    rho = _checked_rho(rho)
    if array.ndim == 2:
        weights = torch.from_numpy(_min_norm_one(array, rho, _tolerance(gramian.dtype)))
    else:
        weights = _min_norm_batched(gramian.detach(), rho)
    return weights.to(_result_dtype(gramian)).to(gramian.device)


def _min_norm_one(gramian: _Array, rho: float, tolerance: float) -> _Array:
    """Solve one problem: a closed form, or NNLS, polished and certified.

    Only an indefinite ``gramian`` cannot be certified to rounding; beyond ``tolerance``, raise.
    """
    size = gramian.shape[-1]
    if size == 1:
        return np.ones(1)
    if size == 2:
        return np.array(_min_norm_two(gramian.tolist(), rho))
    H = _regularised(gramian, rho)
    if not H.diagonal().all():
        zero = (H.diagonal() == 0).astype(np.float64)
        return np.asarray(zero / zero.sum())
    C, c = _equilibrate(H)
    y, residual = _certified(C, c, _polish(C, c, _nnls(C, c)))
    if not residual <= _ROUNDING:
        y, residual = _repair(C, c, y, residual)
    if not residual <= tolerance:
        found = f"found least eigenvalue {_least_eigenvalue(C):.3g} after scaling to unit diagonal"
        raise BadValue(f"gramian must be positive semi-definite, {found}")
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


def _regularised(gramian: _Array, rho: float) -> _Array:
    """Return (G + ρI) / 8, exactly symmetric; the eighth keeps huge entries from overflowing."""
    half = gramian / 16
    H = half + half.T
    H.flat[:: len(H) + 1] += rho / 8
    return H


def _equilibrate(H: _Array) -> tuple[_Array, _Array]:
    """Return C = D⁻¹HD⁻¹ and c = D⁻¹1 (scaled to max 1), D the powers of two next to √diag(H)."""
    exponent = np.frexp(H.diagonal())[1] // 2
    inverse = np.ldexp(1.0, -exponent)
    return H * inverse * inverse[:, None], inverse / inverse.max()


def _nnls(C: _Array, c: _Array) -> _Array:
    """Guess y: with C = AᵀA, the min-norm point is on the ray of argmin ‖Ay‖² + (cᵀy - 1)²."""
    size = len(c)
    factor, order = _factor(C)
    rank = len(factor)
    stacked = np.empty((rank + 1, size))
    stacked[:rank] = factor
    stacked[rank] = c[order]
    target = np.zeros(rank + 1)
    target[rank] = 1
    y = np.zeros(size)
    with contextlib.suppress(RuntimeError):  # out of iterations
        y[order] = scipy.optimize.nnls(stacked, target)[0]
    if not y.any():
        y[c.argmax()] = 1  # a vertex, which the certificate accepts or sends to repair
    return y


def _factor(C: _Array, tolerance: float = -1.0) -> tuple[_Array, npt.NDArray[np.int32]]:
    """Return A (rank rows) and an order of the columns with C[order][:, order] = AᵀA.

    A is the pivoted Cholesky factor: it keeps zeros and tiny entries of C, and takes any rank
    (by default to the rounding of float64).
    """
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(C, tol=tolerance)
    return factor[:rank] * _upper(len(C))[:rank], pivots - 1


@functools.lru_cache(maxsize=16)
def _upper(size: int) -> _Array:
    """Return ones on and above the diagonal (``np.triu`` costs as much as the NNLS itself)."""
    return np.triu(np.ones((size, size)))


def _polish(C: _Array, c: _Array, y: _Array) -> _Array:
    """Solve again on the support of ``y``, in Gramian form and refined: errors per component.

    NNLS is backward stable for the whole vector, so that it loses digits in its small entries.
    """
    support = y.nonzero()[0]
    size = len(support)
    system = np.zeros((size + 1, size + 1))
    border = c[support]
    system[:size, :size] = C[support[:, None], support]
    system[size, :size] = system[:size, size] = border / np.abs(border).max()
    target = np.zeros(size + 1)
    target[size] = 1
    factors, pivots, solution, singular = scipy.linalg.lapack.dgesv(system, target)
    if singular:
        return y
    correction, _ = scipy.linalg.lapack.dgetrs(factors, pivots, target - system @ solution)
    face = (solution + correction)[:size]
    if not face.min() >= 0:
        return y
    polished = np.zeros(len(c))
    polished[support] = face
    return polished


def _certified(C: _Array, c: _Array, y: _Array) -> tuple[_Array, float]:
    """Return ``y`` (scaled to max 1) and by how much it fails the certificate (module docstring).

    In the scaled variables: (Cy)_i ≥ s c_i with s = yᵀCy / cᵀy, equality where y_i > 0, judged
    relative to the rounding error of evaluating both sides.
    """
    y = y / y.max()
    product, magnitude = C @ y, np.abs(C) @ y
    share = y / (c @ y)
    slack = (product - (share @ product) * c) / (magnitude + (share @ magnitude) * c)
    return y, float(max(-slack.min(), slack[y > 0].max()))


def _repair(C: _Array, c: _Array, y: _Array, residual: float) -> tuple[_Array, float]:
    """Find a certified y where NNLS did not; return the best one and by how much it fails."""
    small = len(c) <= _ENUMERATE_UP_TO
    for candidate in _enumerated(C, c) if small else _raised(C, c):
        candidate, failure = _certified(C, c, candidate)
        if not residual <= failure:
            y, residual = candidate, failure
    return y, residual


def _enumerated(C: _Array, c: _Array) -> _Array:
    """Return the best y over all supports, as a batch of one."""
    return _enumerate(torch.from_numpy(C), torch.from_numpy(c))[None].numpy()


def _raised(C: _Array, c: _Array) -> _Array:
    """Return a batch of y: from active sets on C, or on C raised to definiteness.

    A degenerate C (dependent gradients) is singular or, by its own rounding, indefinite. Raising
    its diagonal by a few units of rounding (or by its negative eigenvalue) makes the support
    unique and changes the certificate by no more than that.
    """
    deficit = max(0.0, -_least_eigenvalue(C))
    raises = [deficit + 2 * _EPS * 4.0**k for k in range(8)]
    if deficit <= _ROUNDING:
        raises.append(0.0)
    raised = np.stack([C + np.diag(delta * np.diagonal(C)) for delta in raises])
    supports = np.stack([_nnls(each, c) > 0 for each in raised])
    repeated = torch.from_numpy(c).expand(len(raises), -1)
    return _active_set(torch.from_numpy(raised), repeated, torch.from_numpy(supports))[0].numpy()


def _least_eigenvalue(C: _Array) -> float:
    return float(np.linalg.eigvalsh(C)[0])


# --- many small problems at once ------------------------------------------------------------------


def _min_norm_batched(gramian: Tensor, rho: float) -> Tensor:
    """Solve a batch ``(..., M, M)`` → ``(..., M)`` in torch, unchecked, in float64.

    M ≤ 2: closed forms. M ≤ 5: all supports at once, the one that meets the optimality
    conditions best. Both are pure torch without a sync (:func:`_min_norm_small`), and work under
    ``vmap``. M > 5: a batched active set, which syncs once per iteration to see whether it is
    done; what it leaves uncertified (rare, degenerate Gramians) is solved one by one on the CPU.
    """
    size = gramian.shape[-1]
    flat = _float64(gramian).reshape(-1, size, size)
    parts = torch.split(flat, _CHUNK)
    if size <= _ENUMERATE_UP_TO:
        weights = [_min_norm_small(part, rho) for part in parts]
    else:
        weights = [_min_norm_large(part, rho, _tolerance(gramian.dtype)) for part in parts]
    return torch.cat(weights).reshape(gramian.shape[:-1])


def _min_norm_small(gramian: Tensor, rho: float) -> Tensor:
    """Solve float64 ``(..., M, M)`` with M ≤ 5 by closed form or enumeration; no sync."""
    size = gramian.shape[-1]
    if size == 1:
        return torch.ones_like(gramian[..., 0])
    if size == 2:
        return _min_norm_pairs(gramian, rho)
    C, c, zero = _equilibrate_batch(gramian, rho)
    y = _enumerate(C, c)
    return _weights(y, c, zero)


def _min_norm_large(gramian: Tensor, rho: float, tolerance: float) -> Tensor:
    """Solve float64 ``(B, M, M)`` by the batched active set, one by one what that leaves."""
    C, c, zero = _equilibrate_batch(gramian, rho)
    vertex = torch.nn.functional.one_hot(c.argmax(-1), c.shape[-1]).bool()
    y, residual = _active_set(C, c, vertex)
    weights = _weights(y, c, zero)
    for index in (~(residual <= _ROUNDING) & ~zero.any(-1)).nonzero()[:, 0].tolist():
        alone = _min_norm_one(gramian[index].cpu().numpy(), rho, tolerance)
        weights[index] = torch.from_numpy(alone).to(weights.device)
    return weights


def _min_norm_pairs(gramian: Tensor, rho: float) -> Tensor:
    """Do as :func:`_min_norm_two`, operation by operation, for ``(..., 2, 2)``."""
    diagonal = gramian.diagonal(dim1=-2, dim2=-1)
    cross = gramian[..., 0, 1] / 16 + gramian[..., 1, 0] / 16
    ahead = (diagonal.flip(-1) / 8 - cross[..., None]) + rho / 8
    tied = (ahead <= 0).all(-1, keepdim=True)
    ahead = torch.where(tied, torch.ones_like(ahead), ahead.clamp(min=0))
    return ahead / ahead.sum(-1, keepdim=True)


def _min_norm_pairs_on_host(gramian: _Array, rho: float) -> _Array:
    """Do as :func:`_min_norm_pairs`, operation by operation, for ``(B, 2, 2)`` in NumPy.

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
    """Return C and c as :func:`_equilibrate` does, and which rows are zero (their C_ii is 1)."""
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


def _enumerate(C: Tensor, c: Tensor) -> Tensor:
    """Solve on all 2^M - 1 supports; return the y ≥ 0 that best satisfies the certificate."""
    size = c.shape[-1]
    codes = torch.arange(1, 2**size, device=c.device)
    supports = (codes[:, None] >> torch.arange(size, device=c.device)) % 2 == 1
    C, c = C[..., None, :, :], c[..., None, :]
    y = _faces(C, c, supports)
    residual = _slack(C, c, y).amax(-1)
    feasible = torch.isfinite(y).all(-1) & (y >= 0).all(-1) & ~residual.isnan()
    residual = torch.where(feasible, residual, torch.inf)
    best = residual.argmin(-1)[..., None, None].expand(*residual.shape[:-1], 1, size)
    return y.gather(-2, best)[..., 0, :]


def _active_set(C: Tensor, c: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Run the active-set method from ``support``; return the best y and its failure, per problem.

    The method of Lawson and Hanson: solve on the support; if an entry turns negative, step until
    the first one vanishes and drop it; else add the objective that fails the certificate most.
    Each such step lowers the objective, so no support comes twice and the method is finite; the
    bound on the number of steps only guards against cycles by rounding.
    """
    y = support / (c * support).sum(-1, keepdim=True)
    best, least = y, torch.full_like(y[..., 0], torch.inf)
    done = torch.zeros_like(least, dtype=torch.bool)
    for _ in range(5 * c.shape[-1] + 10):
        face = _faces(C, c, support)
        slack = _slack(C, c, face)
        feasible = ((face > 0) | ~support).all(-1)
        failure = torch.where(feasible, slack.amax(-1), torch.inf)
        better = (failure < least) & ~done
        best = torch.where(better[..., None], face, best)
        least = torch.where(better, failure, least)

        outside = torch.where(support, -torch.inf, slack)
        done = done | ~torch.isfinite(face).all(-1) | (feasible & ~(outside.amax(-1) > _ROUNDING))
        if done.all():
            break
        worst = torch.nn.functional.one_hot(outside.argmax(-1), c.shape[-1]).bool()
        stepped, blocking = _step(y, face, support)
        y = torch.where(feasible[..., None], face, stepped)
        support = torch.where(feasible[..., None], support | worst, support & ~blocking)
    return best, least


def _step(y: Tensor, face: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Go from ``y`` towards ``face`` until the first entries vanish; tell which these are."""
    ratio = torch.where(support & (face <= 0), y / (y - face), torch.inf)
    length = ratio.amin(-1, keepdim=True)
    blocking = support & (ratio <= length)
    stepped = torch.where(support & ~blocking, y + length * (face - y), torch.zeros_like(y))
    return stepped.clamp(min=0), blocking


def _faces(C: Tensor, c: Tensor, support: Tensor) -> Tensor:
    """Solve the linear system of the module docstring on each support, refined once; cᵀy = 1.

    A singular system gives NaN or inf, never an error.
    """
    inside = support.to(C.dtype)
    block = C * inside[..., None] * inside[..., None, :] + torch.diag_embed(1 - inside)
    border = c * inside
    border = border / border.amax(-1, keepdim=True)
    corner = torch.zeros_like(border[..., :1])
    last = torch.cat([border, corner], -1)[..., None, :]
    system = torch.cat([torch.cat([block, border[..., None]], -1), last], -2)
    target = torch.cat([torch.zeros_like(border), corner + 1], -1)[..., None]

    factors, pivots, _ = torch.linalg.lu_factor_ex(system)
    solution = torch.linalg.lu_solve(factors, pivots, target)
    solution = solution + torch.linalg.lu_solve(factors, pivots, target - system @ solution)
    y = torch.where(support, solution[..., :-1, 0], torch.zeros_like(border))
    return y / (c * y).sum(-1, keepdim=True)


def _slack(C: Tensor, c: Tensor, y: Tensor) -> Tensor:
    """Say by how much each entry of ``y`` fails the certificate, as :func:`_certified` does."""
    y = y / y.amax(-1, keepdim=True)
    product = (C @ y[..., None])[..., 0]
    magnitude = (C.abs() @ y[..., None])[..., 0]
    share = y / (c * y).sum(-1, keepdim=True)
    scale = magnitude + c * (share * magnitude).sum(-1, keepdim=True)
    slack = product - c * (share * product).sum(-1, keepdim=True)
    slack = slack / (scale + _TINY)
    return torch.where(y > 0, slack.abs(), -slack)


# --- dtypes, devices and validation ---------------------------------------------------------------


def _float64(tensor: Tensor) -> Tensor:
    """Detach to float64, on the CPU if the device has none."""
    device = "cpu" if tensor.device.type == "mps" else tensor.device
    return tensor.detach().to(device).double()


def _result_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of the input, the default dtype for integers."""
    return tensor.dtype if tensor.dtype.is_floating_point else torch.get_default_dtype()


def _finfo(dtype: torch.dtype) -> torch.finfo:
    return torch.finfo(dtype if dtype.is_floating_point else torch.float64)


def _tolerance(dtype: torch.dtype) -> float:
    """Say how far from a Gramian, relative to √(G_ii G_jj), rounding may take a matrix.

    Half the digits, for sums over many parameters; never below 1e-6, since float64 Gramians are
    often float32 ones in a wider type.
    """
    return max(math.sqrt(_finfo(dtype).eps), 1e-6)


def _check_real_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise BadType(f"{name} must be a torch.Tensor, found {type(value).__name__}")
    if value.dtype.is_complex:
        raise BadType(f"{name} must be real, found dtype {value.dtype}")


def _checked_rho(rho: float) -> float:
    if not isinstance(rho, Real):
        raise BadType(f"rho must be a real number, found {type(rho).__name__}")
    if not 0 <= rho < math.inf:
        raise BadValue(f"rho must be finite and at least 0, found {rho}")
    return float(rho)


def _checked_gramian(gramian: Tensor) -> _Array:
    """Return ``gramian`` as a float64 array on the host, or raise."""
    _check_real_tensor("gramian", gramian)
    shape = tuple(gramian.shape)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 1:
        raise BadValue(f"gramian must have shape (..., M, M) with M >= 1, found {shape}")
    array: _Array = gramian.detach().cpu().double().numpy()
    if array.size:
        _check_entries(array, gramian.dtype)
    return array


@np.errstate(all="ignore")  # inf - inf and √negative are what is looked for
def _check_entries(gramian: _Array, dtype: torch.dtype) -> None:
    """Check symmetry and |G_ij| ≤ √(G_ii G_jj), to the rounding of ``dtype``."""
    tolerance = _tolerance(dtype)
    squared = np.diagonal(gramian, axis1=-2, axis2=-1)
    # A squared norm may have underflowed where the products with it have not: hence tiny.
    norms = np.sqrt(squared + _finfo(dtype).tiny)
    cosine = gramian / (norms[..., None] * norms[..., None, :])
    asymmetry = np.abs(cosine - cosine.swapaxes(-1, -2))
    length = np.abs(cosine)
    # Written so that NaN, which inf too becomes, fails.
    if asymmetry.max() <= tolerance and length.max() <= 1 + tolerance and squared.min() >= 0:
        return
    _raise_for_entries(gramian, asymmetry > tolerance, length > 1 + tolerance)


def _raise_for_entries(
    gramian: _Array, asymmetric: npt.NDArray[np.bool_], excessive: npt.NDArray[np.bool_]
) -> None:
    """Raise for the first fault, the plainest kind first."""
    infinite = ~np.isfinite(gramian)
    negative = (gramian < 0) & np.eye(gramian.shape[-1], dtype=bool)
    for fault, requirement in (
        (infinite, "be finite"),
        (negative, "have no negative squared norm on its diagonal"),
        (asymmetric, "be symmetric"),
        (excessive, "be positive semi-definite, |G[i, j]| <= sqrt(G[i, i] G[j, j])"),
    ):
        if fault.any():
            index = tuple(int(i) for i in np.argwhere(fault)[0])
            found = f"found {gramian[index]} at index {index}"
            if fault is asymmetric:
                mirror = (*index[:-2], index[-1], index[-2])
                found += f" but {gramian[mirror]} at {mirror}"
            raise BadValue(f"gramian must {requirement}, {found}")
