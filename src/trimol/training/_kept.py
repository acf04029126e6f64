"""Measuring leaves what a task, its model and its data remember as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trimol._attributes import attributes_kept
from trimol._generators import IN_MEASURING, generators_kept, seed_generators
from trimol.tasks import Task


@contextmanager
def task_kept(
    task: Task, model: nn.Module | None, *others: Any, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """After this, all that a task remembers is as before: what is measured changes no training.

    Meanwhile the global generators are seeded: what is measured does not depend on theirs.
    """
    devices = [torch.device(device)]
    with (
        generators_kept(task, model, *others, devices=devices),
        buffers_kept(model),
        attributes_kept(task, model, *others),
    ):
        seed_generators(IN_MEASURING, devices=devices)
        yield


@contextmanager
def buffers_kept(model: nn.Module | None) -> Iterator[None]:
    """The model's buffers are put back after: the same tensors, as a forward may assign others."""
    places = [
        (module, name, buffer, buffer.clone())
        for module in (() if model is None else model.modules())
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, before in places:
                module._buffers[name] = buffer
                buffer.copy_(before)


@contextmanager
def groups_kept(optimizer: Optimizer) -> Iterator[None]:
    """After this, an optimizer's step sizes, which a task's scheduler may change, are as before."""
    groups = [dict(group) for group in optimizer.param_groups]
    try:
        yield
    finally:
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.update(before)
