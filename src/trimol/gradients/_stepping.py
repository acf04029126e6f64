"""The steps that an optimizer is going to take, for the parameters of a method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trimol._failures import BadType, BadValue
from trimol.gradients._params import flattened, split
from trimol.gradients._updates import Affine, Place, rule_of, unwrapped


class Momentum(NamedTuple):
    """What the part k of a step that is decided before the gradient does, in units of the lr.

    Attributes:
        pull: Gᵀk: how much it lowers each loss, to first order.
        size: kᵀS⁻¹k, its length in the metric, squared.
    """

    pull: Tensor
    size: Tensor


class Steps:
    """An optimizer, asked what it would do.

    Args:
        optimizer: One of those that `trimol.gradients._updates` knows, or accelerate's or
            Lightning's around it.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = unwrapped(optimizer)
        self.rule = rule_of(self.optimizer)
        if any(group.get("maximize") for group in self.optimizer.param_groups):
            raise BadValue("optimizer must minimise, found one with maximize=True")

    def check(self, params: Sequence[Tensor]) -> None:
        """Raise if it moves none of the parameters, or if these are complex."""
        _check_real(params)
        groups = self._groups()
        if not any(id(p) in groups for p in params):
            raise BadValue(
                f"optimizer must hold the method's parameters, found none of its {len(params)} "
                "(parameters of another model, or from before they were sharded?)"
            )

    def moves_all(self, params: Sequence[Tensor]) -> bool:
        """Whether all of the parameters are in its groups."""
        return {id(p) for p in params} <= self._groups().keys()

    def unit(self, params: Sequence[Tensor]) -> float:
        """The largest learning rate among the parameters'; 1 where none of them moves."""
        groups = self._groups()
        rates = [float(groups[id(p)]["lr"]) for p in params if id(p) in groups]
        return max(rates, default=0.0) or 1.0

    def affine(self, params: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Affine]:
        """k and S of each parameter at these gradients; zeros where the optimizer has it not."""
        _check_real(params)
        groups, found = self._groups(), []
        for p, g in zip(params, gradients, strict=True):
            wide = g.to(torch.promote_types(g.dtype, torch.float32))
            if id(p) in groups:
                state = self.optimizer.state.get(p, {})
                found.append(self.rule(Place(p, wide, groups[id(p)], state)))
            else:
                found.append(Affine(torch.zeros_like(wide), torch.zeros_like(wide)))
        return found

    def taken(self, params: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        """s: what the next step subtracts from each parameter, if these are its gradients."""
        pairs = zip(self.affine(params, gradients), gradients, strict=True)
        return [torch.addcmul(k, scale, g.to(scale)) for (k, scale), g in pairs]

    def flat(self, params: Sequence[Tensor]) -> Callable[[Tensor], Affine]:
        """`affine`, of one flat gradient of all the parameters, to flat k and S."""

        def of(gradient: Tensor) -> Affine:
            known, scale = zip(*self.affine(params, split(gradient, params)), strict=True)
            return Affine(flattened(known), flattened(scale))

        return of

    def _groups(self) -> dict[int, dict[str, Any]]:
        """The group of each parameter, by its ``id``: groups may be added between steps."""
        groups = self.optimizer.param_groups
        return {id(p): group for group in groups for p in group["params"]}


def _check_real(params: Sequence[Tensor]) -> None:
    for p in params:
        if p.is_complex():
            raise BadType(f"optimizer must be None for complex parameters, found {p.dtype}")


@dataclass(frozen=True)
class Stepping:
    """What a method's weights are chosen for, where that is more than the gradient.

    Attributes:
        steps: The optimizer.
        weights: λ before the step: an optimizer whose metric depends on the gradient is asked at
            G λ.
        metric: Whether evidence is in the optimizer's metric.
        guard: Whether the step must raise no loss.
    """

    steps: Steps
    weights: Tensor
    metric: bool
    guard: bool
