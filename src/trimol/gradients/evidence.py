"""What the losses of one step tell a method, computed when it is asked for.

A method sees only this object: the loss values, the Gramian, the product G1ᵀ(G2 λ). When its
weights are known, `Evidence.scalar` turns them into the scalar that the user differentiates,
without repeating a backward that was done for the evidence.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from trimol._checks import Names, names
from trimol._failures import BadValue
from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients import _sinks as sinks
from trimol.gradients._absent import (
    check_reach,
    connected,
    counted,
    reached,
    shared,
    unreached,
)
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import dense, differentiated, gradient, norm, pulled
from trimol.gradients._checkpoints import check_repeatable
from trimol.gradients._delivery import AS_IT_IS, Delivery
from trimol.gradients._factors import Layer, common, saved
from trimol.gradients._factors import passes as factored_passes
from trimol.gradients._graph import Graph, record
from trimol.gradients._guard import Guarding, guard
from trimol.gradients._lookups import looked_up, sparse
from trimol.gradients._metric import Metric
from trimol.gradients._params import checked, split, trainable, width_of
from trimol.gradients._presence import Counts, Presence, checked_counts
from trimol.gradients._product import by_factors, directional
from trimol.gradients._retained import retains
from trimol.gradients._rows import (
    Parts,
    all_rows,
    along,
    checked_chunk,
    combined,
    combined_wide,
    gram_by_parts,
    gram_of,
    own_gramian,
    parts_of,
    rounding,
    row_blocks,
    spread_gram,
)
from trimol.gradients._scalar import attached, mean, weighted
from trimol.gradients._sharded import Shards
from trimol.gradients._stepping import Momentum, Stepping
from trimol.gradients.losses import Losses, loss_vector, loss_vectors, origins
from trimol.maths._numerics import is_finite

# All gradients of losses that have no graph in common are held up to so many entries.
SEPARATE_ENTRIES = 2**24


class NonFinite(ArithmeticError):
    """The evidence of this step holds NaN or infinity."""


class Evidence:
    """The losses of one step, their graphs, and what can be computed from them.

    Parameters that the losses reach but that the method was not given (the *others*: task heads)
    are not weighed: the scalar's gradient is the plain sum of the losses' gradients there, or that
    of λᵀF where the delivery says so.

    Args:
        draws: One loss vector per independent batch.
        params: The parameters that the method weighs.
        objectives: The number M of objectives that every draw must have, or their names.
        representation: What the shared parameters make of the batch, where the caller names it.
        delivery: How long the direction is to be, and what the others get.
        presence: Which objectives may be absent, and how many samples there are of each; without,
            all of them must be there.
        stepping: The optimizer that the weights are chosen for; without, the gradient itself.

    Attributes:
        scale: What the delivery multiplied the direction by.
        route: How the gradients' evidence was computed (empty before any was asked for).
        reason: Why a faster exact way was not possible (empty if it was).
        findings: What was asked for, by name: ``gramian``, ``product``; and what the guard found:
            ``effect``, ``added``, ``guarded``.
        momentum: What the part of the step does that is decided before the gradient, where the
            Gramian is in an optimizer's metric; None otherwise.
        passes: What was asked for cost so many backwards of the whole batch; a tangent pass is as
            long as one.
    """

    stepping: Stepping | None = None
    momentum: Momentum | None = None
    passes: float = 0.0

    def __init__(
        self,
        draws: Sequence[Losses],
        params: Sequence[Tensor],
        objectives: int | Names,
        representation: Sequence[Tensor] | None = None,
        delivery: Delivery = AS_IT_IS,
        presence: Presence | None = None,
        stepping: Stepping | None = None,
    ) -> None:
        self.given = trainable(params)
        self.delivery, self.scale = delivery, 1.0
        self.stepping = stepping
        self.representation = representation
        self.names = _called(objectives)
        if presence is not None and presence.counts is not None:
            draws = counted(draws, presence.counts, self.names, self.given)
        vectors, there = loss_vectors(draws, self.names)
        self.draws = [connected(vector, self.given) for vector in vectors]
        _check_distinct(self.draws)
        self.graphs = [record(vector, self.given) for vector in self.draws]
        self.params = self.graphs[0].params
        self.presence = presence
        self._find(there)
        self.route = ""
        self.reason = ""
        self.findings: dict[str, Any] = {}
        self._rows: Tensor | None = None
        self._jacobian: Tensor | None = None  # the rows without hooks, whole and finite
        self._spread = False  # whether each process has its share of the rows' columns alone
        self._second_gradient: Sequence[Tensor] | None = None
        self._pulled: tuple[Tensor, Sequence[Tensor]] | None = None  # λ and G λ of the only draw

    def _find(self, declared: Sequence[Sequence[bool]]) -> None:
        """Which objectives there are; vectors whose mean over draws and processes is then F."""
        presence = self.presence
        if presence is not None and presence.counts is not None:  # a 0 is as good as None
            declared = (torch.tensor(declared) & (presence.counts > 0)).tolist()
        pairs = zip(self.graphs, declared, strict=True)
        there = [reached(graph, self.names, own, presence) for graph, own in pairs]
        if presence is None:
            return
        asks = presence.keeps or presence.counts is not None or not all(map(all, there))
        alone = not asks and not reduce.is_distributed()
        if alone and not presence.due:
            return
        if alone:
            known = [vector.tolist() for vector in self.draws]
            if not any(0.0 in each for each in known):
                # The usual step: all objectives are there, on this one process.
                self.losses = _mean_of(known, self.draws[0].device)
                return
        values = torch.stack([vector.detach() for vector in self.draws])
        presence.join(values, torch.tensor(there), waits=bool(self.sinks))
        if presence.due and not presence.keeps:
            self._look(presence)
        factors = presence.factors()
        if factors is not None:
            self.draws = [shared(v, own) for v, own in zip(self.draws, factors, strict=True)]
            self.graphs = [record(vector, self.given) for vector in self.draws]
            self._check_gradients(values, factors)
        self.losses = presence.losses.to(values.device)

    def _check_gradients(self, values: Tensor, factors: Tensor) -> None:
        """Of vectors computed as one: zero times the gradient of a loss without a sample is 0."""
        bad = ~values.isfinite().cpu() & (factors == 0)
        for draw, place in bad.nonzero().tolist() if self.shards is None else []:
            vector, leaves = self.draws[draw], [*self.params, *self.others]
            with self.apart(), hooks.muted(leaves):
                found = pulled(vector, leaves, torch.zeros_like(vector))
            if not all(bool(g.isfinite().all()) for g in found):
                raise BadValue(
                    "losses must have a finite gradient where counts is 0, found "
                    f"{values[draw, place]:g} for objective {self.names[place]!r}, whose has none: "
                    "say None, or trimol.tasks.masked_mean"
                )

    def _look(self, presence: Presence) -> None:
        """A loss that is 0 on all processes, with a zero gradient, beside others that are not 0."""
        zero = ((presence.sums == 0) & (presence.total > 0)).nonzero().tolist()
        if not zero or not presence.sums.any(1).all():
            return
        silent = torch.zeros_like(presence.sums)
        for draw, m in zero:
            with self.apart(), hooks.muted(self.params), torch.enable_grad():
                gradients = pulled(self.draws[draw][m], self.params)
            silent[draw, m] = not any(bool(g.any()) for g in gradients)
        everywhere = reduce.mean_small(silent.to(self.draws[0].device)).cpu() == 1
        if everywhere.any():
            presence.drop(everywhere)

    @functools.cached_property
    def losses(self) -> Tensor:
        """The losses' values: the mean over the draws, and over processes."""
        values = torch.stack([vector.detach() for vector in self.draws]).double().mean(0)
        return reduce.mean_small(values)

    @property
    def keeps(self) -> bool:
        """Whether this step cannot tell new weights, or is not to."""
        return self.presence is not None and self.presence.keeps

    @property
    def absent(self) -> tuple[str | int, ...]:
        """The names of the objectives that this step has no sample of."""
        return () if self.presence is None else self.presence.absent

    @property
    def rounding(self) -> float:
        """The ε of the gradients' dtype: how far their entries are rounded, relative."""
        return rounding(self.given)

    @no_autocast()
    def gramian(self, *, chunk: int | None = None, of: Sequence[Tensor] | None = None) -> Tensor:
        """GᵀG of the (only) draw's gradients; see :func:`trimol.gradients.gramian`.

        Args:
            chunk: How many gradients to hold at once.
            of: Differentiate with respect to these tensors instead of the parameters: some leaves,
                or a representation inside the graph (all its gradients are held at once).
        """
        (graph,) = self.graphs
        self.route, size = "rows", checked_chunk(chunk, graph)
        count = len(graph.losses)
        parts = self._parts if of is None and size == count else None
        # Each block, and all rows that come after it.
        rows = self.rows_cost if size == count else sum(range(count, 0, -size))
        self.passes += rows if parts is None else self.gramian_cost - 1
        if of is not None:
            graph = record(graph.losses, trainable(checked(of, real=False)))
            if self.presence is None or not self.presence.is_empty:  # then zeros are its part
                check_reach(self.names, unreached(graph, inside=True), "tensors")
        with graph.apart():
            if of is not None and not all(tensor.is_leaf for tensor in of):
                self._refuse_metric("a representation, which no optimizer moves")
                return self._noted("gramian", own_gramian(graph))
            if of is not None or size < len(graph.losses):
                if self.metric is None:
                    return self._noted("gramian", gram_of(graph, size))
                found, self.momentum = self.metric.of_graph(graph, size)
                return self._noted("gramian", found)
            if parts is not None:
                self._say(parts)
                return self._noted("gramian", gram_by_parts(graph, parts))
            self._rows, self._spread = all_rows(graph, spread=graph.spreads), graph.spreads
        return self._noted("gramian", self.gram(self._rows, spread=self._spread))

    @functools.cached_property
    def _parts(self) -> Parts | None:
        """How the (only) draw's Gramian is computed; None where all gradients are held."""
        (graph,) = self.graphs
        return parts_of(graph) if self.metric is None else None

    @property
    def gramian_cost(self) -> float:
        """What the Gramian costs, in backwards; with the one that is left to do, if one is."""
        if self._parts is None:
            return self.rows_cost
        found = [*self._parts.layers.values()]
        return 1 + (factored_passes(found, len(self.names)) if found else self.rows_cost)

    def _say(self, parts: Parts) -> None:
        """How the Gramian is computed."""
        blocks = len(parts.blocks)
        if blocks > 1:
            self.reason = f"gradients too large to hold: {blocks} blocks, one after another"
        if parts.layers:
            self.route = "factors"

    def gram(self, rows: Tensor, *, spread: bool = False) -> Tensor:
        """J Jᵀ of rows of gradients, in the metric of the optimizer where there is one.

        Args:
            rows: One row of gradients an objective, in the order of `params`.
            spread: Whether each process has its share of the columns alone.
        """
        if self.metric is None:
            return spread_gram(rows, spread)
        found, self.momentum = self.metric.of_rows(rows, self.given, spread=spread)
        return found

    @property
    def metric(self) -> Metric | None:
        """That of the optimizer's steps, where the weights are chosen for them."""
        stepping = self.stepping
        if stepping is None or not stepping.metric:
            return None
        return Metric(stepping.steps, stepping.weights)

    def _refuse_metric(self, what: str) -> None:
        if self.metric is not None:
            raise BadValue(f"optimizer must be None, or metric 'gradient', with {what}")

    @no_autocast()
    def jacobian(self) -> Tensor:
        """Gᵀ of the (only) draw: one row of gradients per objective, in the order of `params`."""
        if self._jacobian is not None:  # asked for again
            return self._jacobian
        (graph,) = self.graphs
        self.route = "rows"
        self.passes += self.rows_cost
        with self.apart(), hooks.muted(self.params):  # `scalar_along` hands on what comes of it
            self._rows = all_rows(graph)
        # One pass and no mask: a sum with NaN or infinity shows it (float16 could overflow).
        self.finite(self._rows.sum(1, dtype=torch.promote_types(self._rows.dtype, torch.float32)))
        self._jacobian = self._rows
        return self._rows

    @no_autocast()
    def rows_of(self, places: Sequence[int]) -> Tensor:
        """The rows of `jacobian` at these places alone: a backward through each one's own graph.

        For a direction of `scalar_along`, which leaves no backward to do.
        """
        (graph,) = self.graphs
        self.route = "rows"
        self.passes += max(len(places) - 1, 0)
        with self.apart(), hooks.muted(self.params):
            rows = torch.cat([next(row_blocks(graph, 1, place))[1] for place in places])
        self.finite(rows.sum(1, dtype=torch.promote_types(rows.dtype, torch.float32)))
        return rows

    @no_autocast()
    def product(self, weights: Tensor, *, keep_gradient: bool = False) -> Tensor:
        """G1ᵀ(G2 λ) of the first two draws (or twice the only one); see `trimol.gradients.product`.

        Args:
            weights: λ.
            keep_gradient: Keep G2 λ for `scalar`, which must then be called with the same λ: the
                second draw needs no other backward. Of several products the last is kept.
        """
        if not self.route:  # the first product
            check_repeatable(n for graph in self.graphs if graph.recomputes for n in graph.nodes)
        if rows := self._separate_rows:
            return self._product_of_rows(weights, rows)
        place = min(1, len(self.draws) - 1)
        keep_gradient = keep_gradient and not self._is_watched
        with self.apart():
            pairs = [] if keep_gradient else self._common
            graphs = self.graphs[0], self.graphs[place]
            local = by_factors(*graphs, pairs, weights) if pairs else None
            if local is None:
                pairs = []
                own = gradient(self.draws[place], self.params, weights)
                vector = self.graphs[place].joined(own)
                local = directional(self.graphs[0], self._in_metric(vector))
        self.route, self.reason = local.route, local.reason
        self.passes += (self.product_cost - saved(pairs, self.params)) / len(self.draws)
        if keep_gradient and place == 1:
            self._second_gradient = vector
        elif keep_gradient:
            self._pulled = weights, vector
        return self._noted("product", reduce.mean_small(local.values))

    @functools.cached_property
    def _is_watched(self) -> bool:
        """Whether the user's backward has to pass the graphs, though all gradients are known.

        It runs the parameters' own hooks, once, and fills the ``.grad`` of intermediate results.
        """
        retained = any(retains(graph.walked) for graph in self.graphs)
        return retained or hooks.on_leaves(self.params)

    @functools.cached_property
    def _common(self) -> list[tuple[Layer, Layer]]:
        """The layers of the first two draws (or the only one) whose gradients a product skips."""
        second = self.graphs[min(1, len(self.graphs) - 1)]
        return common(self.graphs[0], second) if self.metric is None else []

    @functools.cached_property
    def _separate_rows(self) -> list[Tensor]:
        """All gradients of each draw, where they cost no more than a backward; none elsewhere.

        So it is where the losses of a draw have hardly a node in common: a backward of each passes
        the whole graph once, and the rest is known. Several processes would have to send all of
        them, and a third draw has another backward to come.
        """
        graphs = self.graphs
        entries = len(graphs) * len(self.names) * sum(map(width_of, self.params))
        if len(graphs) > 2 or entries > SEPARATE_ENTRIES or reduce.is_distributed():
            return []
        if not all(graph.is_separate and not graph.is_wrapped for graph in graphs):
            return []
        if any(hooks.possible(graph) for graph in graphs):
            return []
        rows = [all_rows(graph) for graph in graphs]
        self._rows = rows[0] if len(rows) == 1 else (rows[0] + rows[1]) / 2
        self.route = "rows"
        self.passes += self.rows_cost
        return rows

    def _product_of_rows(self, weights: Tensor, rows: Sequence[Tensor]) -> Tensor:
        """As `product`, from the gradients of the draws: `scalar` then has the direction too."""
        direction = self._in_metric(split(combined(weights, rows[-1]), self.params))
        return self._noted("product", along(rows[0], direction).to(rows[0]))

    @property
    def rows_cost(self) -> float:
        """What all gradients of the draws cost, in backwards: fewer than M of separate losses."""
        each = [1 + g.overlap if g.is_separate else len(self.names) for g in self.graphs]
        return sum(each) / len(each)

    @property
    def product_cost(self) -> int:
        """What a product costs, in backwards: one, and a tangent pass or what took its place."""
        instead = {"double-vjp": 3, "backwards": len(self.names)}
        return 1 + instead.get(self.route, 1)

    def extra(self, weights: Tensor) -> float:
        """`passes`, without those that ``backward()`` with these weights need not do again."""
        if self._rows is not None or self._is_pulled(weights):
            return self.passes - 1
        return self.passes - (self._second_gradient is not None) / max(len(self.draws), 1)

    def _in_metric(self, vector: Sequence[Tensor]) -> Sequence[Tensor]:
        """A gradient, or what the optimizer's step with it is."""
        return vector if self.metric is None else self.metric.along(self.given, vector)

    def cross(self, like: Tensor) -> Tensor:
        """G1ᵀG2 of the first two draws, (…, M, M), by one product for each objective.

        Args:
            like: Weights: their shape, (…, M), dtype and device are the result's.
        """
        self._refuse_metric("products of all objectives, whose momentum would count M times")
        units = torch.eye(like.shape[-1]).to(like)
        columns = [self.product(unit.expand(like.shape)).to(like) for unit in units]
        del self.findings["product"]  # a column is not G1ᵀ(G2 λ)
        return torch.stack(columns, -1)

    def _noted(self, name: str, evidence: Tensor) -> Tensor:
        self.findings[name] = evidence
        return self.finite(evidence)

    def finite(self, evidence: Tensor) -> Tensor:
        """What was computed from evidence: raises if it is not finite."""
        if not is_finite(evidence):
            raise NonFinite
        return evidence

    def values(self) -> Tensor:
        """As `losses`, for a method that computes with them: raises if they are not finite."""
        return self.finite(self.losses)

    @property
    def sinks(self) -> list[Node]:
        """Where ``DistributedDataParallel`` waits for the user's backward."""
        return [sink for graph in self.graphs for sink in graph.sinks]

    @property
    def shards(self) -> Shards | None:
        """How FSDP2 holds the parameters or the others, if it does."""
        return next((graph.shards for graph in self.graphs if graph.shards is not None), None)

    @property
    def entered(self) -> set[int]:
        """What the graphs hold of the parameters and depend on, by ``id``."""
        return {entered for graph in self.graphs for entered in graph.entrances}

    @functools.cached_property
    def looked_up(self) -> dict[int, list[Tensor]]:
        """The rows of the parameters, by their ``id``, whose gradients are sparse in every graph.

        None of several processes, each of which looks up rows of its own.
        """
        if reduce.is_distributed() or self.shards is not None:
            return {}
        each = [(looked_up(graph), graph.entrances) for graph in self.graphs]
        return {
            number: [rows for found, _ in each for rows in found.get(number, ())]
            for number in {number for found, _ in each for number in found}
            if all(number in found for found, entrances in each if number in entrances)
        }

    @property
    def reached(self) -> set[int]:
        """The given parameters, by their ``id``, that the losses depend on."""
        return set().union(*(graph.reached for graph in self.graphs))

    def apart(self) -> AbstractContextManager[None]:
        """Within, backwards are ours alone."""
        return self._apart() if any(graph.is_wrapped for graph in self.graphs) else nullcontext()

    @contextmanager
    def _apart(self) -> Iterator[None]:
        with ExitStack() as stack:
            for graph in self.graphs:
                stack.enter_context(graph.apart())
            yield

    @functools.cached_property
    def others(self) -> list[Tensor]:
        """Leaves with gradient that the losses reach and the method does not weigh."""
        return list({id(leaf): leaf for graph in self.graphs for leaf in graph.others}.values())

    @no_autocast()
    def scalar(self, weights: Tensor, draws: slice = slice(None)) -> Tensor:
        """The scalar worth λᵀF whose gradient is G λ on the parameters, as the delivery has it.

        Args:
            weights: λ.
            draws: The draws that x moves on: their mean. All of them by default, and where there
                are none of these (between updates one vector will do).
        """
        used = self.draws[draws] or self.draws
        # The rows are known: their weighted sum is the gradient, and no backward is left to do.
        whole = len(used) == len(self.draws)
        if self._rows is not None and whole and not self._is_watched:
            direction = self._known_direction(weights, self._rows)
            if self._spread:
                direction = reduce.collected(direction, sum(map(width_of, self.params)))
            return self.scalar_along(weights, direction)
        # Of what FSDP2 ignores, nobody but us takes the mean over the processes.
        unheld = self.shards is not None and self.shards.ignores(self.given, self.others)
        if self.guards or unheld or self._is_rescaled(weights) or self._is_pulled(weights):
            return self._along(weights, used, self._combined(weights, used))
        values = [weighted(vector, weights) for vector in used]
        if not self.others and self._second_gradient is None:
            return mean(values)
        wanted = self._on_heads(weights)
        missing = [wanted - weights] * len(used)
        # So is that of the second draw's gradient, on the parameters and (all of it) on the others.
        if self._second_gradient is not None:
            values[1] = self._attached(values[1].detach(), self._second_gradient)
            missing[1] = wanted
        value = mean(values)
        if not self.others or not any(weight.any() for weight in missing):
            return value
        return self._attached(value, on_others=self._on_others(used, missing))

    @no_autocast()
    def _known_direction(self, weights: Tensor, rows: Tensor) -> Tensor:
        """λᵀJ: what it loses by cancelling is told by the Gramian, unless that is in a metric."""
        if self.metric is not None:
            return combined_wide(weights, rows, rows.dtype)
        return combined(weights, rows, self.findings.get("gramian"))

    @no_autocast()
    def scalar_along(self, weights: Tensor, direction: Tensor) -> Tensor:
        """The scalar worth λᵀF whose gradient is ``direction``, whatever the losses' gradients.

        Args:
            weights: λ, for the value (and for the others, where they are weighted).
            direction: Flat, in the order of `params`.
        """
        return self._along(weights, self.draws, split(direction, self.params))

    def _along(
        self, weights: Tensor, used: Sequence[Tensor], direction: Sequence[Tensor]
    ) -> Tensor:
        """The scalar whose gradient is the direction as it is delivered: no backward is left."""
        on_others = self._on_others(used, [self._on_heads(weights)] * len(used))
        delivered = self._delivered(direction, used)
        if self.guards:
            weights, delivered, on_others = self._guarded(weights, used, delivered, on_others)
        value = mean([weighted(vector.detach(), weights) for vector in used])
        return self._attached(value, delivered, on_others)

    @property
    def guards(self) -> bool:
        """Whether the step must raise no loss."""
        return self.stepping is not None and self.stepping.guard

    def _guarded(
        self,
        weights: Tensor,
        used: Sequence[Any],
        direction: Sequence[Tensor],
        on_others: Sequence[Tensor],
    ) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor]]:
        """Weights, direction and the others' gradients after which the step raises no loss."""
        assert self.stepping is not None
        if hooks.change_gradients([*self.params, *self.others, *self.given, *self.given_others]):
            raise BadValue(
                "guard must be False where parameters have hooks of their own, which change the "
                "gradient after it is guarded, found one"
            )
        # The others change with the weighed ones, unless that would make a sparse gradient dense.
        pairs = list(zip(self.given_others, on_others, strict=True))
        heads = [pair for pair in pairs if pair[1].layout is torch.strided]
        beside = [pair for pair in pairs if pair[1].layout is not torch.strided]
        weighed = [*self.given, *(p for p, _ in heads)]
        everything = [*weighed, *(p for p, _ in beside)]
        joined = reduce.mean_large([dense(g) for _, g in (*heads, *beside)])
        found = guard(
            Guarding(
                steps=self.stepping.steps,
                params=everything,
                gradients=[*direction, *joined],
                weighed=len(weighed),
                falls=lambda moved: self._falls_of(used, everything, moved),
                rows=lambda: self._rows_of(used, weighed),
                rounding=self.rounding,
                fine=self.coarsest <= torch.finfo(torch.float32).eps,
            )
        )
        self.findings |= {"effect": found.effect, "added": found.added, "guarded": found.outcome}
        if not found.extra:
            return weights, direction, on_others
        extra = {id(p): part for p, part in zip(weighed, found.extra, strict=True)}
        parts = zip(self.given, direction, strict=True)
        return (
            weights + found.added.to(weights),
            [old + extra[id(p)].to(old.dtype) for p, old in parts],
            [g + extra[id(p)].to(g.dtype) if id(p) in extra else g for p, g in pairs],
        )

    @property
    def given_others(self) -> list[Tensor]:
        """The others as their optimizer has them."""
        return self.others if self.shards is None else [*map(self.shards.given_of, self.others)]

    @property
    def coarsest(self) -> float:
        """The coarsest rounding in the graphs: half's, where autocast computes in it."""
        return max(graph.rounding for graph in self.graphs)

    def _graph(self, vector: Tensor, params: Sequence[Tensor]) -> Graph:
        """The graph of a draw: the one that there is, where no other parameters are asked for."""
        known = (g for g in self.graphs if g.losses is vector and len(params) == len(self.given))
        return next(known, None) or record(vector, params)

    def _falls_of(
        self, used: Sequence[Tensor], params: Sequence[Tensor], moved: Sequence[Tensor]
    ) -> Tensor:
        """Gᵀs, the mean over the draws used and over processes: one tangent pass for each."""
        total = torch.zeros(len(self.names), dtype=torch.float64)
        for vector in used:
            graph = self._graph(vector, params)
            with graph.apart():
                total += directional(graph, moved).values.cpu().double() / len(used)
        return reduce.mean_small(total.to(used[0].device))

    def _rows_of(self, used: Sequence[Tensor], params: Sequence[Tensor]) -> Tensor:
        """Gᵀ on these parameters, the mean over the draws used: all of it on every process."""
        if self._rows is not None and not self._spread and len(params) == len(self.given):
            return self._rows
        total: Tensor | float = 0.0
        for vector in used:
            graph = self._graph(vector, params)
            with graph.apart(), hooks.muted(graph.params):
                total = total + all_rows(graph) / len(used)
        assert isinstance(total, Tensor)
        return total

    def _attached(
        self, value: Tensor, direction: Sequence[Tensor] = (), on_others: Sequence[Tensor] = ()
    ) -> Tensor:
        """A scalar with known gradients: the parameters' (of all processes), and the others'."""
        known: list[tuple[Tensor, Tensor]] = []
        if direction:
            entered = self.entered
            used = [id(p) in entered for p in self.params]
            device, sharded = self.params[0].device, self.shards is not None
            shares = sinks.shares_of_use(used, self.sinks, device, sharded=sharded)
            parts = zip(self.params, direction, shares, strict=True)
            found = self.looked_up
            known += [
                (p, _like_autograd(p, part if share == 1 else part * share, found))
                for p, part, share in parts
                if share
            ]
        if on_others:
            known += zip(self.others, on_others, strict=True)
        own = [
            (p, part) if self.shards is None else self.shards.shard(p, part) for p, part in known
        ]
        return attached(value, [p for p, _ in own], [part for _, part in own], self._finish)

    def _finish(self) -> None:
        """Within the user's backward, where it does not pass the model: tell the wrappers."""
        sinks.passed(self.sinks)
        if self.shards is not None:
            self.shards.finished([*self.params, *self.others])

    def _is_rescaled(self, weights: Tensor) -> bool:
        """Whether the length of G λ has to be known: the mean gradient's is that of uniform λ."""
        if self.delivery.max_norm is not None:
            return True
        if self.delivery.length != "mean gradient":
            return False
        return not torch.equal(weights, torch.full_like(weights, 1 / len(weights)))

    def _delivered(self, direction: Sequence[Tensor], used: Sequence[Tensor]) -> Sequence[Tensor]:
        """The direction with the length that the delivery gives it."""
        if not self.delivery.rescales:
            return direction
        mean, rounding = None, 0.0
        if self.delivery.length == "mean gradient":
            mean, rounding = self._mean_norm(used), self.coarsest
        factor = self.delivery.factor(norm(direction), mean, rounding)
        self.scale = factor.item()
        return [part * factor.to(part) for part in direction]

    def _mean_norm(self, used: Sequence[Tensor]) -> Tensor:
        """‖g₀‖ of the mean gradient: from the rows where they are known, else by a backward."""
        if self._rows is not None and not hooks.on_leaves(self.params):
            wide = torch.promote_types(self._rows.dtype, torch.float32)
            found = norm([self._rows.mean(0, dtype=wide)])
            return reduce.sum_small(found.square()).sqrt() if self._spread else found
        return norm(self._gradient(used, torch.full_like(used[0], 1 / len(used[0]))))

    def _combined(self, weights: Tensor, used: Sequence[Tensor]) -> Sequence[Tensor]:
        """G λ, the mean over the draws, by the one backward that ``backward()`` would do."""
        if self._pulled is not None and self._is_pulled(weights):
            return self._pulled[1]
        if self._second_gradient is None:
            return self._gradient(used, weights)
        first = self._gradient(used[:1], weights)
        return [(a + b) / 2 for a, b in zip(first, self._second_gradient, strict=True)]

    def _is_pulled(self, weights: Tensor) -> bool:
        """Whether a product of the only draw has left G λ."""
        return self._pulled is not None and torch.equal(self._pulled[0], weights)

    def _gradient(self, used: Sequence[Tensor], weights: Tensor) -> Sequence[Tensor]:
        """G λ of the global batch, without the parameters' own hooks: the scalar's run them."""
        shares = [weights.to(vector) / len(used) for vector in used]
        with self.apart(), hooks.muted(self.params):
            return self.graphs[0].joined(pulled(list(used), self.params, shares))

    def _on_heads(self, weights: Tensor) -> Tensor:
        """The weights of the losses' gradients on the others."""
        return weights if self.delivery.heads == "weighted" else torch.ones_like(weights)

    def _on_others(self, draws: Sequence[Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Gradient with respect to the others of the mean over draws of λᵀF, a λ for each."""
        if not self.others:
            return []
        shares = [w.to(vector) / len(draws) for vector, w in zip(draws, weights, strict=True)]
        with self.apart(), hooks.muted(self.others):
            # A sparse gradient stays one: its optimizer may insist.
            total: Sequence[Tensor] = differentiated(
                draws, self.others, shares, retain_graph=True, materialize_grads=True
            )
        return total if self.shards is None else self.shards.joined(self.others, total)


def _mean_of(values: Sequence[Sequence[float]], device: torch.device) -> Tensor:
    """The mean over draws of their losses' values."""
    means = [sum(each[1:], start=each[0]) / len(each) for each in zip(*values, strict=True)]
    return torch.tensor(means, dtype=torch.float64, device=device)


def _like_autograd(p: Tensor, gradient: Tensor, found: dict[int, list[Tensor]]) -> Tensor:
    """A known gradient, sparse where autograd's own would be."""
    return sparse(gradient, found[id(p)]) if id(p) in found else gradient


def observed(losses: Losses, objectives: int | Names, counts: Counts | None = None) -> Tensor:
    """The values of losses that need no graph: in float64, of all processes.

    Args:
        losses: M losses, possibly computed under ``torch.no_grad()``.
        objectives: The number M of objectives that there must be, or their names.
        counts: How many samples of each objective they are means over, on this process.

    Returns:
        F; NaN for an objective that is absent.
    """
    called = _called(objectives)
    vector, there = loss_vector(losses, called, graph=False)
    samples = None if counts is None else checked_counts(counts, called, 1)
    presence = Presence(called, 1, samples, keep=False, due=False)
    presence.join(vector.detach()[None], torch.tensor([there]))
    return presence.losses.to(vector.device)


def _called(objectives: int | Names) -> Names:
    """The names of the objectives, where no more than their number may be known."""
    return names(objectives) if isinstance(objectives, int) else objectives


def _check_distinct(draws: Sequence[Tensor]) -> None:
    """Two draws must be two batches: the same losses passed twice are no double sampling."""
    made = [origins(vector) for vector in draws] if len(draws) > 1 else []
    for i, j in combinations(range(len(made)), 2):
        # Rows of one tensor, computed for all draws at once, share their origin, not their values.
        if made[i] == made[j] and torch.equal(draws[i].sort().values, draws[j].sort().values):
            raise BadValue(
                f"losses (draw {i + 1}) and losses (draw {j + 1}) are the same losses: each draw "
                "must be computed from a batch of its own"
            )
