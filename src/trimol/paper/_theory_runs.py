"""Theory against measurement: errors along the theorems' schedules, beside the bounds.

On strongly convex quadratics with bounded samples every constant of the theorems is known: μ and
ℓ_{f,1} are curvatures, ℓ_f is the largest gradient in the ball that no iterate can leave
(`Quadratic.lipschitz`), c_F is what there is to gain at x_0 for the worst λ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
import torch
from torch import Tensor

from trimol import methods
from trimol.errors._conflict import conflict_of_sets
from trimol.paper._simulation import Arm, Trace, measure, simulate
from trimol.paper._studies import Watch
from trimol.paper.tasks.lower_bound import StabilityLowerBound
from trimol.runs.study import part
from trimol.tasks.quadratic import Quadratic
from trimol.theory import Constants, bounds

PROGRAM = 4  # to be raised when the numbers that this file makes change
DRAWS = 3  # two for λ and a third for x: the variant that the proofs analyse
_CHUNK = 1000  # twin runs at once: bounds the memory, as each holds its training set
MOMENTS = 64  # steps at which a mean over steps is taken


@dataclass(frozen=True)
class Course:
    """Step sizes as powers of T, (factor, a) of factor · T^-a, and what the theorems then promise.

    ``promised`` are the exponents e of the bounds O(T^-e), by error. β is MoCo's.
    """

    name: str
    alpha: tuple[float, float]
    promised: Mapping[str, float]
    gamma: tuple[float, float] = (0.0, 0.0)
    rho: tuple[float, float] = (0.0, 0.0)
    beta: tuple[float, float] = (0.0, 0.0)
    method: str = "modo"
    longest: int = 2**14  # the most steps

    def at(self, steps: int) -> dict[str, float]:
        """α, γ, ρ and β for T steps, by name."""
        sizes = {name: getattr(self, name) for name in ("alpha", "gamma", "rho", "beta")}
        return {name: factor * steps**-power for name, (factor, power) in sizes.items()}

    def arm(self, steps: int) -> Arm:
        """The method with its step sizes; batches of one, which grow where the method says so."""
        own = self.at(steps)
        if self.method == "modo":
            return modo(own["alpha"], own["gamma"], own["rho"])
        tracking = {"beta": own["beta"]} if own["beta"] else {}
        growth = int(methods.growth(self.method))
        return Arm(self.method, own["alpha"], tracking, batch=1, growth=growth)


# The remark after Theorem "PS optimization error" names the first two; the third makes the terms
# of Theorem "CA weight distance" vanish together for a fixed ρ. The proofs of the theorems on SMG
# and MoCo name the last two.
COURSES = (
    Course("optimization", (1.0, 0.5), {"R_opt": 0.25}, gamma=(0.05, 0.5)),
    Course(
        "conflict", (2.0, 0.75), {"R_opt": 0.125, "E_ca_unbiased": 0.25},
        gamma=(0.05, 0.25), rho=(0.05, 0.5),
    ),
    Course(
        "weights", (4.0, 1.0), {"E_caw_unbiased": 0.5}, gamma=(0.1, 0.5), rho=(1.0, 0.0)
    ),
    Course("SMG", (1.0, 0.5), {"R_opt": 0.125, "E_ca": 0.5}, method="smg", longest=2**12),
    Course(
        "MoCo", (2.0, 0.75), {"R_opt": 0.0625, "E_ca": 0.25},
        beta=(1.0, 0.5), method="moco", longest=2**12,
    ),
)  # fmt: skip


def problem(samples: int, **kind: Any) -> Quadratic:
    """The paper's M, b1 and b2 (or others), with samples that are bounded."""
    return Quadratic(dimension=2, samples=samples, law="uniform", std=0.5, **kind)


def parts(
    folder: Path,
    name: str,
    table: str,
    settings: Sequence[dict[str, Any]],
    compute: Callable[[dict[str, Any]], polars.DataFrame],
    watch: Watch | None,
) -> polars.DataFrame:
    """The tables of all settings, one after the other; finished ones are read from the folder."""
    tables = []
    for i, own in enumerate(settings):
        keyed = {"program": PROGRAM, **own}
        tables.append(part(folder, name, keyed, lambda: {table: compute(own)})[table])  # noqa: B023
        if watch is not None:
            watch(i + 1, len(settings))
    return polars.concat(tables)


# --- errors along the schedules -------------------------------------------------------------------


