"""The parameters that a method weighs, checked."""

import functools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from trimol._failures import BadType, BadValue
from trimol.gradients._sharded import check


def checked(params: Iterable[Tensor], *, real: bool = True) -> list[Tensor]:
    """``params`` as a list of distinct tensors, with one clear error where it is not.

    Complex ones are refused, unless ``real`` is False.
    """
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
        if real and p.is_complex():
            raise BadType(f"params must be real, found {p.dtype} at place {i}")
        if not (p.is_floating_point() or p.is_complex()):
            raise BadType(
                f"params must be floating point, found {p.dtype} at place {i}: leave out what does "
                "not train"
            )
        if p.layout is not torch.strided:
            raise BadType(f"params must be dense, found {p.layout} at place {i}")
        if p.is_meta:
            raise BadValue(f"params must hold numbers, found one on 'meta' at place {i}")
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


def as_real(tensor: Tensor) -> Tensor:
    """A tensor of real numbers; a complex one as pairs of them, in one more dimension.

    For a real loss and p = a + bi, autograd's gradient is ∂f/∂a + i·∂f/∂b: the pairs are the
    gradient in a and b, and their inner products those of real vectors.
    """
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def width_of(param: Tensor) -> int:
    """How many real numbers a parameter is."""
    return param.numel() * (1 + param.is_complex())


def common_dtype(params: Sequence[Tensor]) -> torch.dtype:
    """A dtype of real numbers that holds the gradients of all parameters."""
    return functools.reduce(torch.promote_types, (p.dtype.to_real() for p in params))


def flattened(parts: Sequence[Tensor]) -> Tensor:
    """One tensor for each parameter as a flat vector of real numbers."""
    return torch.cat([as_real(part).reshape(-1) for part in parts])


def split(flat: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector of real numbers as one tensor for each parameter, of its shape."""
    parts = flat.split([width_of(p) for p in params])
    return [_shaped(part, p) for part, p in zip(parts, params, strict=True)]


def _shaped(part: Tensor, like: Tensor) -> Tensor:
    if not like.is_complex():
        return part.view(like.shape)
    pairs = part.view(*like.shape, 2)
    return torch.complex(pairs[..., 0], pairs[..., 1])
