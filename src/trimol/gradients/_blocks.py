"""Gradients too large to be held all at once: those of one block of the parameters after another.

G = Σ_B J_B J_Bᵀ over blocks B of the parameters, and a network is a chain of blocks. Where a single
tensor connects two parts of the graph, M backwards of the upper part leave the gradients of its
parameters, which can be multiplied and freed, and M gradients of that tensor, from which the part
below goes on. In all that is M backwards, as ever. A parameter that is used again further down
(tied embeddings) is one block's with all its uses, where the others are transposed views of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._backward import dense, differentiated
from trimol.gradients._graph import Graph, outputs
from trimol.gradients._params import as_real, width_of

# So many entries of all M gradients are held at once: 1 GB of float32.
HELD_ENTRIES = 2**28
# A block ends before it has more parameters than this, where the graph allows it.
BLOCK_ENTRIES = 2**23


@dataclass(frozen=True)
class Block:
    """A part of the graph.

    Attributes:
        tops: Where the gradients of the losses come in: from the block above, and of the views of
            its parameters that were used further up.
        bottom: Where they go on; None in the last block.
        params: The parameters that it uses and no block below; or where the gradient of what a
            layer makes of one arrives (:mod:`trimol.gradients._factors`).
        views: Views, used here, of parameters of a block below.
    """

    tops: Sequence[GradientEdge]
    bottom: GradientEdge | None
    params: Sequence[Tensor | GradientEdge]
    views: Sequence[GradientEdge]


def whole(graph: Graph) -> Block:
    """A graph as one block."""
    return Block([get_gradient_edge(graph.losses)], None, graph.params, [])


def fits(graph: Graph) -> bool:
    """Whether all gradients may be held."""
    return len(graph.losses) * sum(map(width_of, graph.params)) <= HELD_ENTRIES


def blocks(graph: Graph, used_at: Mapping[int, Node] = MappingProxyType({})) -> list[Block]:
    """The parts of a graph, from the losses down; none where it has to be passed as a whole.

    So it is where all gradients may be held; where several processes would have to agree; where a
    hook may sit, which would run in the part above and in the part below; and where no single
    tensor connects two parts.

    Args:
        graph: Of the losses.
        used_at: For parameters, by their ``id``, the node in whose block they are to be: else, that
            of the first use, be it only a view.
    """
    if fits(graph) or reduce.is_distributed() or graph.shards is not None:
        return []
    if hooks.possible(graph) or not all(p.is_leaf for p in graph.params):
        return []
    found = _cut(graph, used_at)
    return found if len(found) > 1 else []


def gradients_by_blocks(graph: Graph, parts: Sequence[Block]) -> Iterator[Sequence[Tensor | None]]:
    """For one parameter after another the gradients of all losses; None is zero.

    As autograd has made them, those of one block at a time: rows to copy them into would be new
    memory, whose first touch costs more than multiplying them.
    """
    losses = graph.losses
    root = get_gradient_edge(losses)
    units = torch.eye(len(losses), dtype=losses.dtype, device=losses.device)
    cotangents: list[Cotangents] = [{_key(root): unit} for unit in units]
    for part in parts:
        found = [_pulled(part, own) for own in cotangents]
        for gradients in zip(*found, strict=True):
            yield [None if g is None else as_real(dense(g)) for g in gradients]
        del found  # before the next are made


Cotangents = dict[tuple[Node, int], Tensor]


def _key(edge: GradientEdge) -> tuple[Node, int]:
    return edge.node, edge.output_nr


def _pulled(part: Block, cotangents: Cotangents) -> Sequence[Tensor | None]:
    """The gradients of a block's parameters; None is zero. Cotangents are now those below it."""
    arrived = [(edge, cotangents.pop(_key(edge))) for edge in part.tops if _key(edge) in cotangents]
    leaving = [*part.views, *([] if part.bottom is None else [part.bottom])]
    if not arrived or not (part.params or leaving):
        return [None] * len(part.params)
    tops, given = zip(*arrived, strict=True)
    inputs: list[Any] = [*part.params, *leaving]
    found = differentiated(tops, inputs, given, retain_graph=True, allow_unused=True)
    for edge, gradient in zip(leaving, found[len(part.params) :], strict=True):
        if gradient is not None:
            cotangents[_key(edge)] = gradient
    return found[: len(part.params)]


