r"""Twin runs without convexity: ε_F² of MoDo, SMG and MoCo on two examples.

*sine* is the paper's (Lemma "Lower bound of MOL uniform stability in the NC case"): two equal
objectives sin(x + z), data of zeros, and one −π/8 in the neighbour.

*steep* is ours: twice :math:`f_z(x) = \sin(Kx)/K - zx` with a large K. Its gradients are bounded,
which is all that Theorem "PS generalization error of MoDo in the NC case" asks for, but turn so
fast that two runs have nothing in common once they differ. So ε_F² is the chance that the sample
that differs is ever drawn, times E‖∇F_z(x) − ∇F_z(x')‖² = 2: nearly as large as the proof allows.
(Objectives are equal, as in the paper's example, so that min-norm weights never stop a run.)
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars
import torch
from torch import Tensor

from trimol import methods
from trimol.paper._simulation import Arm, simulate
from trimol.paper._studies import Watch
from trimol.paper._theory_runs import parts
from trimol.tasks import Data
from trimol.tasks._point import Formula
from trimol.theory import Constants, bounds

GROUPS = 20  # of runs, which are the units of a fit
_CHUNK = 500  # twin runs at once: bounds the memory, as each holds its training set
METHODS = ("modo", "moco", "smg")
_ALPHA = 0.01  # of the steep example
_WIDTH = 0.5  # its samples are within ± this
_WAVES = 1e6  # K


class Sine(Formula):
    """The paper's example: twice sin(x + z), from π/4."""

    name: ClassVar[str] = "sine"
    objectives: tuple[str, ...] = ("f1", "f2")
    alpha = math.pi / 80
    start = (math.pi / 4,)

    def pair(self, samples: int) -> tuple[Tensor, Tensor]:
        """S and S', n × 1."""
        first = torch.zeros(samples, 1, dtype=torch.float64)
        second = first.clone()
        second[0] = -math.pi / 8
        return first, second

    def data(self) -> Data:
        """S, of eleven samples: the fewest that the lemma allows."""
        first, _ = self.pair(11)
        return Data(train=(first,), test=(first,))

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x) for one sample z: not linear in z, so that there must be one a draw."""
        return torch.sin(x + z).expand(*torch.broadcast_shapes(x.shape, z.shape)[:-1], 2)

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x) for one sample z."""
        slope = torch.cos(x + z)
        return slope[..., None, :].expand(*slope.shape[:-1], 2, 1)

    def apart(self, x: Tensor, other: Tensor) -> Tensor:
        """‖∇F_z(x) − ∇F_z(x')‖² at the sample z where it is largest on average over runs."""
        at = torch.tensor([0.0, -math.pi / 8], dtype=torch.float64)
        squares = 2 * (torch.cos(x + at) - torch.cos(other + at)).square()
        worst = int(squares.mean(0).argmax())
        largest: Tensor = squares[..., worst]
        return largest

    def second_moment(self) -> float:
        """G²: cosines are at most one."""
        return 2.0


class Steep(Sine):
    """Two objectives whose gradients are bounded, and turn K times as fast as x moves."""

    name: ClassVar[str] = "steep"
    alpha = _ALPHA
    start = (1.0,)

    def pair(self, samples: int) -> tuple[Tensor, Tensor]:
        """S and S', n × 1: samples within ± ½, of which the first is moved from end to end."""
        drawn = np.random.default_rng(samples).uniform(-_WIDTH, _WIDTH, (samples, 1))
        first = torch.from_numpy(drawn)
        first[0] = -_WIDTH
        second = first.clone()
        second[0] = _WIDTH
        return first, second

    def values(self, x: Tensor, z: Tensor) -> Tensor:
        """F(x) at a mean z."""
        one = torch.sin(_WAVES * x) / _WAVES - z * x
        return one.expand(*one.shape[:-1], 2)

    def jacobian(self, x: Tensor, z: Tensor) -> Tensor:
        """∇F(x) at a mean z."""
        slope = torch.cos(_WAVES * x) - z
        return slope[..., None, :].expand(*slope.shape[:-1], 2, 1)

    def apart(self, x: Tensor, other: Tensor) -> Tensor:
        """‖∇F_z(x) − ∇F_z(x')‖², the same for every z."""
        nothing = torch.zeros(1, dtype=torch.float64)
        gap: Tensor = self.jacobian(x, nothing) - self.jacobian(other, nothing)
        return gap.square().sum((-2, -1))

    def second_moment(self) -> float:
        """G²: of each of two gradients at most (1 + |z|)²."""
        return 2 * (1 + _WIDTH) ** 2


EXAMPLES: dict[str, Sine] = {"sine": Sine(), "steep": Steep()}


