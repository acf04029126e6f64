"""The structure of a recorded graph, and what graphs of one structure have in common.

A training step records the graph of the step before, of other nodes. `walk` numbers the nodes and
writes down their kinds and who reads whom: the key of the structure. What follows from the
structure alone, the order of the nodes above all, is worked out once for each key. A graph that
is built otherwise has another key, so that no plan is used for a graph it was not made for.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node, get_gradient_edge

Kind = type | str
Key = tuple[Kind | int, ...]
# Nodes that are written in Python are all of one kind: a plan does not keep their classes alive.
PYTHON = "python"
_NAMELESS = "CppFunction"  # the type of nodes that have none of their own
_LEAF: Any = type(get_gradient_edge(torch.zeros((), requires_grad=True)).node)
_NONE = -1
# So many structures are remembered: those of a few models, or of one that varies.
REMEMBERED = 64


class Step(NamedTuple):
    """One node that depends on the parameters, where tangents are carried from node to node.

    Attributes:
        number: The node.
        sources: For each input the node and output that it comes from; None where nothing moves.
        done: The nodes that no later node reads.
    """

    number: int
    sources: tuple[tuple[int, int] | None, ...]
    done: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """What follows from a structure; nodes are numbered as `walk` meets them, the last one first.

    Attributes:
        order: Every node comes after the nodes it takes its inputs from.
        ends: Where the inputs of the last node come from.
        active: The nodes that depend on the parameters, those where one enters included.
        steps: The nodes that depend on the parameters, in that order.
        entrances: Where a parameter, by its place, enters: a node and the number of its output.
        others: The leaves that are not among the parameters, in that order.
        python: The nodes that are written in Python, in that order.
        saving: The nodes that save tensors, and the names of what they save.
        inner: The nodes that are no leaves.
        shared: The nodes, no leaves, that the parameters are reached through from several inputs of
            the last node, and from how many but one: what a stack's entries have in common.
    """

    order: tuple[int, ...]
    ends: tuple[tuple[int, int] | None, ...]
    active: frozenset[int]
    steps: tuple[Step, ...]
    entrances: Mapping[int, tuple[int, int]]
    others: tuple[int, ...]
    python: tuple[int, ...]
    saving: tuple[tuple[int, tuple[str, ...]], ...]
    inner: tuple[int, ...]
    shared: tuple[tuple[int, int], ...]


def made_by(vector: Tensor) -> Node:
    """The node that a tensor comes from; of a leaf, the one that its gradient is added up in."""
    node = vector.grad_fn
    return get_gradient_edge(vector).node if node is None else node


def is_stack(vector: Tensor) -> bool:
    """Whether the vector is a stack of scalars."""
    node = made_by(vector)
    return node.name() == "StackBackward0" and len(node.next_functions) == len(vector)


def walk(root: Node, params: Sequence[Any]) -> tuple[list[Node], Key]:
    """The nodes behind ``root``, numbered by their places in the list, and the structure's key.

    The key has for each node its kind, and the number of its inputs with the node and output that
    each comes from; of a leaf, its place among the parameters instead. In the end come the
    parameters inside of the graph.
    """
    places = {id(p): place for place, p in enumerate(params)}
    nodes: list[Any] = [root]
    numbers: dict[Any, int] = {None: _NONE, root: 0}
    key: list[Kind | int] = []
    add, number_of, count = key.append, numbers.setdefault, 1
    for node in nodes:  # which grows on the way
        kind = type(node)
        add(_KINDS.get(kind) or _kind(node))
        if kind is _LEAF:
            add(places.get(id(node.variable), _NONE))
            continue
        sources = node.next_functions
        add(len(sources))
        for source, output in sources:
            number = number_of(source, count)
            if number == count:
                nodes.append(source)
                count += 1
            add(number)
            add(output)
    for place, p in enumerate(params):
        if p.grad_fn is not None and p.grad_fn in numbers:
            key += [place, numbers[p.grad_fn], p.output_nr]
    return nodes, tuple(key)


_KINDS: dict[type, Kind] = {}


def _kind(node: Node) -> Kind:
    kind: type = type(node)
    if isinstance(node, BackwardCFunction):
        return PYTHON
    if kind.__name__ == _NAMELESS:
        return node.name()
    _KINDS[kind] = kind
    return kind


@functools.lru_cache(maxsize=REMEMBERED)
def plan_of(count: int, key: Key) -> Plan:
    """The plan of a structure of ``count`` nodes, from its key alone."""
    kinds, edges, leaves, entrances = _read(count, key)
    order = _sorted(edges)
    active = _active(order, edges, [number for number, _ in entrances.values()])
    return Plan(
        order=tuple(order),
        ends=edges[0],
        active=frozenset(active),
        steps=tuple(_steps(order, edges, active)),
        entrances=entrances,
        others=tuple(n for n in order if leaves.get(n) == _NONE),
        python=tuple(n for n in order if kinds[n] == PYTHON),
        saving=tuple((n, names) for n in order if (names := saved(kinds[n]))),
        inner=tuple(n for n in order if edges[n]),
        shared=tuple(_shared(order, edges, active)),
    )


Edges = list[tuple[tuple[int, int] | None, ...]]


def _read(
    count: int, key: Key
) -> tuple[list[Kind], Edges, dict[int, int], dict[int, tuple[int, int]]]:
    """A key, taken apart: kinds, edges, the leaves' places, and where parameters enter."""
    tokens: Any = iter(key)
    kinds: list[Kind] = []
    edges: Edges = []
    leaves: dict[int, int] = {}
    entrances: dict[int, tuple[int, int]] = {}
    for number in range(count):
        kinds.append(next(tokens))
        sources: list[tuple[int, int] | None] = []
        if kinds[-1] is _LEAF:
            place = leaves[number] = next(tokens)
            if place != _NONE:
                entrances[place] = (number, 0)
        else:
            for _ in range(next(tokens)):
                source, output = next(tokens), next(tokens)
                sources.append(None if source == _NONE else (source, output))
        edges.append(tuple(sources))
    for place in tokens:
        entrances[place] = (next(tokens), next(tokens))
    return kinds, edges, leaves, entrances


