"""``tensor.retain_grad()``: what a user's backwards leave in an intermediate result's ``.grad``.

Backwards of ours must leave nothing there, and the user's must pass the graph to do so. A graph
does not show which of its tensors are meant: so the call is noted, once this package is loaded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import ref

from torch import Tensor
from torch.autograd.graph import Node

_NOTED: dict[int, ref[Tensor]] = {}
_retain_grad = Tensor.retain_grad


def _noting(self: Tensor) -> None:
    _retain_grad(self)
    number = id(self)
    _NOTED[number] = ref(self, lambda _: _NOTED.pop(number, None))


_noting.__name__, _noting.__doc__ = "retain_grad", _retain_grad.__doc__
Tensor.retain_grad = _noting  # type: ignore[method-assign,assignment]


def retaining() -> list[Tensor]:
    """The tensors of which users want to see the gradient."""
    found = (own() for own in list(_NOTED.values()))
    return [tensor for tensor in found if tensor is not None and tensor.grad_fn is not None]


def retains(nodes: list[Node]) -> bool:
    """Whether one of the nodes has made such a tensor."""
    made = {tensor.grad_fn for tensor in retaining()}
    return bool(made) and not made.isdisjoint(nodes)


@contextmanager
def unseen() -> Iterator[None]:
    """Within, backwards leave nothing in the ``.grad`` of intermediate results."""
    held = [(tensor, tensor.grad) for tensor in retaining()]
    try:
        yield
    finally:
        for tensor, gradient in held:
            tensor.grad = gradient