def _cut(graph: Graph, used_at: Mapping[int, Node]) -> list[Block]:
    """Blocks between tensors that are the only way down, as even as these allow."""
    order = _as_recorded(graph)
    place = {node: i for i, node in enumerate(order)}
    sources = ((s, at) for node, at in place.items() for s, _ in graph.edges[node])
    if any(source is not None and place.get(source, -1) >= at for source, at in sources):
        return []  # recorded by several threads, each of which has counted for itself
    uses = _uses(graph, place) | {number: [place[node]] for number, node in used_at.items()}
    lowest = {id(p): min(uses[id(p)]) for p in graph.params if id(p) in uses}
    widths = [0] * len(order)
    for p in graph.params:
        if id(p) in lowest:
            widths[lowest[id(p)]] += width_of(p)
    waists = _waists(graph, order, place, uses)
    cuts = [(len(order), get_gradient_edge(graph.losses)), *_chosen(waists, widths), (0, None)]
    found: list[Block] = []
    used_above: list[tuple[int, GradientEdge]] = []  # a parameter's lowest place, and a view of it
    for (above, top), (below, bottom) in pairwise(cuts):
        assert top is not None
        own = [p for p in graph.params if below <= lowest.get(id(p), -1) < above]
        views = [
            (lowest[number], GradientEdge(order[at], 0))
            for number, places in uses.items()
            for at in places
            if below <= at < above and lowest[number] < below
        ]
        entering = [edge for at, edge in used_above if below <= at]
        used_above = [(at, edge) for at, edge in used_above if at < below] + views
        found.append(Block([top, *entering], bottom, own, [edge for _, edge in views]))
    return found


def _as_recorded(graph: Graph) -> list[Node]:
    """The nodes on the way to the parameters, in the order of the forward pass, without leaves."""
    inner = [node for node in graph.nodes if node in graph.active and graph.edges[node]]
    return sorted(inner, key=lambda node: node._sequence_nr())


def _uses(graph: Graph, place: dict[Node, int]) -> dict[int, list[int]]:
    """Where each parameter, by its ``id``, is used."""
    leaves = {graph.entrances[id(p)][0]: id(p) for p in graph.params if id(p) in graph.entrances}
    uses: dict[int, list[int]] = {}
    for node, at in place.items():
        for source, _ in graph.edges[node]:
            if source in leaves:
                uses.setdefault(leaves[source], []).append(at)
    return uses


def _is_view(graph: Graph, node: Node) -> bool:
    """Whether a node makes one tensor of a parameter and of nothing else."""
    return len(graph.edges[node]) == 1 and len(outputs(node)) == 1


def _waists(
    graph: Graph, order: Sequence[Node], place: dict[Node, int], uses: dict[int, list[int]]
) -> list[tuple[int, GradientEdge]]:
    """Places at which a single output of a node leads from what is below to what is above."""
    reach: dict[tuple[Node, int], int] = {}  # an output → its last reader
    for at, node in enumerate(order):
        for source, number in graph.edges[node]:
            if source in place:
                reach[source, number] = at
    spans: list[tuple[int, int, tuple[Node, int] | None]]
    spans = [(place[edge[0]], last, edge) for edge, last in reach.items()]
    for places in uses.values():
        if fixed := [at for at in places if not _is_view(graph, order[at])]:
            spans.append((min(places), max(fixed), None))  # nothing can be cut between
    starts: dict[int, list[tuple[int, tuple[Node, int] | None]]] = {}
    steps = [0] * (len(order) + 1)
    for first, last, edge in spans:
        starts.setdefault(first, []).append((last, edge))
        steps[first + 1] += 1
        steps[last + 1] -= 1
    found = []
    alone: tuple[int, tuple[Node, int] | None] = (-1, None)
    for at, crossing in enumerate(accumulate(steps[:-1])):
        # What crosses alone is what is read last of all that began below.
        alone = max([alone, *starts.get(at - 1, ())], key=lambda span: span[0])
        if crossing == 1 and alone[1] is not None:
            found.append((at, GradientEdge(*alone[1])))
    return found


def _chosen(
    waists: Sequence[tuple[int, GradientEdge]], widths: Sequence[int]
) -> list[tuple[int, GradientEdge]]:
    """From the top down, the last waist before a block would grow too large."""
    chosen: list[tuple[int, GradientEdge]] = []
    held, top = 0, len(widths)
    candidate: tuple[int, GradientEdge] | None = None
    for at, edge in [*reversed(waists), (0, None)]:
        width = sum(widths[at:top])
        if candidate is not None and held and held + width > BLOCK_ENTRIES:
            chosen.append(candidate)
            held = 0
        held, top = held + width, at
        candidate = None if edge is None else (at, edge)
    return chosen
