"""One backward pass, G u, and inner products of what it gives."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode

from trimol.gradients._checkpoints import explained
from trimol.gradients._params import as_real
from trimol.gradients._retained import unseen

# Of torch's own code that a backward calls: functions in Python, which graphs show; recomputation;
# and hooks that hand on what they are given.
_TRUSTED = ("torch.autograd.function", "torch.utils.checkpoint", "torch.distributed.fsdp.")


class _Listener(TorchFunctionMode):
    """Within, a backward that calls Python code which uses torch is noticed.

    Whoever reads a gradient calls torch for it. What a hook does without is the same for every
    gradient: nothing, or to put a constant in its place, which a comparison of numbers shows.

    Attributes:
        heard: Whether there was such code.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard = False

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of torch as ever, and note who asked for it."""
        self.heard = self.heard or not _is_trusted(sys._getframe(1))
        return function(*args, **(kwargs or {}))


def _is_trusted(frame: Any) -> bool:
    """Whether the first function that the backward called, if it is one in Python, is torch's."""
    first = None
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        first, frame = frame, frame.f_back
    return first is not None and str(first.f_globals.get("__name__")).startswith(_TRUSTED)


def differentiated(outputs: Any, inputs: Any, cotangents: Any, **options: Any) -> Sequence[Any]:
    """``torch.autograd.grad`` on a graph of the user's, who is to notice nothing of it."""
    with explained(), unseen():
        gradients: Sequence[Any] = torch.autograd.grad(outputs, inputs, cotangents, **options)
    return gradients


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
    gradients = differentiated(
        outputs,
        inputs,
        cotangents,
        retain_graph=retain,
        allow_unused=True,
        is_grads_batched=batched,
    )
    batch = cotangents.shape[:1] if batched else ()
    pairs = zip(gradients, inputs, strict=True)
    return [_zeros(x, batch) if g is None else dense(g) for g, x in pairs]


def heard(losses: Tensor, params: Sequence[Tensor], weights: Tensor) -> list[Tensor] | None:
    """As `gradient`; None where a hook of the user's reads gradients or changes them."""
    run: Any = torch.autograd.graph._engine_run_backward  # `torch.autograd.grad` leaves modes
    given = (losses,), (weights.to(losses),), True, False, tuple(params), True
    listener = _Listener()
    with explained(), unseen(), listener:
        gradients = run(*given, accumulate_grad=False)
    pairs = zip(gradients, params, strict=True)
    return None if listener.heard else [_zeros(p, ()) if g is None else dense(g) for g, p in pairs]


def _zeros(like: Any, batch: Sequence[int]) -> Tensor:
    """What no gradient arrives at, a tensor or an edge of the graph: zeros of its shape."""
    if isinstance(like, GradientEdge):
        like = like.node._input_metadata[like.output_nr]
    return torch.zeros((*batch, *like.shape), dtype=like.dtype, device=like.device)


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
