"""Is a step of the engine what plain backwards give, on the user's own model?"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trimol._failures import BadValue
from trimol._warnings import hearing
from trimol.gradients import Evidence, Losses
from trimol.gradients import _hooks as hooks
from trimol.gradients import _reduce as reduce
from trimol.gradients._backward import norm
from trimol.gradients._plain import PlainEvidence, plain_gradients

# Two exact ways differ by rounding, which sums and differences amplify.
_ROUNDING_POWER = 0.4


class WrongGradient(ArithmeticError):
    """A step differs from plain backwards by more than rounding."""


@dataclass(frozen=True)
class Verification:
    """How far one step is from the same step by plain backwards.

    ``print(verification)`` says it in one line.

    Attributes:
        method: The method's class.
        route: How the engine computed what the method asked for.
        reason: Why a faster exact way was not possible; empty if it was.
        difference: The largest relative difference: of a parameter's gradient, the Gramian or the
            product.
        where: What differs most.
        tolerance: The largest difference that rounding explains.
        backwards: How many plain backwards it was held to.
    """

    method: str
    route: str
    reason: str
    difference: float
    where: str
    tolerance: float
    backwards: int

    @property
    def exact(self) -> bool:
        """Whether the difference is no more than rounding."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        verdict = "exact" if self.exact else "WRONG"
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"{self.method}: {verdict}. Largest relative difference to {self.backwards} plain "
            f"backwards: {self.difference:.1e} ({self.where}; tolerance {self.tolerance:.0e}). "
            f"Route: {self.route or 'the losses alone'}{why}."
        )


class _Step(NamedTuple):
    """A step that a copy of a method took."""

    evidence: Evidence
    scalar: Tensor
    method: Any


def verify(method: Any, losses: Sequence[Losses | None], more: Mapping[str, Any]) -> Verification:
    """Take the same step twice with copies of a method: by the engine, and by plain backwards."""
    if reduce.is_distributed():
        raise BadValue(
            "verify compares within one process, found several: call it before they start, on the "
            "model without its wrapper"
        )
    ours, plain = (_step(method, kind, losses, more) for kind in (Evidence, PlainEvidence))
    if method.needs != "jacobian" and not plain.evidence.keeps:
        # Weights may jump where the Gramian differs by rounding: hold the gradient to the same λ.
        again = plain.method.scalar(plain.evidence, method.weights, ours.method.weights)
        plain = plain._replace(scalar=again)
    tolerance = ours.evidence.coarsest**_ROUNDING_POWER
    found = {**_of_gradients(ours, plain, tolerance), **dict(_of_evidence(ours, plain))}
    where = max(found, key=lambda name: found[name])
    info, reason = ours.method.info, ours.method.info.reason
    if found[where] > tolerance and any(map(hooks.possible, ours.evidence.graphs)):
        reason = "a hook in the graph that is not linear makes every backward another one"
    return Verification(
        method=type(method).__name__,
        route=info.route,
        reason=reason,
        difference=found[where],
        where=where,
        tolerance=tolerance,
        backwards=len(ours.evidence.draws) * len(ours.evidence.names),
    )


def _step(
    method: Any, kind: type[Evidence], losses: Sequence[Losses | None], more: Mapping[str, Any]
) -> _Step:
    """Take a step with a copy: the method and the losses' graphs stay as they are."""
    shared = [*method.params, method.steps, method.info]
    twin = copy.deepcopy(method, {id(each): each for each in shared})
    with hearing(lambda _text: None):
        evidence = twin._evidence(losses, kind=kind, **more)
        return _Step(evidence, twin._take(evidence), twin)


def _of_gradients(ours: _Step, plain: _Step, tolerance: float) -> dict[str, float]:
    """Compare what both scalars leave in each parameter, relative to the gradients it is made of.

    A parameter whose gradients cancel to rounding (a bias before a normalisation) is held to the
    others' size.
    """
    weighed, others = ours.evidence.given, ours.evidence.others
    leaves = [*weighed, *others]
    pairs = zip(*(plain_gradients(step.scalar, leaves) for step in (ours, plain)), strict=True)
    apart = [(_distance(a, b), float(norm([b.nan_to_num()]))) for a, b in pairs]
    own = ours.method.weights.abs() * ours.evidence.scale
    shares = [*[own] * len(weighed), *[torch.maximum(own, torch.ones_like(own))] * len(others)]
    sizes = torch.zeros(len(leaves), dtype=torch.float64)
    for draw in plain.evidence.draws:
        for m, loss in enumerate(draw):
            rows = plain_gradients(loss, leaves)
            sizes += torch.stack(
                [
                    s[m].cpu() * norm([g.nan_to_num()]).cpu()
                    for s, g in zip(shares, rows, strict=True)
                ]
            )
    sizes = torch.maximum(sizes / len(ours.evidence.draws), torch.tensor([b for _, b in apart]))
    least = max(tolerance * float(sizes.norm()), torch.finfo(torch.float64).tiny)
    return {
        f"parameter {place} of shape {tuple(leaf.shape)}": gap / max(float(size), least)
        for place, (leaf, (gap, _), size) in enumerate(zip(leaves, apart, sizes, strict=True))
    }


def _of_evidence(ours: _Step, plain: _Step) -> Iterator[tuple[str, float]]:
    """Compare the Gramian and the product, relative to their lengths."""
    for name in ("gramian", "product"):
        one, two = (getattr(step.method.info, name) for step in (ours, plain))
        if one is not None and two is not None:
            largest = max(float(norm([two.nan_to_num()])), torch.finfo(torch.float64).tiny)
            yield f"the {name}", _distance(one.cpu().double(), two.cpu().double()) / largest


def _distance(one: Tensor, two: Tensor) -> float:
    """‖a − b‖; what is not finite must be so in both."""
    finite = one.isfinite()
    if not torch.equal(finite, two.isfinite()):
        return float("inf")
    return float(norm([torch.where(finite, one - two, 0)]))
