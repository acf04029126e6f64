"""Theory against measurement: exponents beside those promised, values beside bounds."""

import numpy as np
import polars

from trimol.paper._draw_theory import draw
from trimol.paper._drawing import files
from trimol.paper._studies import Context, get
from trimol.paper._synthetic.theory_runs import COURSES, below, courses, twins
from trimol.runs.statistics import Interval, slope
from trimol.runs.study import Row, Study

STEPS = tuple(2**power for power in range(6, 15))
QUICK_STEPS = tuple(2**power for power in range(5, 9))
SAMPLES, QUICK_SAMPLES = (8, 12, 16, 24, 32, 48, 64), (8, 12, 16)
EXAMPLES, QUICK_EXAMPLES = (64, 216, 512, 1000), (64, 216)
PROMISED_STABILITY = 2.0  # ε_F² = O(n^-2) for T = n², α = Θ(T^-1/2), γ = O(1/T)
# Slopes are fitted where T is at least this: they are about what happens as T grows.
_FROM = 512


def theory(context: Context) -> Study:
    """Sweeps along the theorems' schedules, twin runs, and the example of the lower bound."""
    quick = context.quick
    measured = courses(
        context.parts,
        steps=QUICK_STEPS if quick else STEPS,
        datasets=context.pick(20, 4),
        watch=context.watch,
    )
    stability = twins(
        context.parts,
        samples=QUICK_SAMPLES if quick else SAMPLES,
        pairs=context.pick(20, 4),
        watch=context.watch,
    )
    example = below(
        context.parts,
        samples=QUICK_EXAMPLES if quick else EXAMPLES,
        runs=1000 if quick else 10_000,
        watch=context.watch,
    )
    slopes = slope_table(measured, stability)
    draw(context.folder, "theory", measured, stability, example, slopes)
    return Study(
        "theory",
        get("theory").title,
        rows=_rows(slopes, measured, stability, example),
        notes=_notes(slopes, measured, stability, example),
        tables={"courses": measured, "twins": stability, "example": example, "slopes": slopes},
        figures=files("theory"),
    )


def slope_table(measured: polars.DataFrame, stability: polars.DataFrame) -> polars.DataFrame:
    """Measured exponents, their intervals, and those promised."""
    late = measured.filter(polars.col("T") >= min(_FROM, int(measured["T"].unique().sort()[-3])))
    lines = []
    for course in COURSES:
        for error, promised in course.promised.items():
            for name in dict.fromkeys((error, error.removesuffix("_unbiased"))):
                chosen = late.filter(
                    polars.col("course") == course.name, polars.col("error") == name
                )
                found = _fit(chosen, "T", "dataset")
                lines.append(_line(course.name, name, "T", found, promised))
    found = _fit(stability, "n", "pair")
    lines.append(_line("stability", "eps_F2", "n", found, PROMISED_STABILITY))
    return polars.DataFrame(lines)


def _fit(table: polars.DataFrame, x: str, unit: str) -> Interval:
    wide = table.pivot(on=x, index=unit, values="measured", sort_columns=False).drop(unit)
    numbers = np.array([float(name) for name in wide.columns])
    return slope(numbers, wide.to_numpy())


def _line(
    course: str, error: str, variable: str, found: Interval, promised: float
) -> dict[str, object]:
    return {
        "course": course,
        "error": error,
        "in": variable,
        "exponent": -found.estimate,
        "low": -found.high,
        "high": -found.low,
        "promised": promised,
        "n": found.n,
    }


def _rows(
    slopes: polars.DataFrame,
    measured: polars.DataFrame,
    stability: polars.DataFrame,
    example: polars.DataFrame,
) -> list[Row]:
    rows: list[Row] = [
        {
            "method": "modo",
            "metric": f"{line['error']} exponent in {line['in']}",
            "mean": line["exponent"],
            "std": None,
            "n": line["n"],
            "paper": line["promised"],
            "course": line["course"],
            "low": line["low"],
            "high": line["high"],
        }
        for line in slopes.to_dicts()
    ]
    worst = _worst(measured, stability)
    rows += [
        {"method": "modo", "metric": f"{name} / bound, largest", "mean": ratio, "std": None, "n": n,
         "paper": None}
        for name, (ratio, n) in worst.items()
    ]  # fmt: skip
    rows += [
        {"method": "modo", "metric": "‖x − x'‖ / lower bound",
         "mean": line["measured"] / line["bound"], "std": None, "n": line["runs"], "paper": None,
         "samples": line["n"], "printed": line["measured"] / line["printed"]}
        for line in example.to_dicts()
    ]  # fmt: skip
    return rows


def _worst(measured: polars.DataFrame, stability: polars.DataFrame) -> dict[str, tuple[float, int]]:
    """How near each error ever comes to its bound, and over how many values."""
    found = {}
    for (error,), group in measured.drop_nulls("bound").group_by("error", maintain_order=True):
        ratios = (group["measured"] / group["bound"]).to_numpy()
        found[str(error)] = (float(ratios.max()), len(ratios))
    ratios = (stability["measured"] / stability["bound"]).to_numpy()
    found["eps_F2"] = (float(ratios.max()), len(ratios))
    return found


def _notes(
    slopes: polars.DataFrame,
    measured: polars.DataFrame,
    stability: polars.DataFrame,
    example: polars.DataFrame,
) -> list[str]:
    lines = [
        f"{line['course']}: {line['error']} falls like {line['in']}^-{line['exponent']:.2f} "
        f"[{line['low']:.2f}, {line['high']:.2f}]; the theorem promises at least "
        f"{line['in']}^-{line['promised']:g}."
        for line in slopes.to_dicts()
    ]
    ratios = _worst(measured, stability)
    worst = max(ratios.items(), key=lambda item: item[1][0])
    loosest = min(ratio for ratio, _ in ratios.values())
    least = float((example["measured"] / example["bound"]).to_numpy().min())
    printed = (example["bound"] / example["printed"]).to_numpy()
    return [
        "MoDo with three draws (the variant of the proofs) on M = 3 quadratics whose samples are "
        "uniform on a box, so that every constant is known: ℓ_f is the largest gradient in the "
        "ball that no iterate leaves, c_F what there is to gain at x_0 for the worst λ. Exponents "
        f"are fitted for T ≥ {_FROM}, intervals are bootstraps over training sets.",
        *lines,
        "A measured exponent below the promised one does not break a theorem, which bounds the "
        "error by a constant times a power; it says that the T measured are too small for the "
        "power to show.",
        f"{_verdict(worst[1][0])} the nearest to its bound is {worst[0]}, at {worst[1][0]:.2g} of "
        f"it. Elsewhere the bounds are up to {1 / loosest:.1g} times what is measured, through "
        "powers of ℓ_f.",
        "The example of the lower bound: measured over bound is at least "
        f"{least:.3f} (bound as its proof gives it, which is nearly tight; the printed one is "
        f"smaller by {printed.min():.2g} to {printed.max():.2g} times).",
    ]


def _verdict(ratio: float) -> str:
    return "No error exceeds its bound:" if ratio <= 1 else "An error exceeds its bound:"
