"""Theory against measurement: exponents beside those promised, values beside bounds."""

from pathlib import Path
from typing import Any

import numpy as np
import polars

from trimol.paper._drawing import COLOURS, NAMES, figure, files, means
from trimol.paper._nonconvex_runs import METHODS, nonconvex, over_groups
from trimol.paper._region_runs import GROWTHS, grown
from trimol.paper._studies import Context, get
from trimol.paper._theory_runs import COURSES, Course, below, courses, static_weights, twins
from trimol.runs.statistics import Interval, quantile, slope
from trimol.runs.study import Row, Study
from trimol.theory.rates import PLANNED

STEPS = tuple(2**power for power in range(6, 15))
QUICK_STEPS = tuple(2**power for power in range(5, 9))
SAMPLES, QUICK_SAMPLES = (8, 12, 16, 24, 32, 48, 64), (8, 12, 16)
EXAMPLES, QUICK_EXAMPLES = (64, 216, 512, 1000), (64, 216)
STATIC, QUICK_STATIC = (256, 1024, 4096), (16, 32, 64)
# Twin runs without convexity: n, T and runs.
TWIN_SAMPLES, QUICK_TWIN_SAMPLES = (1000, 2000, 4000), (10, 20)
TWIN_STEPS, QUICK_TWIN_STEPS = (8, 16, 32, 64, 128), (2, 4, 8)
TWIN_RUNS, QUICK_TWIN_RUNS = 2000, 100
QUICK_LARGEST = 16  # n of the schedules over n
PROMISED_STABILITY = 2.0  # ε_F² = O(n^-2) for T = n², α = Θ(T^-1/2), γ = O(1/T)
# Slopes are fitted where T is at least this: they are about what happens as T grows.
_FROM = 512


