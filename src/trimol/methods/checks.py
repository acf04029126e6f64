"""Hyper-parameters, checked: one clear line naming the argument and the value found."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def count(name: str, value: int) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, found {value!r}")
    return value


def nonnegative(name: str, value: float) -> float:
    """A finite number of at least 0."""
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, found {value!r}")
    return float(value)


def weights(value: Tensor | Sequence[float] | None, objectives: int) -> Tensor:
    """Finite, non-negative weights, not all zero, in float64; uniform for ``None``."""
    count("objectives", objectives)
    if value is None:
        return torch.full((objectives,), 1 / objectives, dtype=torch.float64)
    found = torch.as_tensor(value, dtype=torch.float64).detach().cpu().clone()
    if found.shape != (objectives,):
        raise ValueError(
            f"weights must have {objectives} entries, one per objective, found shape "
            f"{tuple(found.shape)}"
        )
    if not found.isfinite().all() or (found < 0).any() or not found.any():
        raise ValueError(
            f"weights must be finite, at least 0 and not all zero, found {found.tolist()}"
        )
    return found


def simplex(value: Tensor | Sequence[float] | None, objectives: int) -> Tensor:
    """Weights as :func:`weights`, that sum to one (to rounding, which is then removed)."""
    found = weights(value, objectives)
    if abs(found.sum().item() - 1) > 1e-6:
        raise ValueError(f"weights must sum to 1, found a sum of {found.sum().item():g}")
    return found / found.sum()
