"""Evidence has the precision of the forward pass: a surrounding autocast must not round it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def no_autocast() -> Iterator[None]:
    """Switch ``torch.autocast`` off inside.

    The forward pass has recorded its own casts, and backward follows them. But a method may be
    called within the user's autocast block, which would round λ and each product to bfloat16.
    """
    accelerator = _accelerator()
    devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    with ExitStack() as stack:
        for device in devices:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _accelerator() -> torch.device | None:
    """The device beside the CPU, if there is one."""
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:  # torch 2.6 raises where later releases return None
        return None
