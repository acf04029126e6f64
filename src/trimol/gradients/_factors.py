r"""Gramians and products of large linear layers without the gradients of their weights.

Of y = x Wᵀ, with N rows x, the gradient of loss m is D_mᵀ x, where D_m is that of y. The inner
product of two of them needs neither,

.. math:: ⟨D_m^⊤ x, D_n^⊤ x⟩ = ⟨x x^⊤ D_m, D_n⟩,

and x xᵀ is N × N. Where a batch has far fewer rows than the layer has inputs, that is less work,
and much less memory, than M gradients of the size of W: the backwards skip them, and the one of the
final weights is left to the user's ``backward()``. Multiplied and summed in float64.

Nor does the derivative of another batch's y₁ = x₁ Wᵀ along such a gradient, that of `product`:

.. math:: x_1 (D^⊤ x)^⊤ = (x_1 x^⊤)\, D.

Where one of the batches uses W and the other Wᵀ, it is :math:`(x_1 D^⊤)\, x`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._checkpoints import explained
from trimol.gradients._graph import Graph
from trimol.gradients._params import width_of
from trimol.maths._numerics import float64

# For a node's name: which of its inputs is the weight, and where it keeps x.
_LAYERS = {"AddmmBackward0": (2, "_saved_mat1"), "MmBackward0": (1, "_saved_self")}
# In multiplications of float32: what it takes to write an entry of a gradient and to read it again,
# and a multiplication in float64 (measured: `benchmarks/step_cost.py`, the wide MLPs).
TOUCHED, WIDE = 100, 4
# Of fewer parameters, gradients are made in the cache.
SMALLEST = 2**17
# A product leaves out the gradients of layers of so many entries.
FEWEST = 2**14
# So many of the parameters must be in such layers: what a backward of others takes is not known.
MOST = 0.95
# So many entries are widened at a time: 2 MB of float64.
WIDENED_ENTRIES = 2**18


@dataclass(frozen=True)
class Layer:
    """A linear layer.

    Attributes:
        weight: Its parameter, which nothing else uses.
        edge: Where the gradient of what it makes arrives.
        inputs: x, N × in.
        turned: Whether it multiplies by Wᵀ, as ``nn.Linear``, or by W.
    """

    weight: Tensor
    edge: GradientEdge
    inputs: Tensor
    turned: bool

    def direct(self, losses: int) -> float:
        """What the gradients of its weight, and their inner products, cost."""
        return losses * width_of(self.weight) * (len(self.inputs) + TOUCHED)

    def factored(self, losses: int) -> float:
        """What it costs to do without."""
        rows, size = self.inputs.shape
        out = width_of(self.weight) // size
        return WIDE * rows * (rows * size + losses * out * (rows + losses))

    @property
    def once(self) -> float:
        """What a backward through it costs."""
        return width_of(self.weight) * (2 * len(self.inputs) + TOUCHED)

    def moved(self, other: "Layer", cotangent: Tensor) -> Tensor:
        """How what it makes moves along the gradient of its weight on another batch."""
        if self.turned == other.turned:
            return self.inputs @ other.inputs.T @ cotangent
        return self.inputs @ cotangent.T @ other.inputs

    def gramian(self, cotangents: Sequence[Tensor]) -> Tensor:
        """The inner products of its weight's gradients, from those of what it made, N × out."""
        count, rows = len(cotangents), len(self.inputs)
        kernel = float64(self.inputs.new_zeros(rows, rows))
        for piece in self.inputs.split(_width(rows), 1):
            wide = float64(piece)
            kernel.addmm_(wide, wide.T)
        total = float64(kernel.new_zeros(count, count))
        for pieces in zip(*(own.split(_width(count * rows), 1) for own in cotangents), strict=True):
            wide = float64(torch.stack(pieces))
            total += (kernel @ wide).flatten(1) @ wide.flatten(1).T
        return total


def layers(graph: Graph, *, held: bool) -> dict[int, Layer]:
    """The layers of a graph, by their weights' ``id``, whose gradients need not be made.

    None where that would not pay: decided by sizes alone, so that a resumed run finds the same.
    And none where several processes would have to join the gradients, where a hook may sit on what
    a layer makes, where saved tensors are computed again, and on accelerators.

    Args:
        graph: Of the losses.
        held: Whether all gradients would else be held, and no backward be left to do.
    """
    count, entries = len(graph.losses), sum(map(width_of, graph.params))
    if entries < SMALLEST or not _allows(graph) or graph.is_separate:
        return {}
    found = [own for own in _linear(graph) if own.factored(count) < own.direct(count)]
    if sum(width_of(own.weight) for own in found) < MOST * entries:
        return {}
    gained = sum(own.direct(count) - own.factored(count) for own in found)
    if held and gained <= sum(own.once for own in found):
        return {}
    return {id(own.weight): own for own in found}


