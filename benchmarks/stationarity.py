"""Does every method optimise? R_opt of each after a short run on problems with a known front.

    python benchmarks/stationarity.py

``quadratic``: three strongly convex quadratics in the plane, f_m(x) = ½ h_m ‖x − c_m‖² + 0.1; their
Pareto set is the triangle of the c_m. ``fonseca``: the two non-convex functions of Fonseca and
Fleming in three dimensions, f(x) = 1 − exp(−‖x ∓ 1/√3‖²) + 0.1; their Pareto set is the segment
between ∓1/√3. No noise: what is seen is the method. 500 steps of SGD, α falling linearly to zero;
each method with its defaults. R_opt = min over the simplex of ‖∇F λ‖, and the distance to the
Pareto set, at the end.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import trimol

CENTRES = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
CURVATURES = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
CORNER = torch.full((3,), 3**-0.5, dtype=torch.float64)


def quadratic(x: Tensor) -> Tensor:
    return CURVATURES / 2 * (x - CENTRES).square().sum(1) + 0.1


def fonseca(x: Tensor) -> Tensor:
    distances = torch.stack([(x - CORNER).square().sum(), (x + CORNER).square().sum()])
    return 1.1 - (-distances).exp()


def distance_to_triangle(x: Tensor) -> float:
    """By the min-norm point of the hull of the c_m − x."""
    offsets = CENTRES - x
    weights = trimol.simplex.min_norm(offsets @ offsets.T)
    return float((weights @ offsets).norm())


def distance_to_segment(x: Tensor) -> float:
    along = (x @ CORNER).clamp(-1, 1) * CORNER
    return float((x - along).norm())


@dataclass(frozen=True)
class Problem:
    """Losses with a known Pareto set, where to start, and how far to step."""

    losses: Callable[[Tensor], Tensor]
    distance: Callable[[Tensor], float]
    start: tuple[float, ...]
    alpha: float


PROBLEMS = {
    "quadratic": Problem(quadratic, distance_to_triangle, (6.0, 5.0), 0.3),
    "fonseca": Problem(fonseca, distance_to_segment, (0.9, -0.4, 0.3), 0.3),
}


def run(problem: Problem, name: str, steps: int = 500) -> dict[str, float]:
    """R_opt and the distance to the Pareto set after training with a method's defaults."""
    x = torch.tensor(problem.start, dtype=torch.float64, requires_grad=True)
    objectives = len(problem.losses(x))
    method = trimol.methods.get(name)([x], objectives)
    optimizer = torch.optim.SGD([x], lr=problem.alpha)
    fall = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        method(*[problem.losses(x) for _ in range(method.draws)]).backward()
        optimizer.step()
        optimizer.zero_grad()
        fall.step()
    errors = trimol.measure(lambda batch: problem.losses(x), [x], train=[torch.zeros(1)])
    return {"R_opt": errors.opt, "distance": problem.distance(x.detach())}


def main() -> None:
    parser = argparse.ArgumentParser(description="R_opt of every method after a short run.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--methods", nargs="+", default=trimol.methods.names())
    parser.add_argument("--json", action="store_true", help="one object a line, for machines")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.json:
        print("| method | " + " | ".join(f"{p}: R_opt | distance" for p in PROBLEMS) + " |")
        print("|---" * (1 + 2 * len(PROBLEMS)) + "|")
    for name in args.methods:
        found = {p: run(problem, name, args.steps) for p, problem in PROBLEMS.items()}
        if args.json:
            print(json.dumps({"method": name, **found}), flush=True)
        else:
            cells = [f"{value:.1e}" for errors in found.values() for value in errors.values()]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
