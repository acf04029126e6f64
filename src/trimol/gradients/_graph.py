"""Walking the autograd graph that the forward pass recorded. It is read, never changed."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node, get_gradient_edge

from trimol._failures import BadValue
from trimol.gradients._compiled import is_compiled, keep_buffers
from trimol.gradients._reduce import is_distributed, mean_large
from trimol.gradients._sharded import Shards, check, current
from trimol.gradients._sinks import is_sink, muted

ACCUMULATE = "torch::autograd::AccumulateGrad"
REENTRANT = "CheckpointFunctionBackward"


@dataclass(frozen=True)
class Graph:
    """The recorded graph between some losses and parameters.

    Attributes:
        losses: What it leads to.
        given: The parameters, as the user has them.
        params: What the graph holds of them, where it is entered: the same tensors, unless they are
            sharded.
        nodes: Every node comes after the nodes it takes its inputs from; the last made the losses.
        edges: For each node, where its inputs came from.
        entrances: Where a parameter, by its ``id``, enters: a node and the number of its output.
        active: The nodes that depend on the parameters, those where a parameter enters included.
        others: The leaves that require a gradient and are not among the parameters.
        sinks: The nodes that end a forward pass of ``DistributedDataParallel``.
        compiled: The nodes that stand for compiled graphs.
        shards: How FSDP2 holds the parameters or the others, if it does.
    """

    losses: Tensor
    given: Sequence[Tensor]
    params: Sequence[Tensor]
    nodes: list[Node]
    edges: dict[Node, tuple[tuple[Node | None, int], ...]]
    entrances: dict[int, tuple[Node, int]]
    active: set[Node]
    others: list[Tensor]
    sinks: list[Node]
    compiled: list[Node]
    shards: Shards | None

    def apart(self) -> AbstractContextManager[None]:
        """Within, backwards are ours alone: no wrapper of the model takes part in them.

        Raises where the graph cannot be passed more than once.
        """
        if self.compiled:
            keep_buffers(self.compiled)
        return self._apart() if self.sinks or self.shards is not None else nullcontext()

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
        pairs = zip(self.given, self.params, strict=True)
        return {id(given) for given, leaf in pairs if id(leaf) in self.entrances}

    def shares(self, graph: "Graph") -> bool:
        """Whether a node, other than a leaf, belongs to both graphs."""
        return any(node in graph.edges for node, sources in self.edges.items() if sources)

    @property
    def rounding(self) -> float:
        """The coarsest rounding of what depends on the parameters (under autocast, half's)."""
        dtypes = {output.dtype.to_real() for node in self.active for output in outputs(node)}
        dtypes.add(self.losses.dtype)
        return max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)


def outputs(node: Node) -> Sequence[Any]:
    """Shape, type and device of a node's outputs; none where this release of torch hides them."""
    found: Sequence[Any] = getattr(node, "_input_metadata", ())
    return found


def record(losses: Tensor, given: Sequence[Tensor]) -> Graph:
    """Read the graph between ``losses`` and parameters, depth first, without recursion."""
    shards = current()
    params = given if shards is None else [shards.leaf(p) for p in given]
    leaves = {id(p) for p in params}
    # A parameter inside the graph says where it enters; a leaf's node is met on the way.
    entrances = {id(p): (p.grad_fn, p.output_nr) for p in params if p.grad_fn is not None}
    active = {node for node, _ in entrances.values()}
    nodes: list[Node] = []
    edges: dict[Node, tuple[tuple[Node | None, int], ...]] = {}
    others: list[Tensor] = []
    sinks: list[Node] = []
    compiled: list[Node] = []
    stack: list[tuple[Node, bool]] = [(get_gradient_edge(losses).node, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            nodes.append(node)
            if any(source in active for source, _ in edges[node]):
                active.add(node)
        elif node not in edges:
            sources = edges[node] = node.next_functions
            stack.append((node, True))
            for source, _ in sources:
                if source is not None and source not in edges:
                    stack.append((source, False))
            if isinstance(node, BackwardCFunction):
                _check_checkpoint(node)
                if is_compiled(node):
                    compiled.append(node)
                if is_sink(node):
                    sinks.append(node)
            elif not sources and node.name() == ACCUMULATE:
                leaf: Tensor = node.variable  # type: ignore[attr-defined]
                if id(leaf) in leaves:
                    entrances[id(leaf)] = (node, 0)
                    active.add(node)
                else:
                    others.append(leaf)
    check(others, "parameters that losses reach", leaves=True)
    if shards is not None and not shards.gathered.keys() & {id(t) for t in (*params, *others)}:
        shards = None  # of another model
    graph = Graph(
        losses, given, params, nodes, edges, entrances, active, others, sinks, compiled, shards
    )
    if shards is not None:
        shards.check(given, graph.reached, others)
    return graph


def _check_checkpoint(node: Node) -> None:
    if node.name() == REENTRANT:
        raise BadValue(
            "losses pass through torch.utils.checkpoint with use_reentrant=True, which hides its "
            "parameters from torch.autograd.grad: set use_reentrant=False"
        )
