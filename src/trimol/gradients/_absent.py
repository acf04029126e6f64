"""Losses that are not there: how they are told, and made harmless.

An objective may have no sample in a batch, on one process or on all. Its loss is then None, or the
mean of nothing, which may be NaN, or a constant: whatever it is, it must not count.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from trimol._checks import Names, in_order
from trimol._failures import BadValue
from trimol.gradients import _reduce as reduce
from trimol.gradients._autocast import no_autocast
from trimol.gradients._graph import Graph, record
from trimol.gradients._params import as_real
from trimol.gradients._presence import Presence
from trimol.gradients._sharded import is_dtensor
from trimol.gradients._structure import Plan, is_stack
from trimol.gradients.losses import Losses, starts


def counted(
    draws: Sequence[Losses], counts: Tensor, called: Names, params: Sequence[Tensor]
) -> list[Losses]:
    """Loss vectors in which the losses without a sample are harmless, whatever they are.

    The mean of nothing may be NaN, and where it divides by the number of samples, zero times its
    gradient is, too. It becomes None; but on several processes, where wrappers of the model wait
    for all that its forward gave, a zero that reaches what it reached.

    Args:
        draws: The loss vectors.
        counts: How many samples there are of each objective, vectors × M.
        called: The objectives' names.
        params: The parameters.
    """
    return [
        _counted_vector(losses, own, called, params, f"losses (draw {i + 1})")
        for i, (losses, own) in enumerate(zip(draws, counts.tolist(), strict=True))
    ]


def _counted_vector(
    losses: Losses, counts: list[float], called: Names, params: Sequence[Tensor], name: str
) -> Losses:
    """One loss vector; see `counted`."""
    if isinstance(losses, Tensor):
        return losses if losses.requires_grad or any(counts) else [None] * len(counts)
    given = in_order(name, losses, called) if isinstance(losses, Mapping) else [*losses]
    if len(given) != len(counts):
        return given  # `loss_vectors` says so
    pairs = zip(given, counts, strict=True)
    return [f if n or not isinstance(f, Tensor) else _harmless(f, params) for f, n in pairs]


def _harmless(loss: Tensor, params: Sequence[Tensor]) -> Tensor | None:
    """A loss without a sample, which is to count nothing."""
    if not loss.requires_grad:
        return None
    if loss.isfinite().all():
        return loss
    if not reduce.is_distributed():
        return None
    graph = record(loss, params)
    leaves = [*(p for p in graph.params if id(p) in graph.entrances), *graph.others]
    # FSDP2's own backward has to pass the model.
    return loss if graph.shards is not None else _reaching(torch.zeros_like(loss), leaves)


def connected(vector: Tensor, params: Sequence[Tensor]) -> Tensor:
    """A vector of nothing but absent losses, with a graph all the same: zero gradients."""
    if vector.requires_grad:
        return vector
    if any(map(is_dtensor, params)):
        raise BadValue(
            "losses must have one that is not None on every process, where parameters are sharded, "
            "found none"
        )
    return _reaching(vector.to(as_real(params[0])), params)


def _reaching(value: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """The value, with a graph that reaches the leaves: zero gradients."""
    # Exactly 0, whatever they are.
    nothing = [as_real(leaf).reshape(-1)[:0].sum() for leaf in leaves]
    return value + torch.stack([each.to(value) for each in nothing]).sum()


@no_autocast()
def shared(vector: Tensor, shares: Tensor) -> Tensor:
    """The losses times their shares, at least in float32: half precision would round the shares.

    An absent loss may be NaN, the mean of nothing: zero times it would be, too.
    """
    wide = vector.to(torch.promote_types(vector.dtype, torch.float32))
    own = shares.to(wide)
    return torch.where(own > 0, wide * own, 0.0)


def reached(
    graph: Graph, called: Names, declared: Sequence[bool], presence: Presence | None
) -> list[bool]:
    """Which losses are there: those that are not None, and do not turn out to be absent.

    A loss that is exactly 0 and reaches no parameter is absent, though nobody said so. Any other
    that reaches none is an error; so is this one where counts say that it is there, or where no
    other is left.
    """
    if presence is None and not all(declared):
        raise BadValue(
            f"losses must be there for every objective, found None for "
            f"{called[declared.index(False)]!r}"
        )
    missed = [m for m in unreached(graph) if declared[m]]
    if not missed:
        return list(declared)
    wrong = [m for m in missed if graph.losses[m].item() != 0]
    if presence is None or presence.counts is not None or len(missed) == sum(declared):
        wrong = missed
    check_reach(called, wrong)
    assert presence is not None
    presence.silent |= set(missed)
    return [there and m not in missed for m, there in enumerate(declared)]


def unreached(graph: Graph, *, inside: bool = False) -> list[int]:
    """The objectives that are known not to depend on the parameters, or on tensors inside."""
    if not inside:
        return _unreached(graph.plan, len(graph.losses), is_stack(graph.losses))
    reached = _past_entrances(graph)
    entrances, own = {*graph.entrances.values()}, starts(graph.losses)
    missed = [
        m
        for m, e in enumerate(own or [get_gradient_edge(graph.losses)])
        if e is None or (e.node not in reached and (e.node, e.output_nr) not in entrances)
    ]
    return list(range(len(graph.losses))) if own is None and missed else missed


def _unreached(plan: Plan, count: int, stacked: bool) -> list[int]:
    """These, of losses that may be a stack."""
    if not stacked:
        return [] if 0 in plan.active else list(range(count))
    return [m for m, edge in enumerate(plan.ends) if edge is None or edge[0] not in plan.active]


def check_reach(called: Names, missed: Sequence[int], given: str = "parameters") -> None:
    """Every objective whose own graph can be told apart must depend on the parameters."""
    if missed:
        raise BadValue(
            f"objective {called[missed[0]]!r} reaches none of the given {given}: its loss does "
            "not depend on them (detached? computed by another model, or in another forward pass?)"
        )


def _past_entrances(graph: Graph) -> set[Node]:
    """The nodes that depend on tensors inside the graph: by these outputs, not by others beside.

    All that comes out of ``torch.compile`` or a sink is made by one node: losses and, beside
    them, a representation that they do not depend on.
    """
    entrances, reached = {*graph.entrances.values()}, set[Node]()
    for node in graph.nodes:
        if any(edge in entrances or edge[0] in reached for edge in graph.edges[node]):
            reached.add(node)
    return reached
