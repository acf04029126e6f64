"""Activation checkpointing: saved tensors that are computed again when they are read.

``torch.utils.checkpoint`` computes a block again at the first tensor of it that a backward reads,
and once for that backward; of a selective checkpoint, once for all. Outside of a backward every
read is a first one. So tangents are carried within one.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils import checkpoint

from trimol._failures import BadValue

T = TypeVar("T")

# By torch, of a second backward.
_SAID = "selective activation checkpoint"
_FREED = "backward through the graph a second time"
_CACHED: Any = getattr(checkpoint, "_CachedTorchDispatchMode", None)


class _Within(torch.autograd.Function):
    """A scalar whose backward calls a function."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, function: Callable[[], None]) -> Tensor:
        ctx.function = function
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, None]:
        ctx.function()
        return None, None


def within_a_backward(function: Callable[[], T]) -> T:
    """What a function returns that is called within a backward of its own."""
    results: list[T] = []
    with torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        end: Tensor = _Within.apply(  # type: ignore[no-untyped-call]
            start, lambda: results.append(function())
        )
        end.backward()  # not `grad` for some inputs: nodes would leave the others out
    return results[0]


@contextmanager
def explained() -> Iterator[None]:
    """Within, a second backward through what allows but one is said in our words."""
    try:
        yield
    except RuntimeError as error:
        if _SAID in str(error):
            raise _refusal() from error
        if _FREED in str(error):
            raise BadValue(
                "losses must have their graph, found one that a backward() has freed: compute them "
                "again for each step, or call that backward() with retain_graph=True"
            ) from error
        raise


def check_repeatable(nodes: Iterable[Node]) -> None:
    """Raise if a backward can pass the nodes only once, as far as torch tells."""
    if any(_is_selective(node) for node in nodes):
        raise _refusal()


def _refusal() -> BadValue:
    return BadValue(
        "losses pass through a selective checkpoint (context_fn=…), which allows one backward, "
        "where this method needs more: leave context_fn out of torch.utils.checkpoint"
    )


def _is_selective(node: Any) -> bool:
    """Whether a node reads what a selective checkpoint computes again."""
    kind: Any = type(node)
    field = _first_tensor(kind)
    hook = None if field is None else getattr(getattr(node, field), "unpack_hook", None)
    if hook is None:
        return False
    again = _enclosed(getattr(_enclosed(hook).get("frame"), "recompute_fn", None))
    return _CACHED is not None and any(isinstance(x, _CACHED) for x in again.values())


@functools.cache
def _first_tensor(kind: type) -> str | None:
    """The first of the tensors that nodes of a kind save."""
    return next((name for name in dir(kind) if name.startswith("_raw_saved_")), None)


def _enclosed(function: Any) -> dict[str, Any]:
    """The variables that a function has from where it was defined."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    return {name: _content(cell) for name, cell in zip(code.co_freevars, cells, strict=True)}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty one
        return None
