"""Walking the autograd graph that the forward pass recorded. It is read, never changed."""

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from trimol._failures import BadValue
from trimol.gradients._checkpoints import explained
from trimol.gradients._compiled import is_compiled, keep_buffers, saved_types
from trimol.gradients._reduce import is_distributed, mean_large
from trimol.gradients._sharded import Shards, check, current
from trimol.gradients._sinks import is_sink, muted
from trimol.gradients._structure import Plan, is_stack, made_by, plan_of, walk

# What stands for the hook of a saved tensor where this release of torch does not show it.
TELLS = "hidden"
REENTRANT = "CheckpointFunctionBackward"
# Losses are separate that have at most this share of their graphs in common.
SEPARATE = 0.1


@dataclass(frozen=True, eq=False)
class Graph:
    """The recorded graph between some losses and parameters.

    Attributes:
        losses: What it leads to.
        given: The parameters, as the user has them.
        params: What the graph holds of them, where it is entered: the same tensors, unless they are
            sharded.
        walked: The nodes, numbered as the plan has them; the first made the losses.
        plan: What follows from the structure of the graph.
        others: The leaves that require a gradient and are not among the parameters.
        sinks: The nodes that end a forward pass of ``DistributedDataParallel``.
        compiled: The nodes that stand for compiled graphs.
        shards: How FSDP2 holds the parameters or the others, if it does.
    """

    losses: Tensor
    given: Sequence[Tensor]
    params: Sequence[Tensor]
    walked: list[Node]
    plan: Plan
    others: list[Tensor]
    sinks: list[Node]
    compiled: list[Node]
    shards: Shards | None

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """Every node comes after the nodes it takes its inputs from; the last made the losses."""
        return [self.walked[number] for number in self.plan.order]

    @functools.cached_property
    def edges(self) -> dict[Node, tuple[tuple[Node | None, int], ...]]:
        """For each node, where its inputs came from."""
        return {node: node.next_functions for node in self.nodes}

    @functools.cached_property
    def entrances(self) -> dict[int, tuple[Node, int]]:
        """Where a parameter, by its ``id``, enters: a node and the number of its output."""
        entrances = self.plan.entrances.items()
        return {id(self.params[p]): (self.walked[node], output) for p, (node, output) in entrances}

    @functools.cached_property
    def active(self) -> set[Node]:
        """The nodes that depend on the parameters, those where a parameter enters included."""
        return {self.walked[step.number] for step in self.plan.steps}

    @functools.cached_property
    def recomputes(self) -> bool:
        """Whether saved tensors may be computed again when they are read: checkpoints'."""
        for number, names in self.plan.saving:
            node = self.walked[number]
            for name in names:
                if getattr(getattr(node, name), "unpack_hook", TELLS) is not None:
                    return True
        return False

    @functools.cached_property
    def overlap(self) -> float:
        """What is passed again by backwards of one loss after another: 1 is one of all of them.

        0 where the losses have nothing but leaves in common, M - 1 where they were computed as one
        vector. Counted by nodes and, where these say little, by what they read and make: not timed,
        so that a resumed run finds the same.
        """
        if not is_stack(self.losses) or None in self.plan.ends or self.losses._backward_hooks:
            return len(self.losses) - 1
        shared, inner = self.plan.shared, self.plan.inner
        again = sum(often for _, often in shared) / len(inner)
        if not 0 < again <= SEPARATE:
            return again
        sizes = {number: _size(self.walked[number]) for number in inner}
        total = sum(sizes.values())
        if math.isinf(total):
            return len(self.losses) - 1
        return max(again, sum(often * sizes[number] for number, often in shared) / total)

    @property
    def is_separate(self) -> bool:
        """Whether a backward of each loss is, together, hardly more than one of them all."""
        return self.overlap <= SEPARATE

    def apart(self) -> AbstractContextManager[None]:
        """Within, backwards are ours alone: no wrapper of the model takes part in them.

        Raises where the graph cannot be passed more than once.
        """
        if self.compiled:
            keep_buffers(self.compiled)
        return self._apart() if self.is_wrapped else nullcontext()

    @property
    def is_wrapped(self) -> bool:
        """Whether a wrapper of the model would take part in a backward, or compiled code."""
        return bool(self.sinks or self.compiled) or self.shards is not None

    @contextmanager
    def _apart(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(muted(self.sinks))
            if self.shards is not None:
                stack.enter_context(self.shards.held([*self.params, *self.others]))
            yield

    def widened(self, gradients: list[Tensor]) -> list[Tensor]:
        """Gradients of the parameters, in the types of the given ones.

        A sharded parameter may be gathered in another type than it is kept in.
        """
        if self.shards is None:
            return gradients
        return [x.to(p.dtype) for x, p in zip(gradients, self.given, strict=True)]

    def joined(self, gradients: list[Tensor]) -> Sequence[Tensor]:
        """Gradients of the parameters, widened: their means over the processes."""
        return mean_large(self.widened(gradients))

    @property
    def spreads(self) -> bool:
        """Whether every process is to hold its share of all gradients, as of the parameters."""
        return self.shards is not None and is_distributed()

    @property
    def reached(self) -> set[int]:
        """The given parameters, by their ``id``, that the losses depend on."""
        return {id(self.given[place]) for place in self.plan.entrances}

    @property
    def rounding(self) -> float:
        """The coarsest rounding of what depends on the parameters (under autocast, half's)."""
        dtypes = {output.dtype.to_real() for node in self.active for output in outputs(node)}
        dtypes |= {self.losses.dtype, *saved_types(self.compiled)}
        return max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)


