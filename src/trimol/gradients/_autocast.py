"""Evidence has the precision of the forward pass: a surrounding autocast must not round it."""

from contextlib import ContextDecorator, ExitStack
from typing import Self

import torch


class no_autocast(ContextDecorator):  # noqa: N801  (read as what it does)
    """Switch ``torch.autocast`` off inside.

    The forward pass has recorded its own casts, and backward follows them. But a method may be
    called within the user's autocast block, which would round λ and each product to bfloat16.
    """

    def __init__(self) -> None:
        self.stack: ExitStack | None = None

    def _recreate_cm(self) -> Self:
        """One for each call of a function that it decorates."""
        return type(self)()

    def __enter__(self) -> None:
        enabled = [device for device in _devices() if torch.is_autocast_enabled(device)]
        if enabled:
            self.stack = ExitStack()
            for device in enabled:
                self.stack.enter_context(torch.autocast(device, enabled=False))

    def __exit__(self, *error: object) -> None:
        if self.stack is not None:
            self.stack.close()


def _devices() -> list[str]:
    accelerator = _accelerator()
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]


def _accelerator() -> torch.device | None:
    """The device beside the CPU, if there is one."""
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:  # torch 2.6 raises where later releases return None
        return None
