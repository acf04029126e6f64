"""One backward pass, G u, and inner products of what it gives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trimol.gradients._checkpoints import explained
from trimol.gradients._params import as_real


def pulled(
    outputs: Any,
    inputs: Sequence[Any],
    cotangents: Any = None,
    *,
    retain: bool = True,
    batched: bool = False,
) -> list[Tensor]:
    """Σ u·∂output/∂input for each of the inputs: zeros where the outputs do not reach it.

    Outputs and inputs are tensors or edges of the graph; u, one of the ``cotangents`` for each
    output, is 1 by default. ``batched``: they have a leading dimension, for one backward of all.
    """
    with explained():
        gradients = torch.autograd.grad(
            outputs,
            inputs,
            cotangents,
            retain_graph=retain,
            allow_unused=True,
            is_grads_batched=batched,
        )
    batch = cotangents.shape[:1] if batched else ()
    return [
        x.new_zeros(*batch, *x.shape) if g is None else dense(g)
        for g, x in zip(gradients, inputs, strict=True)
    ]


def gradient(
    losses: Tensor, params: Sequence[Tensor], weights: Tensor, *, retain: bool = True
) -> list[Tensor]:
    """G λ, one tensor per parameter (zeros where the losses do not reach it)."""
    return pulled(losses, params, weights.to(losses), retain=retain)


def dense(gradient: Tensor) -> Tensor:
    """A gradient as autograd gives it (some embeddings': sparse) as an ordinary tensor."""
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def inner(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """⟨a, b⟩ over lists of tensors, in float64."""
    terms = [torch.dot(_wide(x), _wide(y)) for x, y in zip(a, b, strict=True)]
    return torch.stack([t.to(terms[0].device) for t in terms]).sum()


def _wide(tensor: Tensor) -> Tensor:
    return as_real(tensor.detach()).reshape(-1).double()


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """‖a‖ over a list of tensors, in float64 (added up in it: no copy is made)."""
    parts = [torch.linalg.vector_norm(as_real(t.detach()), dtype=torch.float64) for t in tensors]
    total: Tensor = torch.linalg.vector_norm(torch.stack([p.to(parts[0].device) for p in parts]))
    return total