def courses(
    folder: Path,
    *,
    steps: Sequence[int],
    samples: int = 20,
    datasets: int = 20,
    runs: int = 20,
    watch: Watch | None = None,
) -> polars.DataFrame:
    """Errors and bounds along every course for each T, over training sets of n ``samples``.

    Returns:
        One row for each course, T, data set and error: ``measured`` and ``bound``. R_opt is the
        root of the mean square over steps and runs, E_ca the mean over steps (both by trapezoids
        over some 60 steps), E_caw that of the last step: what the theorems bound.
    """
    known = [[each.name, each.method, each.at(2), each.at(4)] for each in COURSES]
    common = {"n": samples, "sets": datasets, "runs": runs, "courses": known}
    settings = [{"T": count, **common} for count in steps]
    return parts(
        folder, "courses", "errors", settings,
        lambda own: _courses(own["T"], samples, datasets, runs), watch,
    )  # fmt: skip


def _courses(steps: int, samples: int, datasets: int, runs: int) -> polars.DataFrame:
    task = problem(samples)
    sets = task.draw(range(datasets))
    data = sets.repeat_interleave(runs, 0)
    taken = [course for course in COURSES if steps <= course.longest]
    trace = simulate(
        task,
        [each.arm(steps) for each in taken],
        data=data,
        start=task.start,
        seeds=range(len(data)),
        steps=steps,
        snapshots=moments(steps),
    )
    rows = []
    for i, course in enumerate(taken):
        own = Trace(trace.steps, trace.x[:, i], trace.weights[:, i])
        measured = _measured(task, own, data, datasets, course.at(steps)["rho"])
        for number in range(datasets):
            promised = _bounds(constants(task, sets[number]), course, steps)
            rows += [
                {"course": course.name, "T": steps, "dataset": number, "error": error,
                 "measured": float(values[number]), "bound": promised.get(error)}
                for error, values in measured.items()
            ]  # fmt: skip
    return polars.DataFrame(rows, schema_overrides={"bound": polars.Float64})


def moments(steps: int) -> list[int]:
    """Steps from 1 to T: half of them evenly, half evenly in the logarithm.

    The first steps count for little in a mean over T steps, but errors are largest there.
    """
    even, early = (grid(1, steps, MOMENTS // 2) for grid in (np.linspace, np.geomspace))
    return sorted({round(each) for each in [*even.tolist(), *early.tolist()]})


def over_time(values: Tensor, steps: Sequence[int]) -> Tensor:
    """The mean over all steps, from the values at some (the first dimension): trapezoids.

    >>> over_time(torch.tensor([4.0, 2.0, 0.0]), (1, 3, 5))
    tensor(2.)
    """
    if len(steps) == 1:
        return values[0]
    at = torch.tensor(steps, dtype=values.dtype)
    mean: Tensor = torch.trapezoid(values, at, dim=0) / (at[-1] - at[0])
    return mean


def modo(alpha: float, gamma: float, rho: float = 0.0) -> Arm:
    """MoDo as the proofs have it: three draws of one sample."""
    return Arm("modo", alpha, {"gamma": gamma, "rho": rho, "draws": DRAWS}, batch=DRAWS)


def _measured(
    task: Quadratic, trace: Trace, data: Tensor, datasets: int, rho: float
) -> dict[str, Tensor]:
    """What the theorems bound, for each data set."""
    errors = measure(task, trace.x, trace.weights, data, task.population, rho)
    by_set = {name: each.unflatten(1, (datasets, -1)) for name, each in errors.items()}
    definition, squares = conflict_of_sets(by_set["direction"])
    measured = {
        "R_opt": over_time(by_set["R_opt"].square().mean(-1), trace.steps).sqrt(),
        "E_ca": over_time(squares, trace.steps),
        "E_ca_unbiased": over_time(definition, trace.steps),
    }
    if rho > 0:
        last, last_squares = conflict_of_sets(by_set["apart"][-1])
        measured |= {"E_caw": last_squares, "E_caw_unbiased": last}
    return measured


def constants(task: Quadratic, z: Tensor) -> Constants:
    """The theorems' constants for one training set, none of them estimated."""
    mean = z.mean(0)
    # The minimum of λᵀF is (b2ᵀλ)²/(2 b1ᵀλ) · zᵀA⁻¹z below F(0) = 0, with z the mean: a convex
    # function of λ, which is largest at a vertex.
    gain = float((task.b2.square() / task.b1).max() * mean @ torch.linalg.solve(task.matrix, mean))
    return Constants(
        ell_f=task.lipschitz(z),
        ell_f1=task.smoothness,
        M=len(task.b1),
        n=len(z),
        c_F=gain / 2,
        mu=task.mu,
    )


def _bounds(known: Constants, course: Course, steps: int) -> dict[str, float]:
    """The bounds of a course, by error. MoCo has none: the paper's has no constants."""
    own = course.at(steps)
    if course.method == "smg":
        smg: dict[str, Any] = {"alpha": own["alpha"], "T": steps, "growth": methods.growth("smg")}
        limits = {
            "R_opt": bounds.optimization_smg(known, **smg),
            "E_ca": bounds.conflict_smg(known, **smg),
        }
    elif course.method == "modo":
        sizes: dict[str, Any] = {**own, "T": steps}
        del sizes["beta"]
        limits = {
            "R_opt": bounds.optimization(known, **sizes),
            "E_ca": bounds.conflict(known, **sizes),
        }
        if own["rho"] > 0:
            limits["E_caw"] = bounds.conflict_weight(known, **sizes)
    else:
        limits = {}
    numbers = {name: float(bound) for name, bound in limits.items()}
    # The mean of squares over runs is what the proofs bound; the definition is never larger.
    more = {f"{name}_unbiased": numbers[name] for name in ("E_ca", "E_caw") if name in numbers}
    return {**numbers, **more}


# --- static weights -------------------------------------------------------------------------------

RHO_STATIC = 0.1
# Which λ, and on which problem: the paper's b1 and b2, and two bowls with their centres apart.
STATIC: Mapping[str, tuple[Mapping[str, Any], tuple[tuple[float, ...], ...]]] = {
    "M = 3": ({}, ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1 / 3, 1 / 3, 1 / 3))),
    "M = 2": (
        {"b1": (1.0, 1.0), "b2": (1.0, 2.0)},
        ((1, 0), (0.75, 0.25), (0.5, 0.5), (0.25, 0.75), (0, 1)),
    ),
}


