"""G1ᵀ(G2 λ) without a Jacobian, at a cost that does not grow with the number of objectives.

v = G2 λ = ∇(λᵀF_z2) is one backward. G1ᵀv is the directional derivative of F_z1 along v: M numbers
that one pass can give. Three exact ways, fastest first; `directional` takes the first that the
graph allows and says which:

``tangents``
    forward mode along the recorded graph (`trimol.gradients._tangents`): one pass, nothing
    recorded.
``double-vjp``
    u ↦ G1 u is linear in u; the derivative of ⟨G1 u, v⟩ in u is G1ᵀv: a backward that is itself
    recorded, and a backward through it.
``backwards``
    M backwards with a running inner product each: the only way where the graph has no second
    derivative, and where Python code takes part in it (an ``autograd.Function``, a hook): that may
    do to the gradient of one loss what it does not do to their sum. The cost grows with M, memory
    does not.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from trimol._failures import BadType, BadValue
from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import dense, differentiated, gradient, heard, inner, norm, pulled
from trimol.gradients._factors import Layer, common
from trimol.gradients._graph import Graph, record
from trimol.gradients._params import checked, trainable
from trimol.gradients._rules import Opaque, Unsupported
from trimol.gradients._sinks import passes
from trimol.gradients._tangents import push
from trimol.gradients._transposed import trial
from trimol.gradients.losses import Losses, as_vector, entries
from trimol.maths._numerics import is_finite

Route = Literal["tangents", "double-vjp", "backwards"]
_GOLDEN = (5**0.5 - 1) / 2  # the fractions of its multiples are far apart


@dataclass(frozen=True)
class Directional:
    """G1ᵀv, and the way it was computed.

    Attributes:
        values: One number per objective.
        route: The way taken.
        reason: Why not a faster way; empty for the fastest.
    """

    values: Tensor
    route: Route
    reason: str = ""


@no_autocast()
def product(
    first: Losses,
    second: Losses,
    weights: Tensor,
    params: Iterable[Tensor],
    *,
    route: Route | None = None,
) -> Tensor:
    r"""The M numbers :math:`G_1^\top (G_2 \lambda)` in O(1) passes, exactly.

    Here :math:`G_i = \nabla F_{z_i}(x)` is the d × M matrix of gradients of the i-th loss vector.
    Under an initialised ``torch.distributed`` group, both are those of the global batch.

    Args:
        first: Losses on the batch z1: a 1-D tensor, or a sequence of scalars.
        second: Losses on the independent batch z2.
        weights: λ, one entry per objective of ``second``.
        params: The parameters x. Those that need no gradient, or that the losses do not reach,
            count as zero.
        route: ``None`` takes the fastest exact way; a name insists on that one.

    Returns:
        One number per objective of ``first``.

    Example:
        >>> import torch
        >>> from trimol.gradients import product
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> first = torch.stack([x.sum(), x[0] ** 2])
        >>> second = torch.stack([x.prod(), x[1] ** 2])
        >>> product(first, second, torch.tensor([0.5, 0.5]), [x])
        tensor([3.5000, 2.0000])
    """
    if route is not None and route not in get_args(Route):
        raise BadValue(f"route must be one of {', '.join(get_args(Route))}, found {route!r}")
    one, two = as_vector(first, "first"), as_vector(second, "second")
    live = trainable(checked(params, real=False))
    if not isinstance(weights, Tensor):
        raise BadType(f"weights must be a tensor, found {type(weights).__name__}")
    if weights.shape != two.shape:
        raise BadValue(
            f"weights must have one entry per objective, {len(two)}, found shape "
            f"{tuple(weights.shape)}"
        )
    graph, other = record(one, live), record(two, live)
    with graph.apart(), other.apart():
        pairs = common(graph, other) if route in (None, "tangents") else []
        local = by_factors(graph, other, pairs, weights) if pairs else None
        if local is None:
            vector = other.joined(gradient(two, other.params, weights))
            local = directional(graph, vector, route)
    return reduce.mean_small(local.values)


def by_factors(
    first: Graph, second: Graph, pairs: Sequence[tuple[Layer, Layer]], weights: Tensor
) -> Directional | None:
    """Gᵀ(G2 λ), of which the gradients of these layers are not made; None where that is refused."""
    skipped = {id(two.weight) for _, two in pairs}
    rest = [p for p in second.params if id(p) not in skipped]
    ends = [two.edge for _, two in pairs]
    found = pulled(second.losses, [*rest, *ends], weights.to(second.losses))
    own = {id(p): gradient for p, gradient in zip(rest, found, strict=False)}
    made = {
        one.edge.node: one.moved(two, cotangent)
        for (one, two), cotangent in zip(pairs, found[len(rest) :], strict=True)
    }
    try:
        return Directional(push(first, [own.get(id(p)) for p in first.params], made), "tangents")
    except Unsupported:
        return None


def directional(graph: Graph, vector: Sequence[Tensor], route: Route | None = None) -> Directional:
    """Gᵀv of this process's losses, by ``route`` or by the fastest exact way."""
    reasons: list[str] = []
    for name, way in _WAYS.items():
        if route not in (None, name):
            continue
        try:
            values = way(graph, vector)
            if route is None and name != "backwards":
                _check_finite(graph, vector, values)
            return Directional(values, name, "; ".join(reasons))
        except Unsupported as error:
            reasons.append(f"no {name}: {error}")
            if route is None and isinstance(error, Opaque):
                return Directional(_backwards(graph, vector), "backwards", "; ".join(reasons))
    raise BadValue(f"route {route!r} is not possible on this graph: {reasons[-1]}")


