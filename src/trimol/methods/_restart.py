"""A method at its first step beside an optimizer that is not: λ was not resumed with the rest.

A trainer that saves the model and the optimizer, and not a method that is no part of the model,
resumes with λ at its start. Nothing would show it; so it is said, once.
"""

import functools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trimol._warnings import warn
from trimol.gradients._hooks import WATCH

if TYPE_CHECKING:
    from trimol.methods.base import Method


# Methods after their first step, until the optimizer of their parameters steps.
_fresh: "weakref.WeakSet[Method]" = weakref.WeakSet()


def look_at_optimizer(method: "Method") -> None:
    """When the optimizer of this fresh method's parameters steps next: is it fresh, too?"""
    _fresh.add(method)
    _listen()


@functools.cache
def _listen() -> None:
    """Once a process: a hook cannot remove itself while the optimizer goes through its hooks."""
    # The first step's losses are recorded by now: it would spend two backwards to look for a hook.
    WATCH.pass_over(register_optimizer_step_pre_hook(_look))


def _look(optimizer: Optimizer, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    for method in list(_fresh):
        weighed = {id(p) for p in method.params}
        held = [p for group in optimizer.param_groups for p in group["params"] if id(p) in weighed]
        if not held:
            continue  # the optimizer of another model
        _fresh.discard(method)
        # Given a closure (Lightning does), the method's first step was inside the step before.
        closure = options.get("closure", args[1] if len(args) > 1 else None)
        done = _steps_done(optimizer, held) - (closure is not None)
        if done > 0:
            warn(_message(type(method).__name__, done))


def _steps_done(optimizer: Optimizer, params: Sequence[Tensor]) -> int:
    """How often it has stepped, as far as its state tells: 1 where it only tells that it has."""
    states = [optimizer.state[p] for p in params if optimizer.state.get(p)]
    return max((int(state.get("step", 1)) for state in states), default=0)


def _message(name: str, done: int) -> str:
    steps = f"{done} step{'s' * (done > 1)}" if done > 1 else "steps"
    return (
        f"{name}: at its first step, while the optimizer has done {steps} before: λ starts anew. "
        "If this run was resumed, save method.state_dict() with the model and load it, or make the "
        "method a part of the model (said once)"
    )
