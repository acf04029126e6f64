"""Forward mode along a graph that is already recorded: M directional derivatives in one pass.

``torch.func.jvp`` needs the model called again, as a function, under dual numbers. The losses that
a user hands us are tensors: the forward pass is over. But every node of the recorded graph holds
what its own derivative needs, so a tangent can be carried from the parameters up to the losses by
applying each node's Jacobian in turn. The cost is that of one forward pass with two products per
layer, whatever the number of losses, and no new graph is recorded.

`trimol.gradients._rules` says how a single node's Jacobian is applied.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor
from torch.autograd.graph import Node

from trimol.gradients._autocast import no_autocast
from trimol.gradients._checkpoints import within_a_backward
from trimol.gradients._graph import Graph
from trimol.gradients._rules import Tangents, carry


def push(
    graph: Graph,
    vectors: Sequence[Tensor | None],
    made: Mapping[Node, Tensor] = MappingProxyType({}),
) -> Tensor:
    """Directional derivative of the graph's losses: Gᵀv with G = ∇F (one column a loss).

    The direction v has one tensor for each of the graph's parameters; None stands for zero, or for
    what some nodes have ``made`` of it: the tangents of their first outputs. Raises `Unsupported`
    where a node on the way cannot carry tangents.
    """
    seeds: dict[int, dict[int, Tensor]] = {}
    for place, (number, output) in graph.plan.entrances.items():
        vector, dtype = vectors[place], graph.params[place].dtype
        if vector is not None:
            own = vector if vector.dtype == dtype else vector.to(dtype)
            seeds.setdefault(number, {})[output] = own
    if made:
        numbers = {node: number for number, node in enumerate(graph.walked)}
        seeds |= {numbers[node]: {0: tangent} for node, tangent in made.items()}
    if graph.recomputes:
        return within_a_backward(lambda: _carried(graph, seeds))
    return _carried(graph, seeds)


@no_autocast()
def _carried(graph: Graph, seeds: dict[int, dict[int, Tensor]]) -> Tensor:
    """The tangents of the losses, from those of some outputs of nodes."""
    nodes, losses = graph.walked, graph.losses
    # Nodes in the order of the forward pass; a tangent lives until its last reader has used it.
    live: list[Tangents | None] = [None] * len(nodes)
    with torch.no_grad():
        for number, sources, done in graph.plan.steps:
            if sources:
                incoming = tuple(
                    [e and live[e[0]][e[1]] for e in sources]  # type: ignore[index]
                )
                outgoing = carry(nodes[number], incoming)
                for each in done:
                    live[each] = None
                del incoming
            else:
                outgoing = (None,)  # a leaf is its seed
            own = seeds.get(number)
            live[number] = outgoing if own is None else _joined(outgoing, own)
    reached = live[0]
    result = None if reached is None else reached[losses.output_nr]
    return torch.zeros_like(losses) if result is None else result.to(losses.dtype)


def _joined(tangents: Tangents, seeds: dict[int, Tensor]) -> Tangents:
    """A node's tangents plus the direction given for its own outputs."""
    joined = list(tangents)
    for number, vector in seeds.items():
        have = joined[number]
        joined[number] = vector if have is None else have + vector
    return tuple(joined)
