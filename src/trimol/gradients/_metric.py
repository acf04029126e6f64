"""Inner products of gradients as an optimizer's steps have them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._backward import gradient
from trimol.gradients._graph import Graph
from trimol.gradients._params import flattened, split, width_of
from trimol.gradients._product import directional
from trimol.gradients._rows import combined_wide, gram_of, products, spread_gram
from trimol.gradients._stepping import Momentum, Steps
from trimol.gradients._updates import Affine


class Metric:
    """GᵀSG and Gᵀk, with k and S those of the step with given weights, per unit of the lr.

    Args:
        steps: The optimizer.
        weights: λ: an optimizer whose k and S depend on the gradient is asked at G λ.
    """

    def __init__(self, steps: Steps, weights: Tensor) -> None:
        self.steps, self.weights = steps, weights

    def of_rows(
        self, rows: Tensor, params: Sequence[Tensor], *, spread: bool
    ) -> tuple[Tensor, Momentum]:
        """From gradients that are held; ``spread``: each process has its share of the columns."""
        at = combined_wide(self.weights, rows, rows.dtype)
        if spread:
            at = reduce.collected(at, sum(map(width_of, params)))
        whole = self._at(params, at)
        known, scale = map(reduce.share, whole) if spread else whole
        falls = products(rows, known[None])[:, 0]
        falls = reduce.sum_small(falls) if spread else falls
        return spread_gram(rows, spread, scale), Momentum(falls, _size(whole))

    def of_graph(self, graph: Graph, chunk: int) -> tuple[Tensor, Momentum]:
        """From a graph whose gradients are held ``chunk`` at a time: a backward and a pass more."""
        with hooks.muted(graph.params):
            parts = graph.joined(gradient(graph.losses, graph.params, self.weights))
        known, scale = whole = self._at(graph.given, flattened(parts))
        falls = reduce.mean_small(directional(graph, split(known, graph.params)).values)
        return gram_of(graph, chunk, scale), Momentum(falls.double(), _size(whole))

    def along(self, params: Sequence[Tensor], vector: Sequence[Tensor]) -> list[Tensor]:
        """The step with a gradient."""
        unit = self.steps.unit(params)
        return [part / unit for part in self.steps.taken(params, vector)]

    def _at(self, params: Sequence[Tensor], gradient: Tensor) -> Affine:
        known, scale = self.steps.flat(params)(gradient)
        unit = self.steps.unit(params)
        return Affine(known / unit, scale / unit)


def _size(step: Affine) -> Tensor:
    """kᵀS⁻¹k, of what moves."""
    parts = torch.where(step.scale > 0, step.known.square() / step.scale, 0.0)
    return parts.sum(dtype=torch.float64)