def _sorted(edges: Edges) -> list[int]:
    """All nodes, depth first, without recursion: those that a node reads come before it."""
    order: list[int] = []
    seen = [False] * len(edges)
    stack = [(0, False)]
    while stack:
        number, inputs_done = stack.pop()
        if inputs_done:
            order.append(number)
        elif not seen[number]:
            seen[number] = True
            stack.append((number, True))
            stack += [(e[0], False) for e in edges[number] if e is not None and not seen[e[0]]]
    return order


def _active(order: Sequence[int], edges: Edges, entered: Sequence[int]) -> set[int]:
    """The nodes that depend on the parameters, those where one enters included."""
    active = set(entered)
    for number in order:
        if any(edge is not None and edge[0] in active for edge in edges[number]):
            active.add(number)
    return active


def _steps(order: Sequence[int], edges: Edges, active: set[int]) -> list[Step]:
    """The active nodes, and when each is read for the last time."""
    sources = {
        n: tuple(e if e is not None and e[0] in active else None for e in edges[n])
        for n in order
        if n in active
    }
    readers = Counter(e[0] for own in sources.values() for e in own if e is not None)
    steps = []
    for number, own in sources.items():
        done = []
        for edge in own:
            if edge is not None:
                readers[edge[0]] -= 1
                if not readers[edge[0]]:
                    done.append(edge[0])
        steps.append(Step(number, own, tuple(done)))
    return steps


def _shared(order: Sequence[int], edges: Edges, active: set[int]) -> list[tuple[int, int]]:
    """The inner nodes behind several inputs of the last node, and behind how many but one."""
    behind = [0] * len(edges)  # a bit for each input
    for place, edge in enumerate(edges[0]):
        if edge is not None:
            behind[edge[0]] |= 1 << place
    for number in reversed(order):
        for edge in edges[number] if number else ():
            if edge is not None:
                behind[edge[0]] |= behind[number]
    inner = (n for n in order if edges[n] and n in active)
    return [(n, behind[n].bit_count() - 1) for n in inner if behind[n].bit_count() > 1]


@functools.cache
def saved(kind: Kind) -> tuple[str, ...]:
    """The tensors that nodes of a kind save, as torch wraps them."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
