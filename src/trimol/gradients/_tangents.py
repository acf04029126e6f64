"""Forward mode along a graph that is already recorded: M directional derivatives in one pass.

``torch.func.jvp`` needs the model called again, as a function, under dual numbers. The losses that
a user hands us are tensors: the forward pass is over. But every node of the recorded graph holds
what its own derivative needs, so a tangent can be carried from the parameters up to the losses by
applying each node's Jacobian in turn. The cost is that of one forward pass with two products per
layer, whatever the number of losses, and no new graph is recorded.

`trimol.gradients._rules` says how a single node's Jacobian is applied.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from trimol.gradients._checkpoints import within_a_backward
from trimol.gradients._graph import Graph
from trimol.gradients._rules import Tangents, carry


def push(graph: Graph, vectors: Sequence[Tensor]) -> Tensor:
    """Directional derivative of the graph's losses: Gᵀv with G = ∇F (one column a loss).

    The direction v has one tensor for each of the graph's parameters. Raises `Unsupported` where a
    node on the way cannot carry tangents.
    """
    seeds: dict[Node, dict[int, Tensor]] = {}
    for param, vector in zip(graph.params, vectors, strict=True):
        if id(param) in graph.entrances:
            node, number = graph.entrances[id(param)]
            seeds.setdefault(node, {})[number] = vector.to(param.dtype)
    return within_a_backward(lambda: _carried(graph, seeds))


def _carried(graph: Graph, seeds: dict[Node, dict[int, Tensor]]) -> Tensor:
    """The tangents of the losses, from those of some outputs of nodes."""
    losses = graph.losses
    # Nodes in the order of the forward pass; a tangent lives until its last reader has used it.
    order = [node for node in graph.nodes if node in graph.active]
    readers = Counter(source for node in order for source, _ in graph.edges[node])
    live: dict[Node, Tangents] = {}
    with torch.no_grad(), torch.autocast(losses.device.type, enabled=False):
        for node in order:
            sources = graph.edges[node]
            incoming = tuple(live[s][i] if s in live else None for s, i in sources)
            outgoing = carry(node, incoming) if sources else (None,)  # a leaf is its seed
            live[node] = _joined(outgoing, seeds[node]) if node in seeds else outgoing
            for source, _ in sources:
                if source in live:
                    readers[source] -= 1
                    if not readers[source]:
                        del live[source]
    root = get_gradient_edge(losses)
    result = live[root.node][root.output_nr] if root.node in live else None
    return torch.zeros_like(losses) if result is None else result.to(losses.dtype)


def _joined(tangents: Tangents, seeds: dict[int, Tensor]) -> Tangents:
    """A node's tangents plus the direction given for its own outputs."""
    joined = list(tangents)
    for number, vector in seeds.items():
        have = joined[number]
        joined[number] = vector if have is None else have + vector
    return tuple(joined)
