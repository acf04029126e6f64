"""Evidence of a batch that is too large for one graph: from micro-batches, computed again.

All that evidence consists of is linear in the losses, or a product of two such things: losses, rows
and gradients of the whole are means over the micro-batches, and

    G1ᵀ(G2 λ) = mean_i G1_iᵀ v,    v = mean_j G2_j λ,

needs all of v before the first G1_i. So the micro-batches are gone over once for each of these,
with the same random numbers every time; one graph is held at a time, and freed.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from trimol._checks import Names
from trimol._failures import BadValue
from trimol._generators import Generators
from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import differentiated, gradient, norm
from trimol.gradients._delivery import Delivery
from trimol.gradients._graph import record
from trimol.gradients._params import checked, split, trainable
from trimol.gradients._product import directional
from trimol.gradients._rows import all_rows, gram
from trimol.gradients._scalar import weighted
from trimol.gradients._sharded import Shards
from trimol.gradients._stepping import Stepping
from trimol.gradients.evidence import Evidence
from trimol.gradients.losses import Losses, loss_vector


class Accumulated(Evidence):
    """What many micro-batches tell together; see `Evidence`.

    Args:
        losses: From a batch to its losses.
        batches: The micro-batches, each of them one batch for every draw.
        shares: How much each micro-batch counts; they sum to one.
        params: The parameters that the method weighs.
        called: The objectives' names.
        delivery: How long the direction is to be, and what the others get.
        stepping: The optimizer that the weights are chosen for; without, the gradient itself.
    """

    def __init__(
        self,
        losses: Callable[[Any], Losses],
        batches: Sequence[Sequence[Any]],
        shares: Sequence[float],
        params: Sequence[Tensor],
        called: Names,
        delivery: Delivery,
        stepping: Stepping | None = None,
    ) -> None:
        self.stepping = stepping
        self.given = trainable(params)
        self.params: Sequence[Tensor] = self.given  # what a graph holds of them, once there is one
        self.names, self.delivery = called, delivery
        self.function, self.batches, self.shares = losses, batches, shares
        self.scale, self.route, self.reason = 1.0, "", ""
        self.findings, self.representation, self.presence = {}, None, None
        self.draws, self.graphs = [], []  # none is held
        self._rows, self._second_gradient, self._pulled = None, None, None
        self._random: dict[tuple[int, int], Generators] = {}
        self._values: dict[tuple[int, int], Tensor] = {}
        self._coarsest, self._has_others, self._dtype = 0.0, False, torch.float32
        self._sinks: list[Node] = []
        self._shards: Shards | None = None
        self._used: set[int] = set()
        self._sparse: dict[int, list[Tensor]] = {}
        self._dense: set[int] = set()

    @property
    def sinks(self) -> list[Node]:
        """Those of the last graph that there was."""
        return self._sinks

    @property
    def shards(self) -> Shards | None:
        """As of the last graph that there was."""
        return self._shards

    @property
    def entered(self) -> set[int]:
        """What any of the graphs held of the parameters, by ``id``."""
        return self._used

    @property
    def looked_up(self) -> dict[int, list[Tensor]]:
        """As of all the graphs that there were."""
        return {number: x for number, x in self._sparse.items() if number not in self._dense}

    @functools.cached_property
    def losses(self) -> Tensor:
        """The losses' values: of all micro-batches, draws and processes."""
        return reduce.mean_small(self.own_losses)

    @property
    def own_losses(self) -> Tensor:
        """The losses' values on this process."""
        for i in range(len(self.batches)):
            for draw in range(self._count):
                if (i, draw) not in self._values:  # no graph was needed so far
                    with torch.no_grad():
                        self._compute(i, draw)
        return self._mean(range(self._count))

    @property
    def _count(self) -> int:
        """How many draws a micro-batch has."""
        return len(self.batches[0])

    def _mean(self, draws: Sequence[int]) -> Tensor:
        """This process's losses, the mean over these draws."""
        return sum(  # type: ignore[return-value]
            share * torch.stack([self._values[i, draw] for draw in draws]).mean(0)
            for i, share in enumerate(self.shares)
        )

    def _compute(self, i: int, draw: int) -> Tensor:
        """The losses of one draw of a micro-batch, with the random numbers of the first time."""
        with self._same_random_numbers((i, draw)):
            losses = self.function(self.batches[i][draw])
        graph = torch.is_grad_enabled()
        vector, there = loss_vector(losses, self.names, graph=graph)
        if not all(there):
            raise BadValue(
                "losses of accumulated micro-batches must be there for every objective, found None "
                f"for {self.names[there.index(False)]!r}"
            )
        self._values[i, draw] = vector.detach().double()
        return vector

    def _each(self, draw: int) -> Iterator[tuple[float, Evidence]]:
        """For each micro-batch its share and the evidence of this draw alone."""
        for i, share in enumerate(self.shares):
            own = Evidence([self._compute(i, draw)], self.given, self.names)
            self.params, self._sinks, self._shards = own.params, own.sinks, own.shards
            self._used |= own.entered
            self._note_lookups(own)
            self._coarsest = max(self._coarsest, own.graphs[0].rounding)
            self._has_others |= bool(own.others)
            self._dtype = torch.promote_types(own.draws[0].dtype, torch.float32)
            yield share, own

    def _note_lookups(self, own: Evidence) -> None:
        found = own.looked_up
        self._dense |= own.entered - found.keys()
        for number, rows in found.items():
            self._sparse.setdefault(number, []).extend(rows)

    @contextmanager
    def _same_random_numbers(self, place: tuple[int, int]) -> Iterator[None]:
        """Those that were drawn here before, and after them as if nothing had been drawn again."""
        now = self._generators.now()
        if place not in self._random:
            self._random[place] = now
            yield
            return
        self._random[place].put_back()
        try:
            yield
        finally:
            now.put_back()

    @functools.cached_property
    def _generators(self) -> Generators:
        return Generators(self.function, devices=[self.params[0].device])

    def gramian(self, *, chunk: int | None = None, of: Sequence[Tensor] | None = None) -> Tensor:
        """GᵀG of the mean gradients, which are held: M of them."""
        if of is None:
            return self._noted("gramian", self.gram(self._all_rows()))
        self._refuse_metric("accumulated micro-batches and gradients of some parameters alone")
        leaves = trainable(checked(of, real=False))
        if not all(tensor.is_leaf for tensor in leaves):
            raise BadValue(
                "accumulated micro-batches must share what is differentiated, found a "
                "representation, which each has of its own"
            )
        return self._noted("gramian", gram(self._mean_rows([0], leaves)))

    def jacobian(self) -> Tensor:
        """Gᵀ: the mean over the micro-batches."""
        rows = self._all_rows()
        self.finite(rows.sum(1, dtype=torch.promote_types(rows.dtype, torch.float32)))
        return rows

    def rows_of(self, places: Sequence[int]) -> Tensor:
        """Some rows of Gᵀ; all of them are computed."""
        return self.jacobian()[list(places)]

    def _all_rows(self) -> Tensor:
        """Gᵀ, kept for the scalar."""
        self._rows = self._mean_rows([0], self.given)
        self._check_there(self._rows)
        return self._rows

    def _check_there(self, rows: Tensor) -> None:
        """An objective without a sample in any micro-batch has no say: 0 is not its loss."""
        silent = (self.losses == 0).to(rows.device) & ~rows.any(1)
        if silent.any() and not silent.all():
            raise BadValue(
                "losses of accumulated micro-batches must be there for every objective, found 0 "
                f"without a gradient for {self.names[int(silent.nonzero()[0])]!r}"
            )

    def _mean_rows(self, used: Sequence[int], of: Sequence[Tensor]) -> Tensor:
        self.route, total = "rows", None
        self.passes += len(self.names)
        for draw in used:
            for share, own in self._each(draw):
                graph = record(own.draws[0], of)
                with no_autocast(), graph.apart(), hooks.muted(graph.params):
                    rows = all_rows(graph) * (share / len(used))
                total = rows if total is None else total.add_(rows)
        assert total is not None
        return total

    def _rows_of(self, used: Sequence[Any], params: Sequence[Tensor]) -> Tensor:
        """Gᵀ on these parameters, the mean over the draws used."""
        if self._rows is not None and len(params) == len(self.given):
            return self._rows
        return self._mean_rows(used, params)

    def _falls_of(
        self, used: Sequence[Any], params: Sequence[Tensor], moved: Sequence[Tensor]
    ) -> Tensor:
        """Gᵀs, the mean over micro-batches, draws and processes."""
        total = torch.zeros(len(self.names), dtype=torch.float64)
        for draw in used:
            for share, own in self._each(draw):
                graph = record(own.draws[0], params)
                with no_autocast(), graph.apart():
                    local = directional(graph, moved).values
                total += local.cpu().double() * (share / len(used))
        return reduce.mean_small(total.to(self.params[0].device))

    @property
    def coarsest(self) -> float:
        """The coarsest rounding of all graphs so far."""
        return self._coarsest

    def product(self, weights: Tensor, *, keep_gradient: bool = False) -> Tensor:
        """G1ᵀ(G2 λ): first all of v = G2 λ, then each G1_iᵀ v."""
        vector: list[Tensor] = []
        for share, own in self._each(min(1, self._count - 1)):
            with no_autocast(), own.apart(), hooks.muted(self.params):
                found = _gradient(own, self.params, weights * share)
            parts = own.graphs[0].widened(found)
            vector = [a.add_(b) for a, b in zip(vector, parts, strict=True)] if vector else parts
        joined = self._in_metric(reduce.mean_large(vector))
        total = torch.zeros_like(weights)
        for share, own in self._each(0):
            with no_autocast(), own.apart():
                local = directional(own.graphs[0], joined)
            self.route, self.reason = local.route, local.reason
            total = total + share * local.values.to(total)
        self.passes += self.product_cost / self._count
        return self._noted("product", reduce.mean_small(total))

    @property
    def rows_cost(self) -> float:
        """A backward for each objective."""
        return len(self.names)

    @property
    def gramian_cost(self) -> float:
        """The same."""
        return self.rows_cost

    @property
    def product_cost(self) -> int:
        """As for one graph, and two forward passes, each half a backward."""
        return super().product_cost + 1

    def scalar(self, weights: Tensor, draws: slice = slice(None)) -> Tensor:
        """The scalar worth λᵀF whose gradient is G λ, the mean over the micro-batches."""
        used = range(self._count)[draws] or range(self._count)
        if self._rows is not None and not self._has_others:
            return self.scalar_along(weights, self._known_direction(weights, self._rows))
        gradients, others = self._gradients(weights, used)
        return self._handed_on(weights, used, gradients, others)

    def scalar_along(self, weights: Tensor, direction: Tensor) -> Tensor:
        """The scalar worth λᵀF whose gradient is ``direction``; the others' are computed."""
        used = range(self._count)
        others = self._gradients(weights, used)[1] if self._has_others else {}
        return self._handed_on(weights, used, split(direction, self.params), others)

    def _handed_on(
        self,
        weights: Tensor,
        used: Sequence[int],
        direction: Sequence[Tensor],
        others: dict[int, tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The scalar with these gradients on the parameters and on the others."""
        _ = self.own_losses  # of all micro-batches and draws, from here on
        if self.guards or self.delivery.rescales or self.shards is not None or self.sinks:
            direction = reduce.mean_large(direction)  # else DistributedDataParallel averages it
        if self.delivery.rescales:
            direction = self._rescaled(direction, used)
        self.others = [leaf for leaf, _ in others.values()]
        gradients: Sequence[Tensor] = [found for _, found in others.values()]
        if self.shards is not None:
            gradients = self.shards.joined(self.others, gradients)
        if self.guards:
            weights, direction, gradients = self._guarded(weights, used, direction, gradients)
        value = weighted(self._mean(used).to(self._dtype), weights)
        return self._attached(value, direction, gradients)

    def _rescaled(self, direction: Sequence[Tensor], used: Sequence[int]) -> Sequence[Tensor]:
        """The direction with the length that the delivery gives it."""
        mean, rounding = None, 0.0
        if self.delivery.length == "mean gradient":
            uniform = torch.full((len(self.names),), 1 / len(self.names), dtype=torch.float64)
            mean = norm(reduce.mean_large(self._gradients(uniform, used)[0]))
            rounding = self._coarsest
        factor = self.delivery.factor(norm(direction), mean, rounding)
        self.scale = factor.item()
        return [part * factor.to(part) for part in direction]

    def _gradients(
        self, weights: Tensor, used: Sequence[int]
    ) -> tuple[Sequence[Tensor], dict[int, tuple[Tensor, Tensor]]]:
        """This process's G λ, and of every other leaf, by its ``id``, itself and its gradient."""
        total: list[Tensor] = []
        others: dict[int, tuple[Tensor, Tensor]] = {}
        for draw in used:
            for share, own in self._each(draw):
                part = share / len(used)
                with no_autocast(), own.apart(), hooks.muted([*self.params, *own.others]):
                    on_heads = self._on_leaves(own, self._on_heads(weights) * part)
                    found = _gradient(own, self.params, weights * part)
                parts = own.graphs[0].widened(found)
                total = [a.add_(b) for a, b in zip(total, parts, strict=True)] if total else parts
                for leaf, g in zip(own.others, on_heads, strict=True):
                    others[id(leaf)] = leaf, others[id(leaf)][1] + g if id(leaf) in others else g
        return total, others

    def _on_leaves(self, own: Evidence, weights: Tensor) -> Sequence[Tensor]:
        """The gradients of one micro-batch on what is not weighed."""
        if not own.others:
            return []
        shares = weights.to(own.draws[0])
        return differentiated(own.draws[0], own.others, shares, retain_graph=True)


def _gradient(own: Evidence, params: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
    """The last use of a graph, which is freed, unless its next use would be compiled for that."""
    (graph,) = own.graphs
    return gradient(graph.losses, params, weights, retain=bool(graph.compiled))
