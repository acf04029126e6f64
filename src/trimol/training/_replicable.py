"""What may be trained as many replicas at once: models without hooks, optimizers by entries."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn, optim
from torch.optim import Optimizer

from trimol._failures import BadValue
from trimol.tasks import Task
from trimol.tasks import _answers as answers

# Optimizers that treat each entry on its own, with a step that is proportional to lr.
_ELEMENTWISE = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Adagrad,
    optim.Adadelta,
)


class NotReplicable(BadValue):
    """The task cannot be trained as many replicas at once; one by one it can."""


def check_hooks(task: Task, model: nn.Module) -> None:
    """A hook of the user's on a gradient would see those of all replicas, or none."""
    late = "_post_accumulate_grad_hooks"
    if any(p._backward_hooks or getattr(p, late, None) for p in model.parameters()) or any(
        module._backward_hooks or module._backward_pre_hooks for module in model.modules()
    ):
        raise NotReplicable(
            f"the model of task {task.name!r} must have no hooks on gradients, which are one "
            "run's: train its runs one by one"
        )


def check_padding(task: Task, model: nn.Module) -> None:
    """The gradient of ``padding_idx`` under vmap is 0 for the first replica alone (torch 2.13)."""
    if any(isinstance(m, nn.Embedding) and m.padding_idx is not None for m in model.modules()):
        raise NotReplicable(
            f"the model of task {task.name!r} has an embedding with padding_idx, whose gradient "
            "many replicas at once would have wrong: train its runs one by one"
        )


def optimizer_of(
    task: Task, params: list[Tensor], lr: float | Tensor, model: nn.Module
) -> Optimizer:
    """The task's optimizer, for all replicas, if it treats them as it treats one run's model."""
    made = answers.optimizer(task, params, 1.0 if isinstance(lr, Tensor) else lr)
    if type(made) not in _ELEMENTWISE:
        raise NotReplicable(
            f"optimizer must treat every entry on its own (SGD, Adam and their kin), found "
            f"{type(made).__name__}: train the runs one by one"
        )
    single, hooks = list(model.parameters()), vars(made)
    rates = lr.unique().tolist() if isinstance(lr, Tensor) else [lr]
    stacked = _groups(made, params)
    if any(hooks.get(f"_optimizer_step_{when}_hooks") for when in ("pre", "post")) or not all(
        _in_proportion(stacked, _groups(task.optimizer(single, rate), single), share)
        for rate, share in zip(rates, rates if isinstance(lr, Tensor) else [1.0], strict=True)
    ):
        raise NotReplicable(
            "optimizer must treat replicas as it treats one run (no hooks, no groups by the "
            "dimensions of a parameter, steps in proportion to lr): train the runs one by one"
        )
    return made


def _groups(optimizer: Optimizer, params: Sequence[Tensor]) -> list[tuple[list[int], Any]]:
    """Which parameters an optimizer moves how: their places, and the options of each group."""
    places = {id(p): place for place, p in enumerate(params)}
    return [
        ([places[id(p)] for p in group["params"]], {**group, "params": None})
        for group in optimizer.param_groups
    ]


def _in_proportion(
    stacked: Sequence[tuple[list[int], Any]], single: Sequence[tuple[list[int], Any]], share: float
) -> bool:
    """Whether one run has the same groups, with ``share`` of the step size."""
    return len(stacked) == len(single) and all(
        places == own_places
        and math.isclose(share * float(group["lr"]), float(own["lr"]), rel_tol=1e-9)
        and {**group, "lr": None} == {**own, "lr": None}
        for (places, group), (own_places, own) in zip(stacked, single, strict=True)
    )