def _check_finite(graph: Graph, vector: Sequence[Tensor], values: Tensor) -> None:
    """A backward may have nothing to do with an infinite slope that is multiplied by 0 here."""
    if not is_finite(values) and all(bool(x.isfinite().all()) for x in (graph.losses, *vector)):
        raise Unsupported("its result is not finite")


def _tangents(graph: Graph, vector: Sequence[Tensor]) -> Tensor:
    """By forward mode, held against a backward where that may not be all."""
    hooked = hooks.possible(graph)
    values = push(graph, vector)
    alone = not hooked and bool(values.isfinite().all())
    with trial(graph.compiled, alone=alone, telling=bool(values.any())) as unproven:
        if hooked or unproven:
            _verify(graph, vector, values)
    return values


def _double_vjp(graph: Graph, vector: Sequence[Tensor]) -> Tensor:
    """∂⟨Gu, v⟩/∂u, at any u."""
    for node in graph.active:
        if isinstance(node, BackwardCFunction) and not passes(node):
            raise Opaque(f"{type(node).__name__} is written in Python")
    probe = _uneven(graph.losses).requires_grad_()
    try:
        gradients = differentiated(
            graph.losses, graph.params, probe, create_graph=True, materialize_grads=True
        )
        moved = [dense(g) for g in gradients]
        reached = [(p, v.to(p)) for p, v in zip(moved, vector, strict=True) if p.requires_grad]
        if not reached:
            raise Unsupported("the backward pass left no graph")
        values: Tensor
        (values,) = differentiated(
            [p for p, _ in reached], probe, [v for _, v in reached], retain_graph=True
        )
    except RuntimeError as error:
        raise Unsupported(str(error)) from error
    _check_linear(graph, moved, vector, probe.detach().double() * values.double())
    if hooks.possible(graph):
        _verify(graph, vector, values)
    return values


def _verify(graph: Graph, vector: Sequence[Tensor], values: Tensor) -> None:
    """Hold Gᵀv against a plain backward, Gu, in which no hook is heard.

    u gives every objective about the same share, so that an error in a small one is not lost beside
    a large one, but not quite: two opposed gradients would cancel.
    """
    sizes = values.double().abs()
    largest = sizes.max().clamp_min(torch.finfo(sizes.dtype).tiny)
    shares = _uneven(sizes) * largest / sizes.clamp_min(largest * graph.rounding**0.5)
    moved = heard(graph.losses, graph.params, shares)
    if moved is None:
        raise Opaque("a hook reads gradients on their way, or changes them")
    _check_linear(graph, moved, vector, shares.to(graph.losses).double() * values.double())


def _uneven(like: Tensor) -> Tensor:
    """A number from 1 to 2 for each objective, no two alike."""
    return 1 + torch.arange(len(like)).to(like) * _GOLDEN % 1


def _check_linear(
    graph: Graph, moved: Sequence[Tensor], vector: Sequence[Tensor], terms: Tensor
) -> None:
    """u ↦ Gu is linear, so ⟨Gu, v⟩ must be uᵀ(Gᵀv), to the coarsest rounding in the graph.

    The ``terms`` of that sum may cancel, and Gu with them: opposed gradients of one parameter do.
    Rounding is as large as the terms are.
    """
    scale = max((norm(moved) * norm(vector)).item(), terms.abs().sum().item())
    gap = abs((inner(moved, vector) - terms.sum()).item())
    if not gap <= scale * graph.rounding**0.6:
        raise Unsupported("plain backwards do not confirm it")


def _backwards(graph: Graph, vector: Sequence[Tensor]) -> Tensor:
    """⟨∇f_m, v⟩ for one objective after another."""
    values = [inner(pulled(entry, graph.params), vector) for entry in entries(graph.losses)]
    return torch.stack(values).to(graph.losses)


_WAYS: dict[Route, Callable[[Graph, Sequence[Tensor]], Tensor]] = {
    "tangents": _tangents,
    "double-vjp": _double_vjp,
    "backwards": _backwards,
}
