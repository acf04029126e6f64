"""The loop: any task, any method, the same number of samples a step for all.

A batch is split into as many draws as the method takes, so no method sees more data than another.
Runs with the same seed start from the same parameters and see the same samples at every step,
whatever the method: their differences are the methods' doing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from trimol import methods
from trimol.data import IndependentDraws, split
from trimol.data.draws import whole_number
from trimol.methods import Method
from trimol.tasks import Batch, Data, Task


@dataclass
class Run:
    """A training run: all that changes from step to step, and what it works on.

    Attributes:
        task: What is trained.
        data: The task's data.
        model: The model in training.
        method: How its losses become one.
        optimizer: What moves its parameters.
        sampler: Which samples come next. ``sampler.step`` is the number of steps done.
        random: The state of torch's random numbers (for dropout and the like), the run's own.
    """

    task: Task
    data: Data
    model: nn.Module
    method: Method
    optimizer: Optimizer
    sampler: IndependentDraws
    random: Tensor


def start(
    task: Task,
    method: str,
    *,
    lr: float = 0.1,
    hyperparameters: Mapping[str, Any] | None = None,
    batch_size: int = 64,
    seed: int = 0,
) -> Run:
    """Set up a run; nothing is trained yet.

    Args:
        task: What to train.
        method: The method's name, one of `trimol.methods.names()`.
        lr: α, the step size of SGD.
        hyperparameters: The method's own, such as ``{"gamma": 0.01}``.
        batch_size: Samples a step, over all the draws of the method.
        seed: Decides the parameters at the start and the samples of every step.

    Example:
        >>> from trimol.tasks import get
        >>> run = start(get("digits")(), "modo", lr=1.0, hyperparameters={"gamma": 0.1})
        >>> run.method
        MoDo(objectives=3, every=1, gamma=0.1, rho=0)
    """
    data = task.data()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = task.model()
        random = torch.get_rng_state()
    weigh = methods.get(method)
    return Run(
        task=task,
        data=data,
        model=model,
        method=weigh(model.parameters(), len(task.objectives), **(hyperparameters or {})),
        optimizer=SGD(model.parameters(), lr=lr),
        sampler=IndependentDraws(data.train[0], batch_size, k=1, seed=seed),
        random=random,
    )


def train(run: Run, steps: int, *, watch: Callable[[Run], None] | None = None) -> Run:
    """Train for so many steps more, each on a fresh uniform mini-batch.

    Args:
        run: The run, which is changed in place.
        steps: How many steps to take.
        watch: Called after every step.

    Returns:
        The same run.

    Example:
        >>> from trimol.tasks import get
        >>> run = train(start(get("digits")(), "static"), steps=10)
        >>> run.sampler.step
        10
    """
    run.model.train()
    with _random_state(run):
        for (indices,) in islice(run.sampler.sets(), whole_number("steps", steps, least=0)):
            _step(run, tuple(tensor[indices] for tensor in run.data.train))
            if watch is not None:
                watch(run)
    return run


def _step(run: Run, batch: Batch) -> None:
    """One step: as many loss vectors as the method takes, from one batch."""
    parts = split(batch, run.method.draws if run.method.due else 1)
    loss = run.method(*[run.task.losses(run.model, part) for part in parts])
    loss.backward()
    run.optimizer.step()
    run.optimizer.zero_grad()


@contextmanager
def _random_state(run: Run) -> Iterator[None]:
    """The run's own random numbers, going on where they stopped; the caller's are put back."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(run.random)
        yield
        run.random = torch.get_rng_state()
