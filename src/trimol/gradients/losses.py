"""Loss vectors: what a user may hand over, checked, and where each objective's graph starts."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from trimol._checks import Names, in_order
from trimol._failures import BadType, BadValue
from trimol.gradients._structure import is_stack, made_by

# None stands for the loss of an objective that a batch has no sample of.
Losses = Tensor | Sequence[Tensor | None] | Mapping[str, Tensor | None]


def as_vector(
    losses: Losses, name: str = "losses", *, graph: bool = True, called: Names = ()
) -> Tensor:
    """``losses`` as one 1-D tensor, called ``name`` in errors; with a graph, if one is needed."""
    vector = losses if isinstance(losses, Tensor) else _stacked(losses, name, called)
    if vector.dim() != 1 or not len(vector):
        raise BadValue(
            f"{name} must be a 1-D tensor with one entry per objective (or a sequence of scalar "
            f"tensors), found shape {tuple(vector.shape)}{'' if vector.dim() else ': write [a, b]'}"
        )
    if not vector.is_floating_point():
        raise BadType(f"{name} must be floating point, found {vector.dtype}")
    if vector.layout is not torch.strided:
        raise BadType(f"{name} must be dense, found {vector.layout}")
    if vector.is_meta:
        raise BadValue(f"{name} must hold numbers, found a tensor on 'meta'")
    if graph and not vector.requires_grad:
        raise BadValue(
            f"{name} must require grad: no graph leads from it to the parameters (was it detached, "
            "or computed under torch.no_grad()?)"
        )
    return vector


def loss_vector(
    losses: Losses, called: Names, name: str = "losses", *, graph: bool = True
) -> tuple[Tensor, list[bool]]:
    """As `as_vector`, of exactly the objectives that are called so, and which of them are there.

    0 stands for a loss that is None. Where all of them are, there is no graph.
    """
    if isinstance(losses, Mapping):
        lack = " (say None where the batch has no sample of it)"
        losses = in_order(name, losses, called, lack)
    there = [True] * len(called)
    if not isinstance(losses, Tensor) and isinstance(losses, Iterable):
        given = list(losses)
        there = [loss is not None for loss in given]
        zero = next((_zero(loss) for loss in given if loss is not None), torch.zeros(()))
        losses = [zero if loss is None else loss for loss in given]
    vector = as_vector(losses, name, graph=graph and any(there), called=called)
    if len(vector) != len(called):
        raise BadValue(
            f"{name} must have {len(called)} entries, one per objective, found {len(vector)}"
        )
    return vector, there


def _zero(like: object) -> Tensor:
    """A zero as the other losses are; what is no tensor is refused elsewhere."""
    return like.new_zeros(()) if isinstance(like, Tensor) else torch.zeros(())


def loss_vectors(
    draws: Sequence[Losses], called: Names, *, graph: bool = True
) -> tuple[list[Tensor], list[list[bool]]]:
    """One vector of M losses for each draw, and which of its objectives are there."""
    read = [
        loss_vector(
            losses, called, f"losses (draw {i + 1})" if len(draws) > 1 else "losses", graph=graph
        )
        for i, losses in enumerate(draws)
    ]
    return [vector for vector, _ in read], [there for _, there in read]


def _stacked(losses: Losses, name: str, called: Names) -> Tensor:
    if isinstance(losses, Mapping):
        raise BadType(
            f"{name} must be a 1-D tensor or a sequence of scalar tensors, found a mapping: pass "
            "list(losses.values())"
        )
    if not isinstance(losses, Iterable):
        raise BadType(
            f"{name} must be a 1-D tensor or a sequence of scalar tensors, found "
            f"{type(losses).__name__}"
        )
    entries = list(losses)
    for m, entry in enumerate(entries):
        own = f"{name}[{(called[m] if m < len(called) else m)!r}]"
        if not isinstance(entry, Tensor):
            kind = type(entry).__name__
            hint = ": a tensor with its graph, without .item()" if kind == "float" else ""
            raise BadType(f"{own} must be a scalar tensor, found {kind}{hint}")
        if entry.numel() != 1:
            shape = tuple(entry.shape)
            raise BadValue(
                f"{own} must be a scalar, found shape {shape}: take its mean over samples"
            )
    if not entries:
        raise BadValue(f"{name} must hold at least one loss, found an empty sequence")
    # A scalar needs no reshaping, which would be a node more in each of their graphs.
    return torch.stack([entry.reshape(()) if entry.dim() else entry for entry in entries])


def starts(vector: Tensor) -> list[GradientEdge | None] | None:
    """Where each objective's own graph starts, when the vector is a stack of scalars.

    ``None`` in the list is an entry without a graph; ``None`` instead of a list means that the
    vector was computed as one tensor and that its entries cannot be told apart.
    """
    if not is_stack(vector):
        return None
    node = made_by(vector)
    return [None if n is None else GradientEdge(n, i) for n, i in node.next_functions]


_REARRANGING = frozenset(
    f"{name}Backward{i}"
    for name in ("Stack", "Cat", "Unbind", "Select", "View", "Squeeze", "Unsqueeze")
    for i in range(3)
)


def origins(vector: Tensor) -> frozenset[tuple[Node, int]]:
    """The outputs that the entries were computed as, before any stacking or indexing.

    ``losses``, ``list(losses)`` and ``torch.stack(list(losses))`` have the same origins.
    """
    seen = {(made_by(vector), vector.output_nr)}
    made: set[tuple[Node, int]] = set()
    pending = list(seen)
    while pending:
        node, number = pending.pop()
        if node.name() not in _REARRANGING:
            made.add((node, number))
            continue
        sources = {(n, i) for n, i in node.next_functions if n is not None} - seen
        seen |= sources
        pending.extend(sources)
    return frozenset(made)


def entries(vector: Tensor) -> list[GradientEdge | Tensor]:
    """One differentiable output per objective.

    Behind a stack, an objective's own graph is entered directly: differentiating an entry of the
    stack instead would send zeros through the graphs of all the others.
    """
    own = starts(vector)
    if own is None or None in own or vector._backward_hooks:
        with torch.enable_grad():
            return list(vector.unbind())
    return [edge for edge in own if edge is not None]
