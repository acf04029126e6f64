"""Burgers' equation with mini-batches of points: the task that `steps.py` was run on.

    trimol run benchmarks/burgers.py:Burgers --method upgrad

The equation, the network and the exact solution are those of the task ``burgers``. What differs is
what that study was made with: a smaller network, and as many points of every kind, drawn apart.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from trimol.tasks import Batch, Settings
from trimol.tasks.pinn import burgers


class Burgers(burgers.Burgers):
    """As the task ``burgers``; a sample is a point inside, one at t = 0 and one at a wall.

    Args:
        width: Of the network's hidden layers.
        depth: How many there are.
        points: How many samples to train on.
        held_out: How many to choose settings on, and as many to test on.
        seed: Names the points.
    """

    settings: ClassVar[Mapping[str, Settings]] = {}

    def __init__(
        self,
        *,
        width: int = 20,
        depth: int = 3,
        points: int = 2000,
        held_out: int = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__(
            width=width,
            depth=depth,
            points=points,
            conditions=points,
            held_out=held_out,
            points_seed=seed,
        )

    def optimizer(self, params: Iterable[Parameter], lr: float) -> Optimizer:
        """Plain SGD, unless the study says otherwise."""
        return torch.optim.SGD(params, lr=lr)

    def _part(self, number: int, size: int, own: object) -> Batch:
        random = np.random.default_rng((self.points_seed, number))
        x, t = random.uniform(-1, 1, size), random.uniform(0, 1, size)
        start = np.stack([random.uniform(-1, 1, size), np.zeros(size)], 1)
        wall = np.stack([random.choice([-1.0, 1.0], size), random.uniform(0, 1, size)], 1)
        exact = burgers.solution(x, t)[:, None]
        arrays = (np.stack([x, t], 1), start, wall, exact, np.ones((size, 3)))
        return tuple(torch.from_numpy(array).float() for array in arrays)
