"""Jacobians and Gramians of losses: one backward per objective, in blocks of bounded memory.

A block of rows is computed by a loop of backwards, or as one batched backward
(``is_grads_batched``) where that is the faster of the two: on an accelerator, and for networks so
small that the time goes into calling operators rather than into arithmetic. Both are exact.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from trimol._failures import BadValue
from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import pulled
from trimol.gradients._blocks import Block, blocks, fits, gradients_by_blocks, whole
from trimol.gradients._factors import Layer, layers
from trimol.gradients._graph import Graph, outputs, record
from trimol.gradients._params import as_real, checked, common_dtype, trainable, width_of
from trimol.gradients._sinks import passes
from trimol.gradients.losses import Losses, as_vector, entries
from trimol.maths._numerics import float64

# On a CPU a batched block pays while it fits in the cache (1 MB of float32): its rows, and each of
# the intermediate gradients on the way to them (measured: benchmarks/rows.py).
CACHED_ENTRIES = 2**18
USUAL = 0.95  # so many of the intermediate gradients: a recurrent layer has hundreds of small ones
SMALLEST_BATCH = 4
LARGEST_BATCH = 32
# Nodes of which torch's batched backward is wrong, where an output besides the first is used.
_WRONG_BATCHES = frozenset({"NativeGroupNormBackward0"})
# A Gramian widens so many entries at a time to float64: 512 KB, which stay in the cache.
WIDENED_ENTRIES = 2**16


@no_autocast()
def jacobian(losses: Losses, params: Iterable[Tensor], *, chunk: int | None = None) -> Tensor:
    r"""The M × d Jacobian: row m is :math:`\nabla f_m`, flattened in the order of ``params``.

    A complex parameter counts as pairs of real numbers.

    Under an initialised ``torch.distributed`` group it is that of the global batch.

    Args:
        losses: A 1-D tensor with one entry per objective, or a sequence of scalars.
        params: The parameters. Where no gradient arrives (frozen, unused) the columns are zero.
        chunk: How many objectives to differentiate at once, at most; bounds the memory taken
            beyond the result. ``None`` is all of them.

    Example:
        >>> import torch
        >>> from trimol.gradients import jacobian
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> jacobian([x.sum(), x.prod()], [x])
        tensor([[1., 1.],
                [2., 1.]])
    """
    graph = record(as_vector(losses), checked(params, real=False))
    with graph.apart():
        return _jacobian(graph, checked_chunk(chunk, graph))


def _jacobian(graph: Graph, size: int) -> Tensor:
    """The Jacobian of a graph, of gradients that are held ``size`` at a time."""
    if size >= len(graph.losses):
        return all_rows(graph)
    result = _empty(len(graph.losses), graph)
    for start, rows in row_blocks(graph, size):
        result[start : start + size] = rows
        del rows  # before the next block is made
    return result


@no_autocast()
def gramian(losses: Losses, params: Iterable[Tensor], *, chunk: int | None = None) -> Tensor:
    r"""The M × M Gramian :math:`G^\top G` of the gradients: entry (i, j) is ⟨∇f_i, ∇f_j⟩.

    Multiplied and summed in float64, whatever the gradients' dtype: in float32 the noise of long
    or dependent gradients would be what a solver sees. Under an initialised ``torch.distributed``
    group the gradients are those of the global batch.

    Args:
        losses: A 1-D tensor with one entry per objective, or a sequence of scalars.
        params: The parameters.
        chunk: How many gradients to hold at once, at most. With fewer than M, gradients are
            computed anew for each pair of blocks: memory for 2·chunk gradients instead of M, for
            (M/chunk + 1)/2 times the backwards. ``None`` is all of them, and of more than 2²⁸
            entries (1 GB of float32) those of one layer after another, where layers form a chain;
            of large linear layers and small batches, none (:mod:`trimol.gradients._factors`).

    Example:
        >>> import torch
        >>> from trimol.gradients import gramian
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> gramian([x.sum(), x.prod()], [x])
        tensor([[2., 3.],
                [3., 5.]], dtype=torch.float64)
    """
    graph = record(as_vector(losses), checked(params, real=False))
    with graph.apart():
        return gram_of(graph, checked_chunk(chunk, graph))


def gram_of(graph: Graph, chunk: int, scale: Tensor | None = None) -> Tensor:
    """The Gramian of a graph, of gradients that are held ``chunk`` at a time; see `gram`."""
    size, spread = len(graph.losses), graph.spreads
    scale = reduce.share(scale) if spread and scale is not None else scale
    if chunk >= size:
        if scale is None and (parts := parts_of(graph)):
            return gram_by_parts(graph, parts)
        return spread_gram(all_rows(graph, spread=spread), spread, scale)
    result = float64(graph.losses.new_empty(size, size))
    for start, rows in row_blocks(graph, chunk, spread=spread):
        here = slice(start, start + len(rows))
        result[here, here] = gram(rows, scale)
        for other, columns in row_blocks(graph, chunk, start + chunk, spread=spread):
            there = slice(other, other + len(columns))
            result[here, there] = products(rows, columns, scale)
            result[there, here] = result[here, there].T
            del columns  # before the next block is made
        del rows
    return reduce.sum_small(result) if spread else result


class Parts(NamedTuple):
    """How a Gramian is computed without all gradients at once.

    Attributes:
        blocks: Parts of the graph, one after another.
        layers: Layers, by their weights' ``id``, whose gradients are not made.
    """

    blocks: Sequence[Block]
    layers: dict[int, Layer]


def parts_of(graph: Graph) -> Parts | None:
    """How the Gramian of a graph is computed; None where all gradients are held."""
    found = layers(graph, held=fits(graph))
    cut = blocks(graph, {number: own.edge.node for number, own in found.items()})
    return Parts(cut or [whole(graph)], found) if cut or found else None


def gram_by_parts(graph: Graph, parts: Parts) -> Tensor:
    """The Gramian of a graph, of gradients of which a part of the parameters' is held at a time."""
    size, skipped = len(graph.losses), parts.layers
    total = float64(graph.losses.new_zeros(size, size))
    wanted = [
        replace(b, params=[skipped[id(p)].edge if id(p) in skipped else p for p in b.params])
        for b in parts.blocks
    ]
    each = (p for block in parts.blocks for p in block.params)
    for p, gradients in zip(each, gradients_by_blocks(graph, wanted), strict=True):
        held = [m for m, gradient in enumerate(gradients) if gradient is not None]
        if held:
            here = torch.tensor(held, device=total.device)
            own = [g for g in gradients if g is not None]
            layer = skipped.get(id(p))
            total[here[:, None], here] += _pieced(own) if layer is None else layer.gramian(own)
    return (total + total.mT) / 2