def static_weights(
    folder: Path,
    *,
    steps: Sequence[int],
    datasets: int = 20,
    runs: int = 10,
    watch: Watch | None = None,
) -> polars.DataFrame:
    """E_caw of static weights at the last of T steps, α = T^-1/2 / 4 and ρ fixed, for each T.

    Returns:
        One row for each problem, λ, T and data set: ``measured`` (by its definition, without bias),
        and the bounds of the proposition's proof, ``lower`` = (1 − 1/M)² and ``upper`` = 2.
    """
    settings = [
        {"problem": name, "T": count, "sets": datasets, "runs": runs, "rho": RHO_STATIC}
        for name in STATIC
        for count in steps
    ]
    return parts(
        folder, "static", "weights", settings,
        lambda own: _static_weights(own["problem"], own["T"], datasets, runs), watch,
    )  # fmt: skip


def _static_weights(name: str, steps: int, datasets: int, runs: int) -> polars.DataFrame:
    kind, several = STATIC[name]
    task = problem(20, **kind)
    data = task.draw(range(datasets)).repeat_interleave(runs, 0)
    alpha = 0.25 * steps**-0.5
    arms = [Arm("static", alpha, {"weights": each}, batch=1) for each in several]
    trace = simulate(task, arms, data=data, start=task.start, seeds=range(len(data)), steps=steps)
    lower, upper = (float(bound) for bound in bounds.conflict_weight_static(len(several[0])))
    rows = []
    for i, weights in enumerate(several):
        own = measure(task, trace.x[0, i], trace.weights[0, i], data, task.population, RHO_STATIC)
        measured, _ = conflict_of_sets(own["apart"].unflatten(0, (datasets, runs)))
        rows += [
            {"problem": name, "weights": "(" + ", ".join(f"{each:.2g}" for each in weights) + ")",
             "T": steps, "dataset": number, "measured": float(measured[number]),
             "lower": lower, "upper": upper}
            for number in range(datasets)
        ]  # fmt: skip
    return polars.DataFrame(rows)


# --- stability ------------------------------------------------------------------------------------


