"""Hooks: functions of the user's that replace a gradient on its way through the graph.

Autograd runs them; a tangent that is carried past the graph would miss them. A node does not show
its hooks, but PyTorch numbers the hooks of a process with one counter, and a hook on an
intermediate result can only be registered after that result exists. So a graph that was recorded
while the counter stood still has no hooks, except on the parameters, which do show theirs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from trimol.gradients._graph import Graph


@dataclass
class _Counter:
    """The number of hooks when last looked at, and the youngest node when it was first seen."""

    hooks: int = 0
    node: int = -1


_seen = _Counter()


def possible(graph: Graph, params: Sequence[Tensor]) -> bool:
    """Whether a hook may sit between the losses and the parameters.

    "No" is certain for a graph that this thread recorded (PyTorch numbers nodes by thread).
    """
    if _seen.hooks != RemovableHandle.next_id:
        _seen.hooks, _seen.node = RemovableHandle.next_id, _youngest_node()
    if on_leaves(params):
        return True
    return _seen.node >= 0 and any(n._sequence_nr() <= _seen.node for n in graph.active)


def on_leaves(tensors: Sequence[Tensor]) -> bool:
    """Whether one of the tensors has a hook of its own."""
    return any(t._backward_hooks for t in tensors)


@contextmanager
def muted(leaves: Sequence[Tensor]) -> Iterator[None]:
    """Without the leaves' own hooks, which ``backward()`` will run on what it delivers."""
    held = [(t._backward_hooks, dict(t._backward_hooks)) for t in leaves if t._backward_hooks]
    for hooks, _ in held:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, kept in held:
            hooks.update(kept)


def _youngest_node() -> int:
    with torch.enable_grad():
        node = torch.zeros((), requires_grad=True).clone().grad_fn
    assert node is not None
    return node._sequence_nr()
