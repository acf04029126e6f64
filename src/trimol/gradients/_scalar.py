"""One scalar whose gradient is a given direction.

`weighted` leaves the work to the losses' own graph; `attached` carries a direction that is already
known, so that ``backward()`` has nothing left to compute. Either way ``backward()``, gradient
scaling, hooks, accumulation and ``DistributedDataParallel`` see an ordinary loss.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol.gradients._sharded import Part


def weighted(losses: Tensor, weights: Tensor) -> Tensor:
    """λᵀF, at least in float32."""
    dtype = torch.promote_types(losses.dtype, torch.float32)
    # Autocast leaves this be.
    return torch.dot(weights.to(losses.device, dtype), losses.to(dtype))


def mean(values: Sequence[Tensor]) -> Tensor:
    """The mean of some scalars."""
    return values[0] if len(values) == 1 else torch.stack(list(values)).mean()


def attached(
    value: Tensor,
    params: Sequence[Tensor],
    direction: Sequence[Tensor | Part],
    finish: Callable[[], None] = lambda: None,
) -> Tensor:
    """A scalar worth ``value`` whose gradient with respect to ``params`` is ``direction``.

    ``value`` may have a graph of its own; its gradient is then added. ``finish`` is called within
    the user's backward.
    """
    result: Tensor = _Attached.apply(  # type: ignore[no-untyped-call]
        value, direction, finish, *params
    )
    return result


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        value: Tensor,
        direction: Sequence[Tensor | Part],
        finish: Callable[[], None],
        *params: Tensor,
    ) -> Tensor:
        ctx.direction, ctx.finish = direction, finish
        ctx.save_for_backward(value)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        ctx.saved_tensors  # noqa: B018  (raises as torch does, where they were freed by a backward)
        if torch.is_grad_enabled():
            raise BadValue(
                "create_graph must be False: this method's gradient is known without a graph, and "
                "cannot be differentiated (trimol.Static with its weights can)"
            )
        (scale,) = upstream
        ctx.finish()
        return (scale, None, None, *[_scaled(d, scale) for d in ctx.direction])


def _scaled(gradient: Tensor | Part, scale: Tensor) -> Tensor:
    if isinstance(gradient, Part):
        return gradient.scaled(scale)
    return gradient * scale.to(gradient.device, gradient.dtype)