def common(first: Graph, second: Graph) -> list[tuple[Layer, Layer]]:
    """The layers of two batches whose gradients on the second need not be made for a product.

    Where that pays, and is possible, as for `layers`: each layer on its own.
    """
    if sum(map(width_of, second.params)) < SMALLEST or first.plan.python:
        return []
    if not all(_allows(graph) for graph in {first, second}):
        return []
    others = {id(own.weight): own for own in _linear(second)}
    pairs = [(own, others[id(own.weight)]) for own in _linear(first) if id(own.weight) in others]
    return [(one, two) for one, two in pairs if _pays(one, two)]


def saved(pairs: Sequence[tuple[Layer, Layer]], params: Sequence[Tensor]) -> float:
    """What these layers save of a product, in backwards: of all layers one, if factors were free.

    Half of the backward is the gradients of weights, and half of the tangent pass their use.
    """
    own = 0.0
    for one, two in pairs:
        factored, direct = _multiplications(one, two)
        own += width_of(two.weight) * max(1 - factored / direct, 0.0)
    return own / sum(map(width_of, params))


def _multiplications(one: Layer, two: Layer) -> tuple[int, int]:
    """Of (x₁xᵀ)D, or (x₁Dᵀ)x; and of Dᵀx and x₁ times that."""
    (rows, inputs), (others, _) = two.inputs.shape, one.inputs.shape
    entries = width_of(two.weight)
    return others * rows * (inputs + entries // inputs), entries * (others + rows)


def _pays(one: Layer, two: Layer) -> bool:
    """Whether factors are less work, what is written and read again counted."""
    factored, direct = _multiplications(one, two)
    entries = width_of(two.weight)
    return entries >= FEWEST and factored < direct + entries * TOUCHED


def _allows(graph: Graph) -> bool:
    """Whether gradients of layers may be left out; what looks at every node comes last."""
    # Nothing of it was measured on accelerators, float64 least of all.
    if reduce.is_distributed() or graph.is_wrapped or graph.losses.device.type != "cpu":
        return False
    return not hooks.possible(graph) and not graph.recomputes


def passes(found: Sequence[Layer], losses: int) -> float:
    """What the Gramian costs in backwards: one that skips the weights is half of one."""
    return losses / 2 + sum(own.factored(losses) for own in found) / sum(own.once for own in found)


def _linear(graph: Graph) -> list[Layer]:
    """The linear layers whose weight nothing else uses."""
    readers: dict[Node, list[tuple[Node, int]]] = {}
    for node, sources in graph.edges.items():
        for place, (source, _) in enumerate(sources):
            if source is not None:
                readers.setdefault(source, []).append((node, place))
    found = []
    for param in graph.params:
        if id(param) not in graph.entrances or not _is_plain(param):
            continue
        entrance, _ = graph.entrances[id(param)]
        uses = readers.get(entrance, [])
        turned = len(uses) == 1 and uses[0][0].name() == "TBackward0"
        if turned:
            uses = readers.get(uses[0][0], [])
        if len(uses) != 1:
            continue
        (node, place), (where, name) = uses[0], _LAYERS.get(uses[0][0].name(), (-1, ""))
        if place == where and getattr(node, "_saved_alpha", 1) == 1:
            with explained():
                inputs: Tensor = getattr(node, name).detach()
            plain = inputs.dtype == param.dtype and inputs.layout is torch.strided
            if plain and inputs.numel() and param.numel():  # an expert may get no rows
                found.append(Layer(param, GradientEdge(node, 0), inputs, turned))
    return found


def _is_plain(param: Tensor) -> bool:
    """Whether the gradient is a matrix that is not rounded on its way to the parameter."""
    return param.is_leaf and param.dim() == 2 and param.dtype in (torch.float32, torch.float64)


def _width(rows: int) -> int:
    """How many columns of so many rows to widen at a time."""
    return max(WIDENED_ENTRIES // max(rows, 1), 16)
