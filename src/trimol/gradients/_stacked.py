r"""What the losses of many replicas tell: one graph over parameters that are stacked, R × shape.

Loss (r, m) depends on the parameters of replica r alone. So one backward of a sum over replicas is
the gradient of every replica, and one forward-mode pass gives the directional derivatives of all
R·M losses: the engine of a single run serves R of them.

The Gramian needs M gradients of every replica, which are large, and no use but for their inner
products. Where a parameter W enters as x Wᵀ (a linear layer) or as x W, its gradients are
:math:`\nabla_W f_m = \delta_m^\top x` (or turned) with B rows each, and

.. math:: \langle \nabla_W f_i, \nabla_W f_j \rangle = \langle \delta_i,\ (x x^\top)\, \delta_j
          \rangle

so that the gradients themselves need not be formed where B is small beside the layer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from trimol.gradients._backward import gradient, pulled
from trimol.gradients._graph import Graph, record
from trimol.gradients._params import checked
from trimol.gradients._product import directional
from trimol.gradients._rows import gram, rounding
from trimol.gradients._rules import known, signed

# From so many numbers on, M backwards one by one are faster than one that is batched, which copies
# the weights M times; below, calling operators is what costs.
_LARGE = 2**19
# Nodes on a weight's way to its product that, with the shape left alone, leave it alone.
_SHAPES = {"ExpandBackward0", "ReshapeAliasBackward0", "ViewBackward0"}


class StackedEvidence:
    """Evidence of R replicas, from one R × M tensor of losses per draw.

    Args:
        draws: The losses.
        shared: The stacked parameters that the method weighs.
        others: Those that the method does not weigh (task heads).
        keeps: Which replicas are to keep their weights; None: none.

    Attributes:
        on_others: The gradients of ``others``, once `weigh_heads` was called.
    """

    def __init__(
        self,
        draws: Sequence[Tensor],
        shared: Sequence[Tensor],
        others: Sequence[Tensor] = (),
        *,
        keeps: Tensor | None = None,
    ) -> None:
        self.draws, self.shared, self.others = list(draws), list(shared), list(others)
        self.keeps = keeps
        checked([*shared, *others])
        self.on_others: Sequence[Tensor] = ()

    @property
    def rounding(self) -> float:
        """The ε of the gradients' dtype."""
        return rounding(self.shared)

    def values(self) -> Tensor:
        """The losses, R × M, in float64: the mean over the draws."""
        return torch.stack([draw.detach() for draw in self.draws]).double().mean(0)

    def gramian(self) -> Tensor:
        """GᵀG of the first draw, R × M × M, in float64."""
        return gramians(self.draws[0], self.shared)

    def product(self, weights: Tensor) -> Tensor:
        """G1ᵀ(G2 λ) of the first two draws (or twice the only one), R × M."""
        first, second = (draw.flatten() for draw in (*self.draws, *self.draws)[:2])
        vector = gradient(second, self.shared, weights.flatten())
        return directional(record(first, self.shared), vector).values.view_as(weights)

    def jacobian(self) -> Tensor:
        """Gᵀ of the first draw, R × M × d."""
        (draw,) = self.draws
        return jacobians(draw, self.shared)

    def combined(
        self, weights: Tensor, draws: slice = slice(None), *, retain: bool = False
    ) -> Sequence[Tensor]:
        """G λ, the mean over the draws: one stacked tensor per parameter.

        ``retain``: the graph is used again (as it is for ``others``, if there are any).
        """
        return self._gradient(self.shared, weights, draws, retain=retain or bool(self.others))

    def weigh_heads(self, weights: Tensor, draws: slice = slice(None)) -> None:
        """G λ on ``others``, the mean over the draws: the last use of the graph."""
        if self.others:
            self.on_others = self._gradient(self.others, weights, draws, retain=False)

    def _gradient(
        self, params: Sequence[Tensor], weights: Tensor, draws: slice, *, retain: bool
    ) -> Sequence[Tensor]:
        used = self.draws[draws] or self.draws
        share = weights.to(used[0]) / len(used)
        return pulled(used, params, [share] * len(used), retain=retain)


def jacobians(losses: Tensor, params: Sequence[Tensor]) -> Tensor:
    """∇Fᵀ of every replica, R × M × d, from R × M losses; the graph is kept."""
    rows = _rows(losses, params, params)
    return torch.cat([each.flatten(2).transpose(0, 1) for each in rows], -1)


