"""Hooks: functions of the user's that replace a gradient on its way through the graph.

Autograd runs them; a tangent that is carried past the graph would miss them. A node does not show
its hooks, but PyTorch numbers the hooks of a process with one counter, and a hook on an
intermediate result can only be registered after that result exists. So a graph that was recorded
while the counter stood still has no hooks, except on the parameters, which do show theirs.

Of any other graph a backward tells (`trimol.gradients._backward.heard`). What a hook does to the
gradient of one loss does not follow from what it does to others, or to their sum: it may clip. So
where one is heard, each loss needs a backward of its own.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from trimol.gradients._graph import Graph


class Watch(threading.local):
    """What a thread knows of hooks (PyTorch numbers nodes by thread).

    Attributes:
        hooks: The process's counter of hooks when this thread last looked at it.
        node: The thread's youngest node when the counter was first seen there: what is younger
            was recorded after the last hook was registered. −1 before any hook.
        mixed: Whether it was given nodes of other threads: then no number says anything.
    """

    hooks: int = 0
    node: int = -1
    mixed: bool = False

    def __repr__(self) -> str:
        return f"Watch(hooks={self.hooks}, node={self.node})"

    def look(self) -> None:
        """Take notice of hooks that were registered since the last look."""
        if self.hooks != RemovableHandle.next_id:
            self.hooks, self.node = RemovableHandle.next_id, _youngest_node()

    def pass_over(self, handle: RemovableHandle) -> None:
        """Do not look for this hook, which is on no graph, if it is the only one since."""
        if handle.id == self.hooks:
            self.hooks += 1


WATCH = Watch()


def possible(graph: Graph, watch: Watch = WATCH) -> bool:
    """Whether a hook may sit between the losses and the parameters.

    "No" is certain, but for a graph that another thread recorded before this one looked last.
    """
    watch.look()
    if on_leaves(graph.params):
        return True
    if watch.node < 0:  # no hook was ever registered
        return False
    inner = (graph.walked[step.number] for step in graph.plan.steps if step.sources)
    numbers = [node._sequence_nr() for node in inner]
    watch.mixed |= max(numbers, default=0) > _youngest_node()
    return watch.mixed or any(number <= watch.node for number in numbers)


def on_leaves(tensors: Sequence[Tensor]) -> bool:
    """Whether one of the tensors has a hook of its own."""
    return any(t._backward_hooks for t in tensors)


def change_gradients(tensors: Sequence[Tensor]) -> bool:
    """Whether a hook may change what arrives in ``.grad``, on its way or when it is there."""
    later = (getattr(t, "_post_accumulate_grad_hooks", None) for t in tensors)
    return on_leaves(tensors) or any(later)


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
