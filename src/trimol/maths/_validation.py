"""What the solvers may be given: real tensors, ρ ≥ 0, Gramians; one clear error else."""

import math
from numbers import Real

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trimol._failures import BadType, BadValue
from trimol.maths._numerics import Array, finfo, tolerance_of


def check_real_tensor(name: str, value: object) -> None:
    """Raise unless the value is a tensor of real numbers."""
    if not isinstance(value, Tensor):
        raise BadType(f"{name} must be a torch.Tensor, found {type(value).__name__}")
    if value.dtype.is_complex:
        raise BadType(f"{name} must be real, found dtype {value.dtype}")


def checked_rho(rho: float) -> float:
    """A finite ρ ≥ 0."""
    if not isinstance(rho, Real):
        raise BadType(f"rho must be a real number, found {type(rho).__name__}")
    if not 0 <= rho < math.inf:
        raise BadValue(f"rho must be finite and at least 0, found {rho}")
    return float(rho)


def checked_gramian(gramian: Tensor) -> Array:
    """Return ``gramian`` as a float64 array on the host, or raise."""
    check_real_tensor("gramian", gramian)
    shape = tuple(gramian.shape)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 1:
        raise BadValue(f"gramian must have shape (..., M, M) with M >= 1, found {shape}")
    array: Array = gramian.detach().cpu().double().numpy()
    if array.size:
        _check_entries(array, gramian.dtype)
    return array


@np.errstate(all="ignore")  # inf - inf and √negative are what is looked for
def _check_entries(gramian: Array, dtype: torch.dtype) -> None:
    """Check symmetry and |G_ij| ≤ √(G_ii G_jj), to the rounding of ``dtype``."""
    tolerance = tolerance_of(dtype)
    squared = np.diagonal(gramian, axis1=-2, axis2=-1)
    # A squared norm may have underflowed where the products with it have not: hence tiny.
    norms = np.sqrt(squared + finfo(dtype).tiny)
    cosine = gramian / (norms[..., None] * norms[..., None, :])
    asymmetry = np.abs(cosine - cosine.swapaxes(-1, -2))
    length = np.abs(cosine)
    # Written so that NaN, which inf too becomes, fails.
    if asymmetry.max() <= tolerance and length.max() <= 1 + tolerance and squared.min() >= 0:
        return
    _raise_for_entries(gramian, asymmetry > tolerance, length > 1 + tolerance)


def _raise_for_entries(
    gramian: Array, asymmetric: npt.NDArray[np.bool_], excessive: npt.NDArray[np.bool_]
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
            said = f"found {gramian[index]} at index {index}"
            if fault is asymmetric:
                mirror = (*index[:-2], index[-1], index[-2])
                said += f" but {gramian[mirror]} at {mirror}"
            raise BadValue(f"gramian must {requirement}, {said}")
