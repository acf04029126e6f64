"""A physics-informed network: Poisson's equation u'' = f on [0, 1], three losses, three point sets.

    python examples/pinn.py

The losses are the equation inside, the values at the border, and a few measurements; each is a mean
over points of its own, and every step sees all of them. There is then no second batch to draw:
MoDo takes one loss vector (draws=1), from one forward pass a point set.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

import trimol

INSIDE, BORDER = torch.linspace(0, 1, 64)[1:-1, None], torch.tensor([[0.0], [1.0]])


def solution(x: Tensor) -> Tensor:
    """What is to be found: u(x) = sin(2πx) + x."""
    return torch.sin(2 * math.pi * x) + x


def right_side(x: Tensor) -> Tensor:
    """u'' = f."""
    return -((2 * math.pi) ** 2) * torch.sin(2 * math.pi * x)


def losses(model: nn.Module, measured: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """One loss a point set: the residual needs two derivatives of the network by its input."""
    x = INSIDE.clone().requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return {
        "equation": (bend - right_side(x)).square().mean(),
        "border": (model(BORDER) - solution(BORDER)).square().mean(),
        "data": (model(measured[0]) - measured[1]).square().mean(),
    }


def main(steps: int = 250, method: str = "modo") -> float:
    """Train, and give the largest error of the solution."""
    torch.manual_seed(0)
    hidden = [nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()]
    model = nn.Sequential(*hidden, nn.Linear(32, 1))
    places = torch.rand(5, 1)
    measured = places, solution(places)
    names = ["equation", "border", "data"]
    options: dict[str, Any] = {"draws": 1, "gamma": 1e-6} if method == "modo" else {}
    weigh = trimol.methods.get(method)(model.parameters(), names, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        weigh(losses(model, measured)).backward()
        optimizer.step()
        optimizer.zero_grad()
    x = torch.linspace(0, 1, 201)[:, None]
    error: float = (model(x) - solution(x)).abs().max().item()
    weights = ", ".join(f"{name} {weight:.3f}" for name, weight in weigh.weights_by_name.items())
    print(f"{method}: largest error {error:.3f}  λ {weights}")
    return error


if __name__ == "__main__":
    for name in ("static", "modo", "upgrad"):
        main(method=name)
