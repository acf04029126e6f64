"""Two losses whose Pareto set is a known segment, with a convex and with a concave front."""

import math

import torch
from scipy.optimize import brentq

SIDE = 0.5**0.5


def convex(x):
    """‖x ∓ 1/√2‖² in two dimensions."""
    return torch.stack([(x - c).square().sum(-1) for c in (SIDE, -SIDE)], -1)


def concave(x):
    """1 − exp(−‖x ∓ 1/√2‖²) (Fonseca and Fleming): no weighted sum has its middle for a minimum."""
    return 1 - (-convex(x)).exp()


FRONTS = {"convex": convex, "concave": concave}


def on_the_front(t):
    """The point (t, t), of which |t| ≤ 1/√2 are the Pareto set."""
    return torch.tensor([t, t], dtype=torch.float64)


def on_the_ray(losses, prefer):
    """Where the front has p₁f₁ = p₂f₂, by bisection: the losses there."""

    def unequal(t):
        first, second = losses(on_the_front(t)).tolist()
        return prefer[0] * first - prefer[1] * second

    return losses(on_the_front(brentq(unequal, -SIDE, SIDE)))


def descended(make, losses, *, start=(0.3, -0.5), steps=300, lr=0.2, fall=True, **options):
    """Train x; the step size falls to zero, linearly, or stays."""
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        size = losses(x).numel()
    method = make([x], size, **options)
    optimizer = torch.optim.SGD([x], lr=lr)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / steps if fall else 1)
        optimizer.zero_grad()
        method(losses(x).flatten()).backward()
        optimizer.step()
    return x.detach(), method


def angle_to_the_ray(losses, prefer):
    """Between f and (1/p), in radians."""
    ray = 1 / torch.as_tensor(prefer, dtype=torch.float64)
    cosine = (losses @ ray / losses.norm() / ray.norm()).item()
    return math.acos(min(1.0, cosine))
