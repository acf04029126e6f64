"""The numerics that the solvers share: scaling, factors, faces; dtypes and rounding.

All work on the Gramian that `equilibrate` scales to a diagonal in [1/2, 2), in float64.
"""

import contextlib
import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when first used, which keeps the import short
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)
# A certificate is accepted at 16 units of rounding; exact solutions reach 1 to 5.
ROUNDING = 16 * EPS
# A direction conflicts with no gradient if it does by less than this, relative to their lengths.
_KEPT = 1e-9


def is_finite(tensor: Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    if tensor.dim() == 1 and tensor.device.type == "cpu":  # a few numbers: no operators for them
        return all(map(math.isfinite, tensor.tolist()))
    return bool(tensor.isfinite().all())


def regularised(gramian: Array, rho: float) -> Array:
    """Return (G + ρI) / 8, exactly symmetric; the eighth keeps huge entries from overflowing."""
    half = gramian / 16
    H = half + half.T
    H.flat[:: len(H) + 1] += rho / 8
    return H


def equilibrate(H: Array) -> tuple[Array, Array]:
    """Return C = D⁻¹HD⁻¹ and c = D⁻¹1 (scaled to max 1), D the powers of two next to √diag(H)."""
    exponent = np.frexp(H.diagonal())[1] // 2
    inverse = np.ldexp(1.0, -exponent)
    return H * inverse * inverse[:, None], inverse / inverse.max()


def nnls(C: Array, c: Array) -> Array:
    """Guess y: with C = AᵀA, the min-norm point is on the ray of argmin ‖Ay‖² + (cᵀy - 1)²."""
    A, order = factor(C)
    target = np.zeros(len(A) + 1)
    target[-1] = 1
    y = np.zeros(len(c))
    with contextlib.suppress(RuntimeError):  # out of iterations
        y[order] = scipy.optimize.nnls(np.vstack([A, c[order]]), target)[0]
    if not y.any():
        y[c.argmax()] = 1  # a vertex, which the certificate accepts or sends to repair
    return y


def factor(C: Array, tolerance: float = -1.0) -> tuple[Array, npt.NDArray[np.int32]]:
    """Return A (rank rows) and an order of the columns with C[order][:, order] = AᵀA.

    A is the pivoted Cholesky factor: it keeps zeros and tiny entries of C, and takes any rank
    (by default to the rounding of float64).
    """
    A, pivots, rank, _ = scipy.linalg.lapack.dpstrf(C, tol=tolerance)
    return A[:rank] * _upper(len(C))[:rank], pivots - 1


@functools.lru_cache(maxsize=16)
def _upper(size: int) -> Array:
    """Return ones on and above the diagonal (``np.triu`` costs as much as the NNLS itself)."""
    return np.triu(np.ones((size, size)))


def polish(C: Array, c: Array, y: Array) -> Array:
    """Solve again on the support of ``y``, in Gramian form and refined: errors per component.

    NNLS is backward stable for the whole vector, so that it loses digits in its small entries.
    """
    # The face's system, bordered by c scaled to max 1 (the docstring of `min_norm`).
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
    # One step of refinement; kept only if it stays inside the simplex.
    correction, _ = scipy.linalg.lapack.dgetrs(factors, pivots, target - system @ solution)
    face = (solution + correction)[:size]
    if not face.min() >= 0:
        return y
    polished = np.zeros(len(c))
    polished[support] = face
    return polished


def noise_of(gramian: Tensor, rounding: float) -> float:
    """Say how much of a squared norm is noise, relative to it.

    That is the rounding of the M × M Gramian itself, or of the gradients that it was formed from:
    ``rounding`` is the ε of their dtype, and counts squared, for the Gramian's own products are
    exact to float64. Below this, dependent gradients cannot be told from independent ones.
    """
    return max(gramian.shape[-1] * finfo(gramian.dtype).eps, _rounded(rounding))


def above_noise(gramian: Array, rounding: float) -> Array:
    """The Gramian of gradients that are independent, at least by the rounding of their entries.

    Rounding makes dependent gradients independent by chance, and a solver that takes this at its
    word gives them weights of 1/ε that cancel. Raised by δ‖gᵢ‖², δ = (4ε)², weights v stay below
    1/√δ, and what is demanded of ⟨gᵢ, d⟩ is missed by δ vᵢ‖gᵢ‖², at most √δ of the lengths.
    """
    # Gradients in float64 have no digits to spare: `without_conflict` raises where it must.
    return _raised(gramian, _rounded(rounding) if _rounded(rounding) > EPS else 0.0)


def without_conflict(solve: Callable[[Array], Array], gramian: Array, rounding: float) -> Array:
    """The weights of ``solve``, which promises ⟨gᵢ, d⟩ ≥ 0: as exact as rounding lets it be kept.

    The Gramian `above_noise` is solved as it is. Only where that breaks the promise (dependent
    gradients near a stationary point: what the Gramian holds of them is its own rounding) it is
    raised, by 4Mε and then 30 times more, and the weights that miss by least are taken.
    """
    floor = above_noise(gramian, rounding)
    weights = solve(floor)
    missed, allowed = _missed(gramian, weights), max(_KEPT, 4 * rounding)
    for delta in 4 * len(gramian) * EPS * np.array([1, 30, 900]):
        if missed <= allowed:
            break
        other = solve(_raised(floor, delta))
        if (less := _missed(gramian, other)) < missed:
            weights, missed = other, less
    return weights


def _raised(gramian: Array, delta: float) -> Array:
    """With a diagonal that is larger by δ, relative."""
    raised = gramian.copy()
    raised.flat[:: len(gramian) + 1] *= 1 + delta
    return raised


def _missed(gramian: Array, weights: Array) -> float:
    """How negative ⟨gᵢ, d⟩ may be, its rounding included, relative to ‖gᵢ‖(‖d‖ + max‖g‖)."""
    lengths = np.sqrt(gramian.diagonal())
    reached = gramian @ weights
    error = len(gramian) * EPS * (np.abs(gramian) @ np.abs(weights))
    scale = lengths * (math.sqrt(max(float(weights @ reached), 0.0)) + lengths.max())
    return float(np.max((error - reached)[scale > 0] / scale[scale > 0], initial=0.0))


def _rounded(rounding: float) -> float:
    return (4 * rounding) ** 2


def float64(tensor: Tensor) -> Tensor:
    """Detach to float64, on the CPU if the device has none."""
    device = "cpu" if tensor.device.type == "mps" else tensor.device
    return tensor.detach().to(device).double()


def result_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of the input, the default dtype for integers."""
    return tensor.dtype if tensor.dtype.is_floating_point else torch.get_default_dtype()


def finfo(dtype: torch.dtype) -> torch.finfo:
    """The rounding of a dtype; integers are computed in float64."""
    return torch.finfo(dtype if dtype.is_floating_point else torch.float64)


def tolerance_of(dtype: torch.dtype) -> float:
    """Say how far from a Gramian, relative to √(G_ii G_jj), rounding may take a matrix.

    Half the digits, for sums over many parameters; never below 1e-6, since float64 Gramians are
    often float32 ones in a wider type.
    """
    return max(math.sqrt(finfo(dtype).eps), 1e-6)
