"""Is the engine right on this machine, by which route, and what does a step cost?"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trimol.gradients import jacobian, product
from trimol.methods import get
from trimol.methods._registry import DEFAULT
from trimol.methods._verification import Verification
from trimol.tasks import Settings, Task
from trimol.training.loop import next_losses, start

OBJECTIVES, WIDTH, SAMPLES, ROUNDS = 8, 256, 256, 15
CLOSE = 1e-9  # in float64, of the product's length
Losses = Callable[[slice], Tensor]


def self_test() -> dict[str, Any]:
    """A step on a small network: is it exact, by which route, and at which cost?"""
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, OBJECTIVES)
    model = torch.nn.Sequential(*layers).double()
    x, y = torch.randn(SAMPLES, 64).double(), torch.randn(SAMPLES, OBJECTIVES).double()

    def losses(part: slice) -> Tensor:
        found: Tensor = (model(x[part]) - y[part]).square().mean(0)
        return found

    return {
        **_exactness(model, losses),
        "ratio": _ratio(model, losses),
        "objectives": OBJECTIVES,
        "method": DEFAULT,
    }


def verify_task(task: Task, method: str, batch_size: int) -> Verification:
    """Compare the first step of a method on a task with plain backwards."""
    settings = task.settings.get(method, Settings())
    run = start(task, method, batch_size=batch_size, hyperparameters=settings.method)
    losses, more = next_losses(run)
    return run.method.verify(*losses, **more)


def _exactness(model: nn.Module, losses: Losses) -> dict[str, Any]:
    """The engine's product beside that of Jacobians, row by row."""
    half, params = SAMPLES // 2, list(model.parameters())
    parts = slice(None, half), slice(half, None)
    weights = torch.full((OBJECTIVES,), 1 / OBJECTIVES, dtype=torch.float64)
    first, second = (jacobian(losses(part), params) for part in parts)
    by_hand = first @ (second.T @ weights)
    ours = product(losses(parts[0]), losses(parts[1]), weights, params)
    off = float((ours - by_hand).norm() / by_hand.norm())
    method = get(DEFAULT)(params, OBJECTIVES)
    method(*map(losses, parts)).backward()
    model.zero_grad()
    route = method.info.route if method.info is not None else ""
    return {"exact": off < CLOSE, "off": off, "route": route}


def _ratio(model: nn.Module, losses: Losses) -> float:
    """CPU time of a step over that of the plain sum, at equal samples, interleaved."""
    method, half = get(DEFAULT)(model.parameters(), OBJECTIVES), SAMPLES // 2

    def plain() -> None:
        losses(slice(None)).sum().backward()

    def weighed() -> None:
        method(losses(slice(None, half)), losses(slice(half, None))).backward()

    taken: dict[Callable[[], None], list[float]] = {plain: [], weighed: []}
    for _ in range(ROUNDS):
        for step, times in taken.items():
            start = time.process_time()
            for _ in range(4):
                step()
            times.append(time.process_time() - start)
    middle = {step: sorted(times)[ROUNDS // 2] for step, times in taken.items()}
    return middle[weighed] / middle[plain]