def theory(context: Context) -> Study:
    """Sweeps along the theorems' schedules, twin runs, static weights, and regions over n."""
    quick = context.quick
    measured = courses(
        context.parts,
        steps=QUICK_STEPS if quick else STEPS,
        datasets=context.pick(20, 4),
        runs=5 if quick else 20,
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
        runs=200 if quick else 10_000,
        watch=context.watch,
    )
    static = static_weights(
        context.parts,
        steps=QUICK_STATIC if quick else STATIC,
        datasets=context.pick(20, 4),
        watch=context.watch,
    )
    pairs = nonconvex(
        context.parts,
        samples=QUICK_TWIN_SAMPLES if quick else TWIN_SAMPLES,
        steps=QUICK_TWIN_STEPS if quick else TWIN_STEPS,
        runs=QUICK_TWIN_RUNS if quick else TWIN_RUNS,
        watch=context.watch,
    )
    by_size = grown(
        context.parts,
        largest=QUICK_LARGEST if quick else None,
        datasets=context.pick(20, 4),
        watch=context.watch,
    )
    slopes = slope_table(measured, stability)
    slopes = polars.concat([slopes, _nonconvex_slopes(pairs), _region_slopes(by_size)])
    _draw(context.folder, "theory", measured, stability, example, slopes)
    return Study(
        "theory",
        get("theory").title,
        rows=_rows(slopes, measured, stability, example),
        notes=_notes(slopes, measured, stability, example),
        tables={
            "courses": measured,
            "twins": stability,
            "example": example,
            "slopes": slopes,
            "static": static,
            "nonconvex": over_groups(pairs),
            "regions": by_size,
        },
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
                power = _fit(chosen, "T", "dataset")
                lines.append(_line(course.name, name, "T", power, promised, course.method))
    power = _fit(stability, "n", "pair")
    lines.append(_line("stability", "eps_F2", "n", power, PROMISED_STABILITY))
    return polars.DataFrame(lines)


def _nonconvex_slopes(pairs: polars.DataFrame) -> polars.DataFrame:
    """How ε_F² of the steep example grows with T (mean over n), and MoDo's falls with n (over T).

    The exponent in T is negative, as all others are of what falls.
    """
    steep = pairs.filter(polars.col("example") == "steep")
    fits = [(method, "T", -1.0) for method in METHODS] + [(PLANNED, "n", 1.0)]
    lines = []
    for method, variable, promised in fits:
        own = steep.filter(polars.col("method") == method)
        means = own.group_by(variable, "group").agg(polars.col("measured").mean())
        power = _fit(means.sort(variable, "group"), variable, "group")
        lines.append(_line(f"steep, {method}", "eps_F2", variable, power, promised, method))
    return polars.DataFrame(lines)


def _region_slopes(by_size: polars.DataFrame) -> polars.DataFrame:
    """How the errors fall with n along each schedule, and R_pop of one over that of another."""
    lines = []
    for name, growth in GROWTHS.items():
        own = by_size.filter(polars.col("region") == name)
        derived = growth.derived
        # The risk's bound is the sum of those of R_opt and R_gen.
        derived["R_pop"] = min(derived["R_opt"], derived["R_gen"])
        for error, promised in derived.items():
            power = _fit(own.filter(polars.col("error") == error), "n", "dataset")
            lines.append(_line(name, error, "n", power, promised))
    risks = by_size.filter(polars.col("error") == "R_pop")
    keys = ["n", "dataset"]
    slow, fast = (
        risks.filter(polars.col("region") == name).select(*keys, "measured")
        for name in ("resting", "avoiding")
    )
    ratio = fast.join(slow, on=keys, suffix="_slow").with_columns(
        measured=polars.col("measured") / polars.col("measured_slow")
    )
    lines.append(_line("avoiding / resting", "R_pop", "n", _fit(ratio, "n", "dataset"), 0.0))
    return polars.DataFrame(lines)


def _fit(table: polars.DataFrame, x: str, unit: str) -> Interval:
    wide = table.pivot(on=x, index=unit, values="measured", sort_columns=False).drop(unit)
    numbers = np.array([float(name) for name in wide.columns])
    return slope(numbers, wide.to_numpy())


def _line(
    course: str,
    error: str,
    variable: str,
    power: Interval,
    promised: float,
    method: str = PLANNED,
) -> dict[str, object]:
    """A fitted exponent e of variable^-e, and that of the bound."""
    return {
        "course": course,
        "method": method,
        "error": error,
        "in": variable,
        "exponent": -power.estimate,
        "low": -power.high,
        "high": -power.low,
        "promised": promised,
        "n": power.n,
    }


def _rows(
    slopes: polars.DataFrame,
    measured: polars.DataFrame,
    stability: polars.DataFrame,
    example: polars.DataFrame,
) -> list[Row]:
    rows: list[Row] = [
        {
            "method": line["method"],
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
    worst = {}
    for (error,), group in measured.drop_nulls("bound").group_by("error", maintain_order=True):
        ratios = (group["measured"] / group["bound"]).to_numpy()
        worst[str(error)] = (float(ratios.max()), len(ratios))
    ratios = (stability["measured"] / stability["bound"]).to_numpy()
    worst["eps_F2"] = (float(ratios.max()), len(ratios))
    return worst


def _notes(
    slopes: polars.DataFrame,
    measured: polars.DataFrame,
    stability: polars.DataFrame,
    example: polars.DataFrame,
) -> list[str]:
    lines = [
        f"{line['course']}: {line['error']} goes like {line['in']}^{-line['exponent']:.2f} "
        f"[{-line['high']:.2f}, {-line['low']:.2f}]; its bound like "
        f"{line['in']}^{-line['promised']:g}."
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
        f"are fitted for T ≥ {_FROM}, intervals are bootstraps over training sets. SMG takes "
        "batches of 1, 2, 3, …; MoCo single samples.",
        "“steep” is an example without convexity whose gradients are bounded and turn so fast that "
        "runs which differ have nothing in common: ε_F² by twin runs. I to IV are schedules in the "
        "regions of Figure 2, over n; “resting” and “avoiding” have T = n² and weights that nearly "
        "rest, or follow the conflict-avoiding ones.",
        *lines,
        "An error that falls more slowly than its bound does not break a theorem, which bounds the "
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


# --- drawing --------------------------------------------------------------------------------------


def _draw(
    folder: Path,
    name: str,
    measured: polars.DataFrame,
    stability: polars.DataFrame,
    example: polars.DataFrame,
    slopes: polars.DataFrame,
) -> None:
    """One panel a course, one for stability, one for the example of the lower bound."""
    panels = len(COURSES) + 2
    with figure(folder, name, figsize=(2.5 * panels, 3.3)) as drawn:
        row = drawn.subplots(1, panels)
        for axes, course in zip(row, COURSES, strict=False):
            for error, promised in course.promised.items():
                chosen = measured.filter(
                    polars.col("course") == course.name, polars.col("error") == error
                )
                _curve(axes, chosen, "T", error, _exponent(slopes, course.name, error), promised)
            axes.set_xlabel("$T$")
            axes.set_title(f"for {course.name}\n{_sizes(course)}", fontsize=9)
        _curve(row[-2], stability, "n", "eps_F2", _exponent(slopes, "stability", "eps_F2"), 2.0)
        row[-2].set_title("stability\n" + r"$T = n^2$, $\alpha \propto T^{-1/2}$", fontsize=9)
        row[-2].set_xlabel("$n$")
        sizes = stability["n"].unique().sort().to_list()
        row[-2].set_xticks(sizes[::2], [str(size) for size in sizes[::2]])
        row[-2].set_xticks([], minor=True)
        _example(row[-1], example)
        for axes in row:
            axes.grid(alpha=0.25)
            axes.legend(fontsize=7)


def _curve(
    axes: Any, table: polars.DataFrame, x: str, error: str, exponent: float, promised: float
) -> None:
    at, mean, half = means(table, x, "measured")
    colour = COLOURS[error]
    label = f"{NAMES[error]}: ${x}^{{-{exponent:.2f}}}$"
    axes.errorbar(at, mean, half, color=colour, marker="o", ms=3, lw=1.4, capsize=2, label=label)
    guide = mean[0] * 1.6 * (at / at[0]) ** -promised
    axes.plot(at, guide, color=colour, ls="--", lw=1, label=f"promised ${x}^{{-{promised:g}}}$")
    axes.set(xscale="log", yscale="log")


def _example(axes: Any, example: polars.DataFrame) -> None:
    n = example["n"].to_numpy()
    half = [quantile(runs - 1) * error for runs, error in example.select("runs", "error").rows()]
    axes.errorbar(n, example["measured"], half, color="#0072B2", marker="o", ms=3, capsize=2,
                  lw=1.4, label="measured")  # fmt: skip
    axes.plot(n, example["bound"], color="black", ls="--", lw=1, label="lower bound, proof")
    axes.plot(n, example["printed"], color="grey", ls=":", lw=1.2, label="lower bound, printed")
    axes.set(xscale="log", yscale="log", xlabel="$n$")
    axes.set_title("lower-bound example\n" + r"$E\|x_T - x'_T\|$", fontsize=9)


def _exponent(slopes: polars.DataFrame, course: str, error: str) -> float:
    fitted = slopes.filter(polars.col("course") == course, polars.col("error") == error)
    return float(fitted["exponent"][0])


def _sizes(course: Course) -> str:
    parts = []
    sizes = (("α", course.alpha), ("γ", course.gamma), ("ρ", course.rho), ("β", course.beta))
    for symbol, (factor, power) in sizes:
        if factor:
            shown = rf"$\propto T^{{-{power:g}}}$" if power else f"= {factor:g}"
            parts.append(f"{symbol} {shown}")
    return ", ".join(parts)