def twins(
    folder: Path,
    *,
    samples: Sequence[int],
    pairs: int = 20,
    runs: int = 40,
    watch: Watch | None = None,
) -> polars.DataFrame:
    """ε_F² by twin runs, for T = n², α = T^-1/2 / 2 and the largest γ of the theorem, for each n.

    A pair are two training sets that differ in one sample, and ``runs`` on both that draw the same
    indices. ∇F_z(x) − ∇F_z(x') does not depend on z here, so that the sup over z is exact; that
    over data sets is not: we have the pairs that we drew.

    Returns:
        One row for each n and pair: ``measured`` (the mean over runs) and ``bound``.
    """
    settings = [{"n": size, "pairs": pairs, "runs": runs} for size in samples]
    return parts(
        folder, "twins", "stability", settings, lambda own: _twins(own["n"], pairs, runs), watch
    )


def _twins(size: int, pairs: int, runs: int) -> polars.DataFrame:
    task = problem(size)
    first = task.draw(range(pairs))
    second = first.clone()
    second[:, 0] = task.draw(range(pairs, 2 * pairs))[:, 0]
    steps = size**2
    alpha = 0.5 * steps**-0.5
    known = [constants(task, torch.cat([a, b[:1]])) for a, b in zip(first, second, strict=True)]
    known = [Constants(**{**vars(each), "n": size}) for each in known]
    gamma = min(bounds.largest_gamma(each, steps) for each in known)
    apart = _apart(task, first, second, modo(alpha, gamma), steps, runs)
    # ∇f_m(x) − ∇f_m(x') = b_{1,m} A (x − x'), whatever z is.
    squares = (task.b1.square().sum() * (apart @ task.matrix).square().sum(-1)).mean(-1)
    rows = [
        {"n": size, "T": steps, "pair": number, "alpha": alpha, "gamma": gamma,
         "measured": float(squares[number]),
         "bound": float(bounds.stability_sc(each, alpha=alpha, gamma=gamma, T=steps))}
        for number, each in enumerate(known)
    ]  # fmt: skip
    return polars.DataFrame(rows)


def _apart(
    task: Quadratic,
    first: Tensor,
    second: Tensor,
    arm: Arm,
    steps: int,
    runs: int,
    seed: int = 0,
) -> Tensor:
    """x_T − x'_T of twin runs, pairs × runs × d; their seeds count up from ``seed``."""
    pairs = len(first)
    both = torch.cat([first, second]).repeat_interleave(runs, 0)
    trace = simulate(
        task,
        [arm],
        data=both,
        start=task.start,
        seeds=[*range(seed, seed + pairs * runs)] * 2,
        steps=steps,
    )
    ends: Tensor = trace.x[0, 0].unflatten(0, (2, pairs, runs))
    return ends[0] - ends[1]


def below(
    folder: Path, *, samples: Sequence[int], runs: int = 4000, watch: Watch | None = None
) -> polars.DataFrame:
    """The example of the lower bound for each n: E‖x_T − x'_T‖ by twin runs, beside the bound.

    T is 4n^{2/3}, the longest that the theorem allows.

    Returns:
        One row for each n: ``measured``, its standard error ``error``, the bound that the proof
        gives (``bound``) and the one that the paper prints (``printed``).
    """
    settings = [{"n": size, "runs": runs} for size in samples]
    return parts(folder, "below", "example", settings, lambda own: _below(own["n"], runs), watch)


def _below(size: int, runs: int) -> polars.DataFrame:
    example = StabilityLowerBound(samples=size)
    steps = example.longest
    gamma = example.gamma_limit(steps)
    first, second = example.data().train[0], example.neighbour()
    arm = modo(example.step_size(steps), gamma)
    chunks = [range(begin, min(begin + _CHUNK, runs)) for begin in range(0, runs, _CHUNK)]
    apart = torch.cat(
        [
            _apart(example, first[None], second[None], arm, steps, len(chunk), chunk.start)[0]
            for chunk in chunks
        ]
    ).norm(dim=-1)
    ell_f = example.lipschitz(torch.cat([first, second]))
    limits = {
        reading: float(
            bounds.stability_lower_sc(n=size, gamma=gamma, T=steps, ell_f=ell_f, reading=reading)
        )
        for reading in ("derived", "printed")
    }
    return polars.DataFrame(
        [
            {"n": size, "T": steps, "gamma": gamma, "measured": float(apart.mean()),
             "error": float(apart.std()) / runs**0.5, "bound": limits["derived"],
             "printed": limits["printed"], "runs": runs}
        ]
    )  # fmt: skip