def _pieced(gradients: Sequence[Tensor]) -> Tensor:
    """J Jᵀ of rows that lie apart, in float64: piece by piece, each widened in the cache."""
    width = max(WIDENED_ENTRIES // len(gradients), 1024)
    total = float64(gradients[0].new_zeros(len(gradients), len(gradients)))
    for pieces in zip(*(gradient.reshape(-1).split(width) for gradient in gradients), strict=True):
        wide = float64(torch.stack(pieces))
        total += wide @ wide.mT
    return total


def spread_gram(rows: Tensor, spread: bool, scale: Tensor | None = None) -> Tensor:
    """As `gram`: the sum over the processes, where each has but its share of the columns."""
    own = gram(rows, scale)
    return reduce.sum_small(own) if spread else own


def own_gramian(graph: Graph) -> Tensor:
    """As `gramian`, for tensors of which every process holds those of its own samples.

    Joined, they are longer, not averaged: the Gramian is the sum of what each process finds, where
    the mean over W processes divides every gradient by W.
    """
    return reduce.mean_small(gram(all_rows(graph, joined=False))) / reduce.processes()


def gram(rows: Tensor, scale: Tensor | None = None) -> Tensor:
    """J Jᵀ of (…, M, d) rows, symmetric to the bit, in float64; J S Jᵀ with ``scale``, (d,), S."""
    product = products(rows, rows, scale)
    return (product + product.mT) / 2


def along(rows: Tensor, direction: Sequence[Tensor]) -> Tensor:
    """J v in float64, v in parts as the parameters are."""
    flat = torch.cat([as_real(part).reshape(-1) for part in direction])
    return products(rows, flat[None])[:, 0]


def combined(weights: Tensor, rows: Tensor, gramian: Tensor | None = None) -> Tensor:
    """λᵀJ in the rows' dtype, summed in float64 where it would lose more than three bits there.

    Large weights that cancel (near a stationary point) leave rounding errors of the size of what
    is left: Σ|λᵢ|‖gᵢ‖ > 8‖λᵀJ‖. The Gramian tells, where it is known.
    """
    wide, direction = float64(weights), None
    if gramian is None:
        direction = weights.to(rows) @ rows
        lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        left = torch.linalg.vector_norm(direction, dtype=torch.float64).square()
    else:
        gramian = float64(gramian)
        lengths, left = gramian.diagonal().clamp_min(0).sqrt(), wide @ gramian @ wide
    if (wide.abs() @ lengths).square() <= 64 * left:
        return weights.to(rows) @ rows if direction is None else direction
    return combined_wide(wide, rows, rows.dtype)


def combined_wide(weights: Tensor, rows: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """λᵀJ, summed in float64, block by block: no wide copy of the rows."""
    result, wide = torch.empty_like(rows[0], dtype=dtype), float64(weights)
    width = WIDENED_ENTRIES // len(rows) + 1
    for part, out in zip(rows.split(width, -1), result.split(width), strict=True):
        out.copy_(wide @ float64(part))
    return result


def products(rows: Tensor, columns: Tensor, scale: Tensor | None = None) -> Tensor:
    """A Bᵀ of (…, M, d) and (…, N, d), in float64, block by block: no wide copy of the whole.

    A S Bᵀ where ``scale`` is given: the diagonal of S, at least 0, (d,).
    """
    total = float64(rows.new_zeros(*rows.shape[:-1], columns.shape[-2]))
    count = max(math.prod(each.shape[:-1]) for each in (rows, columns))
    width = max(WIDENED_ENTRIES // max(count, 1), 1024)
    none = [None] * len(rows.split(width, -1))
    right = none if columns is rows else _widened(columns, width)
    scales = none if scale is None else _widened(scale, width)
    for wide, other, own in zip(_widened(rows, width), right, scales, strict=True):
        total += (wide if own is None else wide * own) @ (wide if other is None else other).mT
    return total


def _widened(rows: Tensor, width: int) -> Iterator[Tensor]:
    """The columns of (…, d) rows in float64, ``width`` at a time, each in the place of the last.

    Fresh memory for every piece would take longer than what is written into it.
    """
    first, *others = rows.detach().split(width, -1)
    wide = float64(first)
    yield wide
    for piece in others:
        if rows.dtype == torch.float64:  # as they are: nothing may be written there
            yield float64(piece)
        else:
            yield wide[..., : piece.shape[-1]].copy_(piece)


def all_rows(graph: Graph, *, joined: bool = True, spread: bool = False) -> Tensor:
    """The Jacobian as one block."""
    ((_, rows),) = row_blocks(graph, len(graph.losses), joined=joined, spread=spread)
    return rows


def row_blocks(
    graph: Graph, chunk: int, start: int = 0, *, joined: bool = True, spread: bool = False
) -> Iterator[tuple[int, Tensor]]:
    """Rows ``start``, ``start + 1``, … of the Jacobian, ``chunk`` at a time, with their number.

    Means over the processes if ``joined``; if ``spread``, every process keeps its share of the
    columns alone. Parameters without gradient have columns of zeros.
    """
    width = min(_batch_width(graph), chunk)
    for low, high in _spans(start, len(graph.losses), chunk):
        if spread:  # as they come: all of them are never here at once
            few = width if width >= SMALLEST_BATCH else 1
            parts = [reduce.spread(_own(graph, a, b, width)) for a, b in _spans(low, high, few)]
            rows = torch.cat(parts)
        else:
            rows = _own(graph, low, high, width)
            if joined:
                (rows,) = reduce.mean_large([rows])
        yield low, rows
        del rows


def _own(graph: Graph, low: int, high: int, width: int) -> Tensor:
    """Rows ``low`` to ``high`` of this process, by batches of ``width`` where that is possible."""
    live = trainable(graph.params)
    rows = _empty(high - low, graph)
    if width < SMALLEST_BATCH or not _batches(rows, graph, live, low, width):
        _loop(rows, graph, live, low)
    return rows


def _spans(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    return pairwise([*range(start, stop, step), stop])


def _loop(rows: Tensor, graph: Graph, live: Sequence[Tensor], start: int) -> None:
    """One backward per row, written into the result as it comes."""
    for row, output in zip(rows, entries(graph.losses)[start:], strict=False):
        _write(row, pulled(output, live), graph.params)


def _batches(rows: Tensor, graph: Graph, live: Sequence[Tensor], start: int, width: int) -> bool:
    """The rows as batched backwards; ``False`` where an operator or a hook cannot be batched."""
    losses = graph.losses
    units = torch.eye(len(losses), dtype=losses.dtype, device=losses.device)[start:]
    try:
        for low, high in _spans(0, len(rows), width):
            gradients = pulled(losses, live, units[low:high], batched=True)
            _write(rows[low:high], gradients, graph.params)
    except RuntimeError:
        return False
    return True


def _batch_width(graph: Graph) -> int:
    """How many rows to compute as one batch (1: a loop).

    Decided by size and node types alone, never by timing: the same step always takes the same way.
    """
    losses, nodes = graph.losses, graph.nodes
    if len(losses) < SMALLEST_BATCH or graph.is_separate:
        return 1  # a batch would send every loss through the graphs of the others
    if any(isinstance(node, BackwardCFunction) and not passes(node) for node in nodes):
        return 1  # written in Python: may have no batching rule
    if hooks.possible(graph):
        return 1  # it would be given all gradients at once
    used = {edge for step in graph.plan.steps for edge in step.sources if edge is not None}
    if any(graph.walked[number].name() in _WRONG_BATCHES for number, output in used if output):
        return 1
    if losses.device.type != "cpu":
        return LARGEST_BATCH
    if any("Rnn" in node.name() for node in nodes):
        return 1  # no batching rule
    shapes = [o.shape for node in nodes for o in outputs(node)]
    if not all(isinstance(length, int) for shape in shapes for length in shape):
        return 1  # a jagged tensor: of no size, and no batching rule
    # Many small nodes may have a few large ones among them: those do not make the time.
    sizes = sorted(map(math.prod, shapes))
    usual = sizes[math.ceil(USUAL * (len(sizes) - 1))] if sizes else 1
    size = max(sum(map(width_of, graph.params)), usual, 1)
    return int(min(LARGEST_BATCH, CACHED_ENTRIES // size))


def _empty(count: int, graph: Graph) -> Tensor:
    width = sum(map(width_of, graph.params))
    return graph.params[0].new_empty(count, width, dtype=common_dtype(graph.given))


def rounding(params: Sequence[Tensor]) -> float:
    """The ε of the dtype that the gradients of ``params`` have together."""
    return torch.finfo(common_dtype(params)).eps


def _write(rows: Tensor, gradients: Sequence[Tensor], params: Sequence[Tensor]) -> None:
    """Put one gradient per trainable parameter into its columns; zeros for the frozen ones."""
    arrived = iter(gradients)
    parts = []
    for p in params:
        shape = (*rows.shape[:-1], width_of(p))
        part = as_real(next(arrived)).reshape(shape) if p.requires_grad else rows.new_zeros(shape)
        parts.append(part.to(rows.dtype))
    torch.cat(parts, dim=-1, out=rows)


def checked_chunk(chunk: int | None, graph: Graph) -> int:
    """How many objectives to differentiate at once: all of them for ``None``."""
    if chunk is not None and chunk < 1:
        raise BadValue(f"chunk must be at least 1, found {chunk}")
    return min(chunk or len(graph.losses), len(graph.losses))