def outputs(node: Node) -> Sequence[Any]:
    """Shape, type and device of a node's outputs; none where this release of torch hides them."""
    found: Sequence[Any] = getattr(node, "_input_metadata", ())
    return found


def _size(node: Node) -> float:
    """How many numbers a node reads and makes; infinitely many where torch does not say."""
    around = [node, *(source for source, _ in node.next_functions if source is not None)]
    shapes = [output.shape for each in around for output in outputs(each)]
    known = shapes and all(isinstance(length, int) for shape in shapes for length in shape)
    return sum(map(math.prod, shapes)) if known else math.inf


def record(losses: Tensor, given: Sequence[Tensor]) -> Graph:
    """Read the graph between ``losses`` and parameters."""
    shards = current()
    params = given if shards is None else [shards.leaf(p) for p in given]
    walked, key = walk(made_by(losses), params)
    plan = plan_of(len(walked), key)
    others: list[Tensor] = [walked[number].variable for number in plan.others]  # type: ignore[attr-defined]
    if others:
        check(others, "parameters that losses reach", leaves=True)
    if shards is not None and not shards.gathered.keys() & {id(t) for t in (*params, *others)}:
        shards = None  # of another model
    python = [walked[number] for number in plan.python]
    for node in python:
        _check_checkpoint(node)
    for number, names in plan.saving[:1]:  # a backward frees all that it passes
        _check_kept(walked[number], names)
    sinks, compiled = [*filter(is_sink, python)], [*filter(is_compiled, python)]
    graph = Graph(losses, given, params, walked, plan, others, sinks, compiled, shards)
    if shards is not None:
        shards.check(given, graph.reached, others)
    return graph


def _check_kept(node: Node, names: Sequence[str]) -> None:
    """Raise if a backward has freed what a node saves."""
    for name in names:
        if getattr(getattr(node, name), "unpack_hook", TELLS) is None:  # else it is computed again
            with explained():
                getattr(node, name.removeprefix("_raw"))


def _check_checkpoint(node: Node) -> None:
    if node.name() == REENTRANT:
        raise BadValue(
            "losses pass through torch.utils.checkpoint with use_reentrant=True, which hides its "
            "parameters from torch.autograd.grad: set use_reentrant=False"
        )
