"""The random numbers of a run (dropout's masks): its own, whatever the caller's are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from trimol._generators import Generators, generators_kept, seed_generators

if TYPE_CHECKING:
    from trimol.training.loop import Run


def part_ways(process: int) -> None:
    """Other random numbers (dropout's masks) on every process, for its other samples."""
    if process:
        seed_generators(int(torch.randint(2**31, (process,))[-1]))


@contextmanager
def random_numbers(run: "Run") -> Iterator[None]:
    """The run's own random numbers, going on where they stopped; the caller's are put back."""
    devices = [run.where.device]
    with generators_kept(devices=devices):
        run.random.put_back()
        try:
            yield
        finally:
            run.random = Generators(devices=devices)
