"""Does ``MoDo(simultaneous=True)`` change the errors? On the strongly convex quadratic.

    python benchmarks/simultaneous.py --trials 200

f_{z,m}(x) = ½ b1_m xᵀx − b2_m zᵀx with b1 = (1, 2, 1), b2 = (1, 3, 2), n = 20 data z ~ N(1, I₂),
T = 100 steps of α = 0.01 from x = 0, one sample a draw: the setting of the paper's Figure 3, with
data of our choice where it gives none. Both variants of a trial see the same data and the same
samples, so that the difference is paired.
"""

import argparse
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

import trimol

CURVATURE = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
SLOPE = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)


def losses(x: Tensor, z: Tensor) -> Tensor:
    return CURVATURE * x.square().sum() / 2 - SLOPE * (z.mean(0) @ x)


def trial(
    seed: int, *, simultaneous: bool, gamma: float, steps: int = 100, alpha: float = 0.01
) -> dict[str, float]:
    """One run: R_opt, R_pop and E_ca at its end."""
    generator = torch.Generator().manual_seed(seed)
    data = 1 + torch.randn(20, 2, generator=generator, dtype=torch.float64)
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    modo = trimol.MoDo([x], 3, gamma=gamma, simultaneous=simultaneous)
    optimizer = torch.optim.SGD([x], lr=alpha)
    for _ in range(steps):
        first, second = data[torch.randint(20, (2, 1), generator=generator)]
        modo(losses(x, first), losses(x, second)).backward()
        optimizer.step()
        optimizer.zero_grad()
    population = torch.ones(1, 2, dtype=torch.float64)  # linear in z: its mean is enough
    errors = trimol.measure(
        lambda z: losses(x, z), [x], train=[data], test=[population], weights=modo.weights
    )
    assert errors.pop is not None
    assert errors.conflict is not None
    return {"R_opt": errors.opt, "R_pop": errors.pop, "E_ca": errors.conflict}


@dataclass(frozen=True)
class Difference:
    """One error of both variants: means, the spread over trials, and the paired difference."""

    sequential: float
    simultaneous: float
    spread: float
    gap: float
    standard_error: float


def differences(trials: int, gamma: float) -> dict[str, Difference]:
    """Both variants on the same data and samples, error by error."""
    runs = [
        [trial(seed, simultaneous=s, gamma=gamma) for s in (False, True)] for seed in range(trials)
    ]
    found = {}
    for name in runs[0][0]:
        one, two = ([pair[i][name] for pair in runs] for i in (0, 1))
        gaps = [b - a for a, b in zip(one, two, strict=True)]
        found[name] = Difference(
            statistics.mean(one),
            statistics.mean(two),
            statistics.stdev(one),
            statistics.mean(gaps),
            statistics.stdev(gaps) / trials**0.5,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of MoDo, simultaneous and not.")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.001, 0.01, 0.1])
    args = parser.parse_args()
    print("| γ | error | sequential | simultaneous | std over trials | difference ± s.e. |")
    print("|---|---|---|---|---|---|")
    for gamma in args.gamma:
        for name, d in differences(args.trials, gamma).items():
            print(
                f"| {gamma:g} | {name} | {d.sequential:.3g} | {d.simultaneous:.3g} | "
                f"{d.spread:.2g} | {d.gap:+.1e} ± {d.standard_error:.1e} |"
            )


if __name__ == "__main__":
    main()
