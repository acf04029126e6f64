"""What a step did to each loss: one look at it, on its batch or on training data.

A look is to first order: ∇f_m·s, with s the step really taken. Rounding is no rise: a loss rises
only beyond `_ROUNDING` units of the parameters' dtype, relative to ‖∇f_m‖‖s‖, and one relative to
‖∇f_m‖‖x‖, to which the parameters themselves are rounded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from trimol._failures import BadValue
from trimol.errors._bracket import Numbers
from trimol.errors._fulldata import Size, Walk, check_present, full_data
from trimol.errors._subsample import subsample
from trimol.gradients import _reduce as reduce
from trimol.gradients import effect
from trimol.gradients._autocast import no_autocast
from trimol.gradients._backward import norm
from trimol.gradients._graph import record
from trimol.gradients._params import flattened, trainable
from trimol.gradients._rows import gram, products, rounding, row_blocks
from trimol.gradients._sharded import whole

LossesOf = Callable[[Any], Tensor]
# Fewer batches tell no variance.
LEAST_BATCHES = 4
# A sum of many products is that much off, in units of the dtype.
_ROUNDING = 16
# With which probability all brackets of a look hold together.
_CONFIDENCE = 0.95


class Effects(NamedTuple):
    """∇f_m·s of each loss, and what it is certain to lie between."""

    values: Tensor
    low: Tensor
    high: Tensor
    norms: Tensor | None  # ‖∇f_m‖; None where it was not computed

    @property
    def finite(self) -> bool:
        """Whether all of them are numbers."""
        known = self.values if self.norms is None else torch.cat([self.values, self.norms])
        return bool(known.isfinite().all())


def on_batch(
    losses: LossesOf, params: Sequence[Tensor], step: Sequence[Tensor], batch: Any
) -> Effects:
    """Of the step's own batch; under ``torch.distributed`` that of all processes."""
    values, norms = _along(losses(batch), params, step)
    return Effects(values, values, values, norms)


def on_all(
    losses: LossesOf,
    params: Sequence[Tensor],
    step: Sequence[Tensor],
    train: Iterable[Any],
    size: Size | None,
) -> Effects:
    """Of all the training data."""
    jacobian = full_data(losses, params, train, name="train", size=size).jacobian
    flat = flattened(step).to(jacobian)
    values = (jacobian @ flat).cpu()
    return Effects(values, values, values, jacobian.norm(dim=1).cpu())


def on_some(
    losses: LossesOf,
    params: Sequence[Tensor],
    step: Sequence[Tensor],
    train: Iterable[Any],
    size: Size | None,
    *,
    batches: int,
    seed: Sequence[int],
) -> Effects:
    """Of random batches of the training data: estimates, and brackets that hold together."""
    rank = dist.get_rank() if reduce.is_distributed() else 0
    chosen, count = subsample(train, batches, [*seed, rank])
    if count < LEAST_BATCHES:
        raise BadValue(f"train must have at least {LEAST_BATCHES} batches, found {count}")
    values, sizes = [], []
    walk = Walk(chosen, params, name="train", size=size)
    for batch, samples in walk:
        vector, told = walk.read(losses, batch, samples)
        own = torch.as_tensor(told, dtype=torch.float64).to(walk.device)
        mean = reduce.mean_small(own)
        share = (own / mean.where(mean > 0, 1)).to(vector)  # 1 for a single process
        values.append(effect(vector * share, step, params).detach().cpu().double())
        sizes.append(mean.cpu())
    check_present(torch.stack(sizes).sum(0), "the batches of train")
    return _bracketed(torch.stack(values), torch.stack(sizes))


def _bracketed(values: Tensor, sizes: Tensor) -> Effects:
    """Student's bounds of each mean; the error probabilities of all of them add up."""
    alpha = (1 - _CONFIDENCE) / (2 * values.shape[1])
    numbers, turned = Numbers(values, sizes), Numbers(-values, sizes)
    return Effects(numbers.mean, numbers.lower(alpha), -turned.lower(alpha), None)


@no_autocast()
def _along(
    vector: Tensor, params: Sequence[Tensor], step: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """∇f_m·s and ‖∇f_m‖ of the global batch, with one gradient at a time in memory.

    The norms take a backward each, so that no tangent pass is needed; and in half precision it
    would round more than they do.
    """
    graph = record(vector, trainable(params))
    moved = [part for part, p in zip(step, params, strict=True) if p.requires_grad]
    flat, spread = flattened(moved), graph.spreads
    flat = reduce.share(flat) if spread else flat
    found = []
    with graph.apart():
        for _, rows in row_blocks(graph, 1, spread=spread):
            own = torch.cat([products(rows, flat[None]), gram(rows)])
            found.append((reduce.sum_small(own) if spread else own).reshape(-1).cpu())
    values, squares = torch.stack(found).unbind(1)
    return values, squares.sqrt()


def slack(norms: Tensor, step: Sequence[Tensor], params: Sequence[Tensor]) -> Tensor:
    """Up to where ∇f_m·s may be rounding alone, of sums and of the parameters."""
    stored = float(norm([whole(p.detach()) for p in params]))
    return rounding(params) * norms * (_ROUNDING * float(norm(step)) + stored)


@dataclass(frozen=True)
class StepLook:
    """What one step did to each loss, to first order.

    Attributes:
        step: The number of the step, from 0.
        effects: ∇f_m·s by objective: above 0, the step raises the loss.
        cosines: Those of the step with −∇f_m, by objective: 1 along its steepest descent, negative
            where the step raises it. None where they are not known (a subsample, a zero gradient).
        raised: The objectives that rise, beyond rounding; of a subsample, for certain.
        undecided: Those of which a subsample cannot tell.
        finite: Whether effects and gradients are finite; if not, nothing is said to rise.
        full: The same on the training data, where it was looked at.
    """

    step: int
    effects: dict[str, float]
    cosines: dict[str, float | None]
    raised: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    finite: bool = True
    full: "StepLook | None" = None

    @property
    def worst_cosine(self) -> float | None:
        """The least cosine that is known."""
        return min((c for c in self.cosines.values() if c is not None), default=None)


def judged(
    seen: Effects, names: Sequence[str], step: Sequence[Tensor], within: Tensor, number: int
) -> StepLook:
    """The look at step ``number``; effects up to ``within`` are rounding."""
    effects = dict(zip(names, seen.values.tolist(), strict=True))
    if not seen.finite:
        return StepLook(number, effects, dict.fromkeys(names), finite=False)
    rises = seen.low > within
    open_ = ~rises & (seen.high > within)
    return StepLook(
        step=number,
        effects=effects,
        cosines=dict(zip(names, _cosines(seen, float(norm(step))), strict=True)),
        raised=tuple(name for name, yes in zip(names, rises.tolist(), strict=True) if yes),
        undecided=tuple(name for name, yes in zip(names, open_.tolist(), strict=True) if yes),
    )


def _cosines(seen: Effects, length: float) -> list[float | None]:
    """−∇f_m·s/(‖∇f_m‖‖s‖)."""
    if seen.norms is None:
        return [None] * len(seen.values)
    pairs = zip(seen.values.tolist(), (seen.norms * length).tolist(), strict=True)
    return [-value / both if both > 0 else None for value, both in pairs]