def gramians(losses: Tensor, params: Sequence[Tensor]) -> Tensor:
    """∇Fᵀ∇F of every replica, R × M × M in float64, from R × M losses; the graph is kept."""
    replicas, objectives = losses.shape
    layers = _layers(record(losses.flatten(), params), params, objectives)
    rest = [p for p in params if id(p) not in layers]
    ends = [GradientEdge(node, 0) for node in layers.values()]
    rows = _rows(losses, [*ends, *rest], params)
    total = losses.new_zeros(replicas, objectives, objectives, dtype=torch.float64)
    for node, delta in zip(layers.values(), rows, strict=False):
        total += _through(node._saved_self, delta)
    for each in rows[len(ends) :]:
        total += gram(each.flatten(2).transpose(0, 1))  # of R × M × n
    return _consistent(total)


def _consistent(gramian: Tensor) -> Tensor:
    """With |Gᵢⱼ| ≤ √(Gᵢᵢ Gⱼⱼ): squares of tiny gradients vanish before products do."""
    norms = gramian.diagonal(dim1=-2, dim2=-1).sqrt()
    most = norms[..., :, None] * norms[..., None, :]
    return gramian.clamp(-most, most)


def _through(x: Tensor, delta: Tensor) -> Tensor:
    """⟨δᵢ, (x xᵀ) δⱼ⟩ per replica: x is R × B × in, δ is M × R × B × out."""
    delta = delta.transpose(0, 1).double()  # R × M × B × out
    turned = gram(x)[:, None] @ delta
    return delta.flatten(2) @ turned.flatten(2).mT


def _layers(graph: Graph, params: Sequence[Tensor], objectives: int) -> dict[int, Any]:
    """The product that each weight enters, by the weight's id, where that is worth knowing."""
    readers: dict[Node, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for place, (source, _) in enumerate(graph.edges[node]):
            if source is not None:
                readers.setdefault(source, []).append((node, place))
    entered = ((p, _product_of(p, graph, readers)) for p in params)
    return {
        id(p): node
        for p, node in entered
        if node is not None and _pays(node._saved_self.shape, p[0].numel(), objectives)
    }


def _product_of(
    p: Tensor, graph: Graph, readers: Mapping[Node, Sequence[tuple[Node, int]]]
) -> Any | None:
    """The batched product x Wᵀ or x W that p enters as W, if it enters nothing else."""
    if p.dim() != 3 or id(p) not in graph.entrances:
        return None
    node: Any = graph.entrances[id(p)][0]
    turned, place = False, 0
    while not graph.edges[node] or _keeps(node, p, turned):
        turned |= node.name() == "TransposeBackward0"
        following = readers.get(node, [])
        if len(following) != 1:
            return None
        node, place = following[0]
    is_product = node.name() == "BmmBackward0" and known(node) and place == 1
    return node if is_product and node._saved_self is not None else None


def _keeps(node: Any, p: Tensor, turned: bool) -> bool:
    """Whether a node on the way hands on all of W as it is, or turns it into Wᵀ once."""
    if node.name() == "TransposeBackward0" and known(node):
        swapped = {signed(node._saved_dim0) % 3, signed(node._saved_dim1) % 3}
        return not turned and swapped == {1, 2}
    shape = p.mT.shape if turned else p.shape
    return node.name() in _SHAPES and tuple(node._input_metadata[0].shape) == tuple(shape)


def _pays(x: torch.Size, size: int, objectives: int) -> bool:
    """Whether the way through x xᵀ takes fewer multiplications than forming M gradients."""
    _, rows, deep = x
    wide = size // deep
    return rows * (deep + objectives * wide) < objectives * wide * deep


def _rows(losses: Tensor, inputs: Sequence[Any], params: Sequence[Tensor]) -> list[Tensor]:
    """The M gradients with respect to each of the inputs, M × R × …; the graph is kept."""
    replicas, objectives = losses.shape
    units = torch.eye(objectives, dtype=losses.dtype, device=losses.device)
    each = units[:, None].expand(objectives, replicas, objectives)
    if max(p.numel() for p in params) < _LARGE:
        return pulled(losses, inputs, each, batched=True)
    one_by_one = [pulled(losses, inputs, one) for one in each]
    return [torch.stack(rows) for rows in zip(*one_by_one, strict=True)]
