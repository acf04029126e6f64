"""The parameters that a method weighs, checked."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from trimol._failures import BadType, BadValue
from trimol.gradients._sharded import check


def checked(params: Iterable[Tensor]) -> list[Tensor]:
    """``params`` as a list of distinct tensors, with one clear error where it is not."""
    if isinstance(params, Tensor):
        raise BadType("params must be an iterable of tensors, found a single tensor")
    if isinstance(params, nn.Module):
        raise BadType(
            "params must be an iterable of tensors, found a module: pass its .parameters()"
        )
    if not isinstance(params, Iterable):
        raise BadType(f"params must be an iterable of tensors, found {type(params).__name__}")
    distinct: dict[int, Tensor] = {}
    for i, p in enumerate(params):
        if not isinstance(p, Tensor):
            raise BadType(f"params must hold tensors, found {type(p).__name__} at place {i}")
        if p.is_complex():
            raise BadType(f"params must be real, found {p.dtype} at place {i}")
        distinct[id(p)] = p  # tied weights are one parameter
    if not distinct:
        raise BadValue("params must hold at least one tensor, found none (an empty generator?)")
    check(distinct.values())
    return list(distinct.values())


def trainable(params: Sequence[Tensor]) -> list[Tensor]:
    """The parameters that can receive a gradient now."""
    live = [p for p in params if p.requires_grad]
    if not live:
        raise BadValue(f"params must hold a tensor that requires grad, found {len(params)} frozen")
    return live


def flattened(parts: Sequence[Tensor]) -> Tensor:
    """One tensor for each parameter as a flat vector."""
    return torch.cat([part.reshape(-1) for part in parts])


def split(flat: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector as one tensor for each parameter, of its shape."""
    parts = flat.split([p.numel() for p in params])
    return [part.view(p.shape) for part, p in zip(parts, params, strict=True)]
