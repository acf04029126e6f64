"""The regions of Figure 2, measured: the errors of MoDo as n grows, one schedule in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import polars

from trimol.errors._conflict import conflict_of_sets
from trimol.paper._simulation import Trace, measure, simulate
from trimol.paper._studies import Watch
from trimol.paper._theory_runs import modo, moments, over_time, parts, problem
from trimol.theory import regions
from trimol.theory._orders import Exponent, Schedule


@dataclass(frozen=True)
class Growth:
    """A schedule over n: α = Θ(T^-1/2), γ = Θ(T^-c) and T = n^t, with the sizes that n takes."""

    c: Exponent
    t: Exponent
    samples: tuple[int, ...]
    factors: tuple[float, float] = (1.0, 0.05)  # of α and of γ

    @property
    def schedule(self) -> Schedule:
        """As the theory has it."""
        return Schedule(a=Fraction(1, 2), c=self.c, t=self.t)

    @property
    def derived(self) -> dict[str, float]:
        """e by error, of the bounds Θ(n^-e) of `trimol.theory.regions`."""
        exponents = regions.cell(self.schedule).exponents
        return {name: float(exponent) for name, exponent in exponents.items()}

    def at(self, size: int) -> tuple[float, float, int]:
        """α, γ and T."""
        steps = round(size ** float(self.t))
        return (
            self.factors[0] * steps**-0.5, self.factors[1] * steps ** -float(self.c), steps
        )  # fmt: skip


_SIZES = (64, 128, 256, 512)
_SMALL = (8, 16, 32, 64)
_QUARTER = Fraction(1, 4)
_SLOW = Fraction(5, 4)
# One schedule in each region, and two with T = n²: with weights that (nearly) rest, by which the
# paper reaches the risk n^-1/2, and with weights that follow the conflict-avoiding ones.
GROWTHS: Mapping[str, Growth] = {
    "I": Growth(Fraction(1, 8), Fraction(3, 4), _SIZES),
    "II": Growth(_QUARTER, Fraction(5, 4), _SIZES),
    "III": Growth(_SLOW, Fraction(5, 4), _SIZES),
    "IV": Growth(regions.PRINTED_BALANCE.c, Fraction(4, 5), _SIZES),
    "resting": Growth(_SLOW, Fraction(2), _SMALL, (0.5, 0.05)),
    "avoiding": Growth(_QUARTER, Fraction(2), _SMALL, (0.5, 0.05)),
}


def grown(
    folder: Path,
    *,
    largest: int | None = None,
    datasets: int = 20,
    runs: int = 10,
    watch: Watch | None = None,
) -> polars.DataFrame:
    """The errors along every schedule of `GROWTHS`, for each n (up to ``largest``).

    Returns:
        One row for each schedule, n, data set and error. R_opt, R_pop and the size of R_gen
        are means over runs at the last step; E_ca, by its definition, is the mean over the steps.
    """
    settings = [
        {"region": name, "n": size, "sets": datasets, "runs": runs, "sizes": list(own.at(size))}
        for name, own in GROWTHS.items()
        for size in _sizes(own, largest)
    ]
    return parts(
        folder, "regions", "errors", settings,
        lambda own: _grown(own["region"], own["n"], datasets, runs), watch,
    )  # fmt: skip


def _sizes(growth: Growth, largest: int | None) -> Sequence[int]:
    """The sizes that n takes; the two smallest at least."""
    few = [size for size in growth.samples if largest is None or size <= largest]
    return few if len(few) > 1 else growth.samples[:2]


def _grown(name: str, size: int, datasets: int, runs: int) -> polars.DataFrame:
    alpha, gamma, steps = GROWTHS[name].at(size)
    task = problem(size)
    data = task.draw(range(datasets)).repeat_interleave(runs, 0)
    trace = simulate(
        task,
        [modo(alpha, gamma)],
        data=data,
        start=task.start,
        seeds=range(len(data)),
        steps=steps,
        snapshots=moments(steps),
    )
    own = Trace(trace.steps, trace.x[:, 0], trace.weights[:, 0])
    errors = measure(task, own.x, own.weights, data, task.population)
    by_set = {name: each.unflatten(1, (datasets, runs)) for name, each in errors.items()}
    definition, _ = conflict_of_sets(by_set["direction"])
    means = {
        "R_opt": by_set["R_opt"][-1].mean(-1),
        "R_gen": by_set["R_gen"][-1].abs().mean(-1),
        "R_pop": by_set["R_pop"][-1].mean(-1),
        "E_ca": over_time(definition, own.steps),
    }
    return polars.DataFrame(
        [
            {"region": name, "n": size, "T": steps, "dataset": number, "error": error,
             "measured": float(values[number])}
            for error, values in means.items()
            for number in range(datasets)
        ]
    )  # fmt: skip