def nonconvex(
    folder: Path,
    *,
    samples: Sequence[int],
    steps: Sequence[int],
    runs: int,
    watch: Watch | None = None,
) -> polars.DataFrame:
    """ε_F² by twin runs: the sine with MoDo, the steep example with each of `METHODS`.

    The sine is run at n = 100 for T = 2 … 10, as its lemma allows; the steep example for ``steps``
    at the largest of ``samples``, with MoDo at every one. MoDo takes two draws, as in the
    algorithm; SMG batches of 1, 2, 3, ….

    Returns:
        One row for each example, method, n, T and group of runs: ``measured``, the group's mean.
    """
    wanted = [("sine", "modo", 100, [2, 3, 4, 6, 8, 10])]
    wanted += [("steep", "modo", size, list(steps)) for size in samples]
    wanted += [("steep", method, max(samples), list(steps)) for method in METHODS[1:]]
    settings = [
        {"example": example, "method": method, "n": size, "steps": times, "runs": runs}
        for example, method, size, times in wanted
    ]
    return parts(
        folder, "nonconvex", "stability", settings,
        lambda own: _nonconvex(own["example"], own["method"], own["n"], own["steps"], runs), watch,
    )  # fmt: skip


def _nonconvex(
    name: str, method: str, size: int, steps: Sequence[int], runs: int
) -> polars.DataFrame:
    example = EXAMPLES[name]
    chunks = [range(first, min(first + _CHUNK, runs)) for first in range(0, runs, _CHUNK)]
    squares = torch.cat([_apart(example, method, size, steps, each) for each in chunks], 1)
    groups = squares.unflatten(1, (GROUPS, -1)).mean(-1)
    return polars.DataFrame(
        [
            {"example": name, "method": method, "n": size, "T": count, "group": group,
             "measured": float(groups[i, group])}
            for i, count in enumerate(steps)
            for group in range(GROUPS)
        ]
    )  # fmt: skip


def _apart(example: "Sine", method: str, size: int, steps: Sequence[int], seeds: range) -> Tensor:
    """‖∇F_z(x_T) − ∇F_z(x'_T)‖² of twin runs, steps × runs."""
    both = torch.stack(example.pair(size)).repeat_interleave(len(seeds), 0)
    trace = simulate(
        example,
        [_arm(method, example.alpha)],
        data=both,
        start=torch.tensor(example.start, dtype=torch.float64),
        seeds=[*seeds] * 2,
        steps=max(steps),
        snapshots=steps,
    )
    first, second = trace.x[:, 0].unflatten(1, (2, -1)).unbind(1)
    return torch.stack([example.apart(*pair) for pair in zip(first, second, strict=True)])


def _arm(method: str, alpha: float) -> Arm:
    """A method on single samples; MoDo with γ = α and two draws, MoCo with β = ½."""
    own = {"modo": {"gamma": alpha, "draws": 2}, "moco": {"beta": 0.5}}.get(method, {})
    batch = 2 if method == "modo" else 1
    return Arm(method, alpha, own, batch=batch, growth=int(methods.growth(method)))


def drawn_samples(method: str, steps: int) -> int:
    """How many samples a method looks at in T steps.

    >>> [drawn_samples(method, 10) for method in METHODS]
    [20, 10, 55]
    """
    arm = _arm(method, _ALPHA)
    return (arm.batch or 0) * steps + arm.growth * steps * (steps - 1) // 2


def over_groups(table: polars.DataFrame) -> polars.DataFrame:
    """The mean over groups of runs and its error, beside the bounds, for each setting.

    ``bound`` is 4G² times the samples looked at over n, ``printed`` is 4G²T/n, ``rate`` is T/n, and
    the lower bounds of the lemma are those of its example.
    """
    keys = ["example", "method", "n", "T"]
    groups = table.group_by(keys, maintain_order=True).agg(
        polars.col("measured").mean(),
        (polars.col("measured").std() / polars.len() ** 0.5).alias("error"),
        polars.len().alias("runs"),
    )
    limits = [_limits(*line) for line in groups.select(keys).iter_rows()]
    kinds = dict.fromkeys(("lower", "lower_printed"), polars.Float64)
    return polars.concat(
        [groups, polars.DataFrame(limits, schema_overrides=kinds)], how="horizontal"
    )


def _limits(name: str, method: str, size: int, steps: int) -> dict[str, float | None]:
    """The bounds of one setting."""
    G = math.sqrt(EXAMPLES[name].second_moment())
    known = Constants(ell_f=G, ell_f1=1.0, M=2, n=size, G=G)
    # All samples as if they were of one step: only their number is asked for.
    upper = bounds.stability(known, T=1, samples=drawn_samples(method, steps))
    printed = bounds.stability(known, T=steps, reading="printed")
    below = {
        reading: float(bounds.stability_lower(T=steps, n=size, reading=reading))
        if name == "sine"
        else None
        for reading in ("derived", "printed")
    }
    return {
        "rate": steps / size,
        "bound": float(upper),
        "printed": float(printed),
        "lower": below["derived"],
        "lower_printed": below["printed"],
    }
