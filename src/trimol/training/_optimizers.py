"""Optimizers by name, for runs, in place of the task's own."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from trimol._checks import one_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

OptimizerName = Literal["sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad"]
# What a run gives to a method itself: no hyper-parameter.
GIVEN = frozenset({"optimizer"})
NAMES: tuple[str, ...] = get_args(OptimizerName)
# torch's class, and what is not as torch has it.
_MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
}


def named(name: OptimizerName, params: "Iterable[Tensor]", lr: float) -> "Optimizer":
    """The optimizer of a name, at the step size α.

    >>> import torch
    >>> made = named("nesterov", [torch.zeros(1, requires_grad=True)], lr=0.1)
    >>> made.param_groups[0]["momentum"], made.param_groups[0]["nesterov"]
    (0.9, True)
    """
    from torch import optim  # here: commands know the names before torch is loaded

    one_of("optimizer", name, NAMES)
    kind, options = _MADE[name]
    made: Optimizer = getattr(optim, kind)(params, lr=lr, **options)
    return made


def usual_lr(name: OptimizerName, own: "Optimizer") -> float:
    """A step size to begin with, where only that of the task's own optimizer is known.

    Of the same kind: the task's, by 1 − momentum, the share of a gradient that a step then has; of
    another kind, torch's default.

    Args:
        name: The optimizer that is asked for.
        own: The task's own.

    Example:
        >>> import torch
        >>> sgd = torch.optim.SGD([torch.zeros(1)], lr=3.0)
        >>> usual_lr("sgd", sgd), round(usual_lr("momentum", sgd), 9), usual_lr("adam", sgd)
        (3.0, 0.3, 0.001)
    """
    from torch import optim

    kind, options = _MADE[name]
    if type(own) is not getattr(optim, kind):
        return float(getattr(optim, kind)(own.param_groups[0]["params"]).defaults["lr"])
    rests = [1 - given.get("momentum", 0.0) for given in (options, own.defaults)]
    return float(own.defaults["lr"] * rests[0] / rests[1])


def needs_optimizer(hyperparameters: Mapping[str, Any]) -> bool:
    """Whether a method with these weighs the losses for the optimizer's step, and so must see it.

    >>> needs_optimizer({"guard": True}), needs_optimizer({"guard": False, "gamma": 0.1})
    (True, False)
    """
    return bool(hyperparameters.get("guard")) or "metric" in hyperparameters
