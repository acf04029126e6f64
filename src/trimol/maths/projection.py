"""Projection onto the simplex, exactly, in float64, whatever the dtype and device of the input."""

import math
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.maths._numerics import EPS, Array, finfo, float64, result_dtype
from trimol.maths._validation import check_real_tensor

# So many entries are projected by Python itself.
FEW = 64


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
    check_real_tensor("v", v)
    if v.ndim < 1 or v.shape[-1] < 1:
        raise BadValue(f"v must have shape (..., M) with M >= 1, found {tuple(v.shape)}")
    v = v.detach()
    finite = torch.isfinite(v)
    if not finite.all():
        index = tuple((~finite).nonzero()[0].tolist())
        raise BadValue(f"v must be finite, found {v[index].item()} at index {index}")
    return projected(v)


def projected(v: Tensor) -> Tensor:
    """The projection, unchecked: pure torch, no sync, works under ``vmap``.

    NaN or inf in a vector makes that vector's result NaN.
    """
    x = float64(v)
    # What sums to 1 to the rounding of its dtype is left alone, to the last bit.
    rounding = finfo(v.dtype).eps / 2 + 4 * EPS
    # The projection is the same after any shift. Large values are moved to max = 0, which loses
    # nothing that matters: entries below max - 1 get no weight, so they are cut off there.
    top = x.amax(-1, keepdim=True)
    shift = top * (top.abs() > 1)
    x = torch.maximum(x - shift, top - shift - 1)

    # The support is the k largest entries, for the largest k that leaves them all positive.
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
    return weights.to(result_dtype(v)).to(v.device)


def projected_on_host(v: Tensor) -> Tensor:
    """Do as `projected`, operation by operation, in NumPy: float64 of shape ``(..., M)``.

    Few small vectors are all overhead, of which an operator of NumPy has a fraction, and Python's
    own numbers still less.
    """
    if v.device.type != "cpu":
        return projected(v)
    if v.dim() == 1 and len(v) <= FEW:
        return torch.tensor(_projected_few(v.tolist()), dtype=torch.float64)
    x: Array = v.detach().numpy()
    top = x.max(-1, keepdims=True)
    shift = top * (np.abs(top) > 1)
    x = np.maximum(x - shift, top - shift - 1)

    rank = np.arange(1, x.shape[-1] + 1)
    descending = -np.sort(-x, axis=-1)
    excess = (descending - (rank == 1)).cumsum(-1)
    size = np.maximum((rank * descending > excess).sum(-1, keepdims=True), 1)
    excess = np.take_along_axis(excess, size - 1, -1)
    rounding = 4.5 * EPS
    theta = excess / size * (np.abs(excess) > rounding)
    weights = np.maximum(x - theta, 0)

    drift = weights.sum(-1, keepdims=True) - 1
    spread = (np.abs(drift) > rounding) & (weights > 0)
    return torch.from_numpy(np.maximum(weights - drift / size * spread, 0))


def _projected_few(v: list[float]) -> list[float]:
    """The same for one vector, number by number."""
    top = max(v)
    if not all(map(math.isfinite, v)):
        return [math.nan] * len(v)
    shift = top if abs(top) > 1 else 0.0
    x = [max(entry - shift, top - shift - 1) for entry in v]

    descending = sorted(x, reverse=True)
    sums = list(accumulate(descending[1:], initial=descending[0] - 1))
    pairs = zip(descending, sums, strict=True)
    size = max(sum(k * entry > total for k, (entry, total) in enumerate(pairs, 1)), 1)
    excess, rounding = sums[size - 1], 4.5 * EPS
    theta = excess / size if abs(excess) > rounding else 0.0
    weights = [max(entry - theta, 0.0) for entry in x]

    drift = sum(weights) - 1
    if abs(drift) <= rounding:
        return weights
    return [max(w - drift / size, 0.0) if w > 0 else w for w in weights]
