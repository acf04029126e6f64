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


def needs_optimizer(hyperparameters: Mapping[str, Any]) -> bool:
    """Whether a method with these weighs the losses for the optimizer's step, and so must see it.

    >>> needs_optimizer({"guard": True}), needs_optimizer({"guard": False, "gamma": 0.1})
    (True, False)
    """
    return bool(hyperparameters.get("guard")) or "metric" in hyperparameters
