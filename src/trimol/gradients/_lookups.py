"""Parameters that are only looked up, with sparse gradients: they get sparse ones from us, too.

``torch.optim.SparseAdam`` insists on a sparse gradient, and moves the rows that it names alone.
"""

from typing import Any

import torch
from torch import Tensor

from trimol.gradients._graph import Graph
from trimol.gradients._rules import known, signed

_LOOKUPS = frozenset({"EmbeddingBackward0", "EmbeddingBagBackward0"})


def looked_up(graph: Graph) -> dict[int, list[Tensor]]:
    """For each parameter, by its ``id``, whose gradient is sparse: the rows that are looked up."""
    places = {edge: number for number, edge in graph.entrances.items()}
    found: dict[int, list[Tensor]] = {}
    dense: set[int] = set()
    for node in graph.nodes:
        for edge in graph.edges[node]:
            number = places.get(edge)  # type: ignore[arg-type]
            if number is None:
                continue
            if _is_sparse(node):
                found.setdefault(number, []).append(_rows(node))
            else:
                dense.add(number)
    return {number: rows for number, rows in found.items() if number not in dense}


def _is_sparse(node: Any) -> bool:
    return node.name() in _LOOKUPS and known(node) and bool(node._saved_sparse)


def _rows(node: Any) -> Tensor:
    indices: Tensor = node._saved_indices.reshape(-1)
    return indices[indices != signed(node._saved_padding_idx)]


def sparse(gradient: Tensor, rows: list[Tensor]) -> Tensor:
    """A gradient with these rows alone; as it is, where others are not zero (a tracker's)."""
    some = torch.cat(rows).unique()
    values = gradient[some]
    if gradient.count_nonzero() != values.count_nonzero():
        return gradient
    return torch.sparse_coo_tensor(
        some[None], values, gradient.shape, is_coalesced=True, check_invariants=True
    )
