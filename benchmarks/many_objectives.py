"""From evidence to weights with very many objectives: time, and how exact the solution is.

    python benchmarks/many_objectives.py  # M = 512: docs/understand/cost.md
    python benchmarks/many_objectives.py --objectives 64

Every method computes weights once, in float64, from random gradients of M objectives: independent
ones in 2M dimensions, dependent ones (in M/4 and in 3M/4 dimensions), nearly parallel ones, and
ones from which most of their mean was taken, so that all conflict. Times are CPU seconds of one
thread. The residual is that of the conditions that define the method's weights, computed from the
gradients and relative to the rounding of merely evaluating it: a few 1e-16 are exact. Methods whose
weights are no solution of a problem (a step, a random order) have none.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import trimol
from trimol.gradients._rows import gram
from trimol.maths import box, cone
from trimol.maths._numerics import EPS


@dataclass
class Given:
    """Evidence that is at hand: one Jacobian, and losses of one."""

    rows: Tensor
    rounding: float = EPS
    representation: None = None
    momentum: None = None
    reason: str = ""
    findings: dict[str, Any] = field(default_factory=dict)  # what methods say of a step

    def gramian(self, **options: object) -> Tensor:
        product = self.rows @ self.rows.T
        return (product + product.T) / 2

    def gram(self, rows: Tensor) -> Tensor:
        return gram(rows)

    def product(self, weights: Tensor, **options: object) -> Tensor:
        return self.rows @ (weights @ self.rows)

    def jacobian(self) -> Tensor:
        return self.rows

    def rows_of(self, places: Sequence[int]) -> Tensor:
        return self.rows[list(places)]

    def values(self) -> Tensor:
        return torch.ones(len(self.rows), dtype=torch.float64)

    def finite(self, evidence: Tensor) -> Tensor:
        return evidence


def gradients(objectives: int, seed: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Jacobians by kind."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    wide = normal(objectives, 2 * objectives)
    yield "independent", wide
    yield "rank M/4", normal(objectives, objectives // 4)
    yield "rank 3M/4", normal(objectives, 3 * objectives // 4)
    yield "nearly parallel", normal(1, 2 * objectives) + 1e-3 * wide
    yield "conflicting", wide - 0.99 * wide.mean(0)


def shortest(J: Tensor, weights: Tensor) -> float:
    """⟨gᵢ, d⟩ ≥ ‖d‖² for all i, with equality where there is weight."""
    d = weights @ J
    slack = J @ d - d @ d
    magnitude = J.norm(dim=1) * (weights @ J.norm(dim=1))
    wrong = torch.where(weights > 0, slack.abs(), -slack)
    return float((wrong / (magnitude + magnitude @ weights)).max())


def projections(J: Tensor, weights: Tensor) -> float:
    """Π(gᵢ) = gᵢ + vᵢJ: v ≥ 0, no conflict, no weight where gⱼ is not touched; their mean is d."""
    G = J @ J.T
    v = torch.from_numpy(cone.pushes(G.numpy()))
    norms = J.norm(dim=1)
    inner = (J + v @ J) @ J.T
    magnitude = norms * (norms + v @ norms)[:, None]
    wrong = torch.where(v > 0, inner.abs(), -inner) / magnitude
    mean = (weights - (1 + v.sum(0)) / len(J)).abs() / weights.abs()
    return max(float(wrong.max()), float((-v).max()), float(mean.max()), 0.0)


def worst_off(J: Tensor, weights: Tensor, c: float = 0.4) -> float:
    """min ⟨gᵢ, d⟩ in the ball meets its dual bound at w ∝ v (at a stationary point: zero)."""
    v, mean = weights - 1 / len(J), J.mean(0)
    radius = c * mean.norm()
    w = v / v.sum()
    bound = (w @ J) @ mean + radius * (w @ J).norm()
    reached = (J @ (weights @ J)).min()
    magnitude = J.norm(dim=1).max() * (weights @ J.norm(dim=1))
    return float((bound - reached).abs() / magnitude)


def fair(J: Tensor, weights: Tensor, alpha: float) -> float:
    """(Gw)ᵢ = wᵢ^(-1/α); where there is no solution, the shortest."""
    G = J @ J.T
    error = (G @ weights - weights.clamp_min(1e-300) ** (-1 / alpha)).abs() / (G.abs() @ weights)
    return min(float(error.max()), shortest(J, weights / weights.sum()))


def bargained(J: Tensor, weights: Tensor) -> float:
    """(Ga)ᵢ = 1/aᵢ before the step is shortened to length 1."""
    length = len(J) ** 0.5
    return min(fair(J, weights * length, 1.0), fair(J, weights, 1.0))


def aligned(J: Tensor, weights: Tensor) -> float:
    """d is σ times the projection of w on the orthonormal components: ‖d‖² = σ²‖VVᵀw‖²."""
    U, sigma, _ = torch.linalg.svd(J, full_matrices=False)
    inside = sigma > 1e-7 * sigma[0]
    uniform = torch.full_like(weights, 1 / len(J))
    want = sigma[inside][-1] * (U[:, inside].T @ uniform).norm()
    return float(((weights @ J).norm() / want - 1).abs())


def equal_projections(J: Tensor, weights: Tensor) -> float:
    """⟨d, gᵢ⟩/‖gᵢ‖ is the same for all i."""
    norms = J.norm(dim=1)
    found = (J @ (weights @ J)) / norms
    return float((found.max() - found.min()) / (weights.abs() @ norms))


def bounded(J: Tensor, weights: Tensor) -> float:
    """The multipliers ν of the box: the slope is zero inside, at least 0 at 0, at most 0 at C."""
    H = (J @ J.T).numpy()
    pull = 0.5 - H.mean(1)
    nu = box.minimise(H, pull, 100.0)
    slope = H @ nu - pull
    magnitude = abs(H) @ nu + abs(pull)
    wrong = abs(slope)
    wrong[nu <= 0] = (-slope).clip(0)[nu <= 0]
    top = nu >= 100 * (1 - 1e-14)
    wrong[top] = slope.clip(0)[top]
    expected = torch.from_numpy(nu + 1 / len(J))
    off = (weights - expected / expected.sum()).abs().max()
    return max(float((wrong / magnitude).max()), float(off))


CONDITIONS: Mapping[str, Callable[[Tensor, Tensor], float]] = {
    "mgda": shortest,
    "smg": shortest,
    "moco": shortest,
    "mgdaub": shortest,
    "upgrad": projections,
    "cagrad": worst_off,
    "nashmtl": bargained,
    "fairgrad": lambda J, weights: fair(J, weights, 2.0),
    "alignedmtl": aligned,
    "imtlg": equal_projections,
    "preference": bounded,
    "pmgda": shortest,  # losses that are equal are on its ray
}


def solved(name: str, J: Tensor) -> tuple[float, float | None]:
    """CPU seconds of one `weigh`, and the residual of what defines its weights, if anything."""
    bounds = dict.fromkeys(range(len(J)), 0.5)
    settings: dict[str, Any] = {"bounds": bounds} if name == "preference" else {}
    place = torch.zeros(J.shape[1], dtype=torch.float64, requires_grad=True)
    method = trimol.methods.get(name)([place], len(J), **settings)
    before = time.process_time()
    told = method.weigh(Given(J))  # type: ignore[arg-type]
    taken = time.process_time() - before
    weights = told if isinstance(told, Tensor) else told["weights"]
    return taken, CONDITIONS[name](J, weights) if name in CONDITIONS else None


def main() -> None:
    parser = argparse.ArgumentParser(description="Weights of very many objectives.")
    parser.add_argument("--objectives", type=int, default=512)
    args = parser.parse_args()
    torch.set_num_threads(1)
    kinds = dict(gradients(args.objectives))
    print(f"| M = {args.objectives}: s · residual | " + " | ".join(kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    for name in (n for n in trimol.methods.names() if trimol.methods.get(n).needs != "nothing"):
        cells = []
        for J in kinds.values():
            seconds, residual = solved(name, J)
            cells.append(f"{seconds:.2f}" + ("" if residual is None else f" · {residual:.0e}"))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
