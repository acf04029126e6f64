"""The reference that the engine is held against: one ``torch.autograd.grad`` per loss."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def jacobian(losses: Tensor | Sequence[Tensor], params: Iterable[Tensor]) -> Tensor:
    """In float64, with zeros where no gradient arrives."""
    params = list(params)
    return torch.stack([torch.cat(_gradient(loss, params)) for loss in losses])


def _gradient(loss: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    live = [p for p in params if p.requires_grad] if loss.requires_grad else []
    arrived = torch.autograd.grad(loss, live, retain_graph=True, allow_unused=True) if live else ()
    found = {id(p): g.to_dense() for p, g in zip(live, arrived, strict=True) if g is not None}
    return [found.get(id(p), torch.zeros_like(p)).detach().reshape(-1).double() for p in params]


def assert_product(got: Tensor, first: Tensor, vector: Tensor, rtol: float) -> None:
    """``got`` is first @ vector up to rounding, relative to ‖row‖·‖vector‖ of each objective."""
    assert got.shape == (len(first),)
    assert not got.requires_grad
    scale = first.norm(dim=1) * vector.norm()
    error = (got.double() - first @ vector).abs()
    assert (error <= rtol * scale).all(), f"relative errors {(error / scale).tolist()}"


def assert_rows(got: Tensor, want: Tensor, rtol: float) -> None:
    """Row by row, relative to the row's norm."""
    assert got.shape == want.shape
    error = (got.double() - want).norm(dim=1)
    assert (error <= rtol * want.norm(dim=1)).all(), f"errors {error.tolist()}"
