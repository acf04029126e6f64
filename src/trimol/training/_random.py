"""The random numbers of a run (dropout's masks): its own, whatever the caller's are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from trimol.training.loop import Run


def part_ways(process: int) -> None:
    """Other random numbers (dropout's masks) on every process, for its other samples."""
    if process:
        torch.manual_seed(int(torch.randint(2**31, (process,))[-1]))


@contextmanager
def random_numbers(run: "Run") -> Iterator[None]:
    """The run's own random numbers, going on where they stopped; the caller's are put back."""
    device = run.where.device
    with forked(device):
        torch.set_rng_state(run.random[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(run.random[1], device)
        try:
            yield
        finally:
            run.random = random_states(device)


def forked(device: torch.device) -> Any:
    """The caller's random numbers are put back after."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def random_states(device: torch.device) -> list[Tensor]:
    """Those of the CPU and, on an accelerator, of its device."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *own]
