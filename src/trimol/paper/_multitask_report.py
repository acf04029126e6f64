"""What a multi-task table shows, in words and in figures.

Words: which differences are larger than their noise, and how the numbers came about. Figures:
metrics and ΔA by method; weights and errors over training.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars

from trimol import methods as registry
from trimol._words import count
from trimol.compare import TunedResults, TuningPlan
from trimol.compare._tuned_problem import ALONE, PAPERS_BUDGET
from trimol.paper._drawing import NAMES, figure, files
from trimol.report._numbers import change, number
from trimol.report._style import Look, looks
from trimol.runs._judging import flat_goals
from trimol.runs._significance import too_few
from trimol.runs.comparison import Difference, judged_together
from trimol.runs.statistics import Interval, Paired, finite_mean, steps_apart
from trimol.tasks.task import Goals

DROP = "ΔA_id"
_WEIGHT = "weight/"
_AT_REST = 0.01  # weights that stay so near to where they began are said not to move
_ERRORS = ("R_opt", "R_pop", "R_gen", "E_ca")
_MOST_ACROSS = 4
_MANY = 4  # bands of more methods than this are drawn fainter
_GREY = "#777777"

Key = tuple[str, str]  # method, metric

# --- words ----------------------------------------------------------------------------------------


def notes(
    planned: TuningPlan, table: polars.DataFrame, goals: Goals, outcome: TunedResults
) -> list[str]:
    """What to make of the numbers, in words: differences first, then how they came about.

    ``table`` is what `multitask_tables.tidy` gave.
    """
    return [
        *compared(differences(table, planned.reference), goals),
        *_budgets(planned, table, goals),
        *resting(outcome.curves, planned.reference),
        joint(table),
        _measures(planned),
        *undefined(table),
        *_tuned(planned, outcome.tuning),
    ]


def compared(given: Sequence[Difference], goals: Goals) -> list[str]:
    """Which differences are larger than their noise, and which are not: a sentence a method."""
    if not given:
        return []
    if few := too_few(given[0].n, len(given)):
        return [f"{few[0].upper()}{few[1:]}."]
    said = [
        f"Differences from {given[0].baseline}, run by run over {given[0].n} seeds, ± half their "
        "95 % interval. “Larger than its noise” is p < 5 % in the paired t test after Holm's "
        f"adjustment for all {len(given)} differences of this table, and more than one step of the "
        "metric (an accuracy moves by one image), which is also the least spread that is assumed."
    ]
    for method in dict.fromkeys(each.method for each in given):
        own = [each for each in given if each.method == method]
        clear = [_said(each, goals) for each in own if each.clear]
        open_ = [_said(each, goals) for each in own if not each.clear]
        larger = f"larger than its noise: {'; '.join(clear)}" if clear else ""
        begin = "Not" if clear else "not"
        not_ = f"{begin} told apart from noise: {'; '.join(open_)}" if open_ else ""
        said.append(f"{method}: {'. '.join(filter(None, (larger, not_)))}.")
    return said


def _said(each: Difference, goals: Goals) -> str:
    digits = 2 if each.metric.startswith("ΔA") or abs(each.mean) >= 1 else 4
    text = f"{each.metric} {change(each.mean, each.ci, digits)}"
    if not each.clear:
        return text
    ways = flat_goals(goals)
    higher_is_better = ways.get(each.metric) == "higher"
    return f"{text} ({'better' if (each.mean > 0) == higher_is_better else 'worse'})"


def _budgets(planned: TuningPlan, table: polars.DataFrame, goals: Goals) -> list[str]:
    """What the paper's larger budget made of a difference, where it was run."""
    said = []
    for method in planned.methods:
        larger = PAPERS_BUDGET.format(method)
        if larger not in table["method"]:
            continue
        both = table.filter(polars.col("method").is_in([method, larger]))
        sentences = compared(differences(both, method), goals)[1:] or ["one seed each."]
        said.append(
            f"The paper's budget: as many times the steps as {method} has draws, so that it sees "
            f"more samples than the others. Against {method} at equal budget, {sentences[0]}"
        )
    return said


def resting(curves: polars.DataFrame, reference: str) -> list[str]:
    """Which methods weigh as the reference, whose weights never change, does all the time."""
    weights = [polars.col(name) for name in curves.columns if name.startswith(_WEIGHT)]
    start = curves.filter(polars.col("method") == reference).select(weights).row(0)
    still = []
    for (method,), own in curves.group_by(["method"], maintain_order=True):
        far = max(
            abs(value - first)
            for row in own.select(weights).iter_rows()
            for value, first in zip(row, start, strict=True)
        )
        if method != reference and far < _AT_REST:
            still.append(f"{method} (at most {number(far, 1)} away)")
    if not still:
        return []
    return [
        f"λ hardly moves, in any run or at any time that was measured: {', '.join(still)}. With "
        f"these settings that is {reference} weighting: what else differs between the two is not "
        "the weights' doing (weight decay, samples in halves, noise)."
    ]


def undefined(table: polars.DataFrame) -> list[str]:
    """Which ΔA cannot be said, because a baseline is 0."""
    drops = table.filter(polars.col("metric").str.starts_with("ΔA"))
    lacking = drops.filter(polars.col("value").is_nan())["metric"].unique(maintain_order=True)
    if lacking.is_empty():
        return []
    return [
        f"Not defined: {', '.join(lacking)}. A metric of the baseline is 0, and nothing is "
        "relative to 0: too short a training."
    ]


def joint(table: polars.DataFrame) -> str:
    """The same numbers at the one epoch that is best for all tasks together."""
    shown = table.filter(
        ((polars.col("kind") == "task") | (polars.col("metric") == DROP))
        & (polars.col("method") != ALONE)
    )
    parts = []
    for (method,), group in shown.group_by(["method"], maintain_order=True):
        means = group.group_by("metric", maintain_order=True).agg(polars.col("joint").mean())
        numbers = ", ".join(
            f"{metric} {number(value, 4)}"
            for metric, value in means.iter_rows()
            if not math.isnan(value)
        )
        parts.append(f"{method}: {numbers}")
    return (
        "Shown is the test number at the epoch that is best for that task on validation data. At "
        f"the one epoch that is best for all tasks together (the paper's rule): {'; '.join(parts)}."
    )


def _measures(planned: TuningPlan) -> str:
    stated = " and ".join(f"{DROP} ({name})" for name in planned.baselines)
    against = f"; against what the paper's authors got from it ({stated})" if stated else ""
    return (
        "Accuracies and other shares are fractions. ΔA is in per cent, lower is better: the mean "
        "over tasks of the relative drop (mean over the task's metrics) against single-task "
        f"learning by the same code (ΔA_id){against}; against the mean of "
        f"{planned.reference} (ΔA_st). Intervals are over the method's seeds; a baseline is taken "
        "as it is, without its own noise."
    )


def _tuned(planned: TuningPlan, tuning: polars.DataFrame) -> list[str]:
    tried_of = {method: len(tried) for method, tried in planned.methods.items()}
    run = (
        f"Every run: {count(planned.epochs, 'epoch')} at {planned.batch_size} samples a step (of "
        "each data set, where a task has one per objective), split between the draws of a method "
        "that has several: equal samples and equal steps for all."
    )
    if max(tried_of.values()) == 1:
        return [f"{run} Settings as the paper chose them; nothing was tuned."]
    listed = ", ".join(f"{method} {how_many}" for method, how_many in tried_of.items())
    said = (
        f"{run} Settings were chosen on validation data (ΔA_id, mean of "
        f"{count(planned.tuning_seeds, 'seed')}) among so many candidates: {listed}; single-task "
        f"learning has {planned.reference}'s."
    )
    return [said, *extended(planned, tuning), *stability(tuning)]


def extended(planned: TuningPlan, tuning: polars.DataFrame) -> list[str]:
    """Which grids were added to because an edge of them won, and which choices still are at one."""
    said = []
    more = {}
    for (method,), own in tuning.group_by(["method"], maintain_order=True):
        like = planned.reference if str(method).startswith(f"{ALONE}-") else str(method)
        added = len(own) - min(len(own), len(planned.methods[like]))
        if added:
            more[str(method)] = added
    if planned.extend:
        named = ", ".join(f"{method} {how_many}" for method, how_many in more.items())
        said.append(
            "Where a setting at an edge of the grid was the best, candidates beyond it were added, "
            f"up to {count(planned.extend, 'time')}, from that setting on and one number at a "
            f"time: {named or 'none'}."
        )
    chosen = tuning.filter(polars.col("chosen") & (polars.col("edge") != ""))
    edges = [f"{method} ({edge})" for method, edge in chosen.select("method", "edge").iter_rows()]
    if edges:
        beyond = "Chosen at the edge of what was tried, so that better ones may lie beyond"
        said.append(f"{beyond}: {'; '.join(edges)}.")
    return said


def stability(tuning: polars.DataFrame) -> list[str]:
    """How much the choice of a setting owes to the seeds that it was made with."""
    each = []
    for (method,), own in tuning.group_by(["method"], maintain_order=True):
        best = own.filter(polars.col("chosen")).row(0, named=True)
        if best["seeds"] < 2:
            return ["One seed chose the settings: how stable the choice is was not measured."]
        others = own.filter(~polars.col("chosen") & polars.col("behind").is_finite())
        if others.is_empty():
            continue
        near = others.sort("behind", maintain_order=True).row(0, named=True)
        alike = others.filter(~polars.col("worse").fill_null(True)).height
        each.append(
            f"{method}: first with {best['first_of_seeds']} of {best['seeds']} seeds alone, the "
            f"next is {number(near['behind'], 2)} ± {number(near['behind_ci'], 2)} behind, "
            f"{alike} of {len(own) - 1} others not told apart from it"
        )
    if not each:
        return []
    return [
        "How stable the choices are (with how many of the seeds that tuned, each taken alone, the "
        "same setting would be chosen; by how much the next best is behind on validation data, in "
        "ΔA_id or of single-task learning in its metric, ± half its 95 % interval; how many other "
        f"candidates are not worse by more than the noise): {'; '.join(each)}."
    ]


def differences(table: polars.DataFrame, reference: str) -> list[Difference]:
    """How each method differs from the reference, seed by seed, in every metric and in ΔA_id.

    The p values are adjusted by Holm for all of them together.
    """
    by_seed: dict[Key, dict[int, float]] = {}
    for method, metric, seed, value in table.select("method", "metric", "seed", "value").rows():
        by_seed.setdefault((method, metric), {})[seed] = value
    judged = table.filter((polars.col("kind") == "task") | (polars.col("metric") == DROP))
    pairs = []
    for method, metric in judged.select("method", "metric").unique(maintain_order=True).rows():
        base, own = by_seed.get((reference, metric), {}), by_seed[method, metric]
        shared = sorted(own.keys() & base.keys())
        pair = Paired(
            base=[base[seed] for seed in shared],
            own=[own[seed] for seed in shared],
            resolution=_step_of_drop(by_seed, (reference, method)) if metric == DROP else 0.0,
        )
        # No ΔA against a baseline of 0.
        if method not in (reference, ALONE) and shared and all(map(math.isfinite, pair.apart)):
            pairs.append((method, metric, pair))
    return judged_together(reference, pairs)


def _step_of_drop(by_seed: Mapping[Key, Mapping[int, float]], methods: Sequence[str]) -> float:
    """The largest step that one objective's metric can make in ΔA_id, the mean of their shares."""
    shares: dict[str, list[float]] = {}
    for (method, metric), values in by_seed.items():
        if method in methods and metric.startswith(f"{DROP}/"):
            shares.setdefault(metric, []).extend(values.values())
    return max(map(steps_apart, shares.values()), default=0.0) / max(len(shares), 1)


# --- figures --------------------------------------------------------------------------------------


class Bar(NamedTuple):
    """One method's number over seeds, and what the paper prints; None where it prints nothing."""

    method: str
    number: Interval
    paper: float | None


class Curve(NamedTuple):
    """A number over training: at these epochs, over seeds."""

    epochs: list[float]
    points: list[Interval]


def bars(seeds: polars.DataFrame, metric: str, printed: Mapping[Key, float]) -> list[Bar]:
    """A metric of every method, in the order of the table."""
    chosen = seeds.filter(polars.col("metric") == metric)
    return [
        Bar(str(method), finite_mean(group["value"]), printed.get((str(method), metric)))
        for (method,), group in chosen.group_by(["method"], maintain_order=True)
    ]


def curve(curves: polars.DataFrame, method: str, column: str) -> Curve:
    """A recorded number of one method over training; R_gen without its sign."""
    size = polars.col(column).abs() if column == "R_gen" else polars.col(column)
    own = curves.filter((polars.col("method") == method) & polars.col(column).is_not_null())
    grouped = own.group_by("epoch").agg(size.alias("values")).sort("epoch")
    return Curve(grouped["epoch"].to_list(), [finite_mean(values) for values in grouped["values"]])


def draw(
    name: str,
    seeds: polars.DataFrame,
    curves: polars.DataFrame,
    printed: Mapping[Key, float],
    folder: Path,
) -> list[str]:
    """Draw all figures of a study into a folder and return the files' names.

    ``seeds`` has one row a method, seed and metric, with its ``kind``; ``curves`` one row a method,
    seed and measurement; ``printed`` the paper's numbers.
    """
    tasks, overall = (
        seeds.filter((polars.col("kind") == kind) & polars.col("value").is_finite())["metric"]
        .unique(maintain_order=True)
        .to_list()
        for kind in ("task", "overall")
    )
    style = _looks(seeds["method"].to_list())
    weights = [column for column in curves.columns if column.startswith(_WEIGHT)]
    errors = [column for column in _ERRORS if column in curves.columns]
    done = []
    for what, metrics in (("tasks", tasks), ("drop", overall)):
        panels = {metric: bars(seeds, metric, printed) for metric in metrics}
        if panels:
            _compared(folder, f"{name}-{what}", panels, style)
            done += files(f"{name}-{what}")
    for what, columns in (("weights", weights), ("errors", errors)):
        if columns:
            _over_training(folder, f"{name}-{what}", curves, columns, style)
            done += files(f"{name}-{what}")
    return done


def _looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look for every label: single-task learning is grey, a method is the same at any budget.

    Methods take their colours in the order they are listed in everywhere, so that those of the
    paper's main tables never share one.

    >>> style = _looks(["alone", "modo", "static", "modo (paper's budget)"])
    >>> style["modo"].colour == style["modo (paper's budget)"].colour != style["static"].colour
    True
    """
    style = looks(name for name in registry.names() if name in labels)
    larger = {PAPERS_BUDGET.format(name): look for name, look in style.items()}
    return {ALONE: Look(_GREY, "circle", "o"), **style, **larger}


def _compared(
    folder: Path, file: str, panels: Mapping[str, Sequence[Bar]], style: Mapping[str, Look]
) -> None:
    """One panel a metric, methods below each other."""
    methods = list(dict.fromkeys(bar.method for bars_ in panels.values() for bar in bars_))
    down, across = _grid(len(panels))
    size = (2.5 * across + 0.8, (0.24 * len(methods) + 0.9) * down + 0.3)
    with figure(folder, file, figsize=size) as drawn:
        grid = drawn.subplots(down, across, sharey=True, squeeze=False)
        for axes, (metric, bars_) in zip(grid.flat, panels.items(), strict=False):
            _panel(axes, metric, bars_, methods, style)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        grid[0, 0].set_yticks(range(len(methods)), methods)
        grid[0, 0].set_ylim(len(methods) - 0.4, -0.6)  # the first on top
        if any(bar.paper is not None for bars_ in panels.values() for bar in bars_):
            drawn.supxlabel("hollow: the paper's", fontsize=7, color=_GREY, ha="right", x=0.99)


def _panel(
    axes: Any, metric: str, bars_: Sequence[Bar], methods: Sequence[str], style: Mapping[str, Look]
) -> None:
    for bar in bars_:
        look, place = style[bar.method], methods.index(bar.method)
        axes.errorbar(
            [bar.number.estimate], [place], xerr=[bar.number.half or 0.0],
            color=look.colour, marker=look.marker, ms=5, capsize=3, lw=1.4,
        )  # fmt: skip
        if bar.paper is not None:
            axes.plot(
                [bar.paper], [place + 0.22], ls="none", marker="D", ms=4,
                markerfacecolor="none", markeredgecolor=_GREY,
            )  # fmt: skip
    if metric.startswith("ΔA"):
        axes.axvline(0, color="#999999", lw=0.8, ls=":")
        axes.set_xlabel("%, lower is better", fontsize=8)
    # A long name on two lines, broken before its bracket.
    title = metric.replace(" (", "\n(") if len(metric) > 18 else metric
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.25, axis="x")
    axes.tick_params(axis="x", labelsize=7)
    axes.locator_params(axis="x", nbins=4)


def _over_training(
    folder: Path,
    file: str,
    curves: polars.DataFrame,
    columns: Sequence[str],
    style: Mapping[str, Look],
) -> None:
    """One panel a number, one line a method, with a band for its interval."""
    methods = curves["method"].unique(maintain_order=True).to_list()
    faint = 0.15 if len(methods) <= _MANY else 0.06
    down, across = (2, 2) if len(columns) == 4 else _grid(len(columns))
    with figure(folder, file, figsize=(3.1 * across, 2.5 * down + 0.4)) as drawn:
        shared = all(column.startswith(_WEIGHT) for column in columns)
        grid = drawn.subplots(down, across, squeeze=False, sharex=True, sharey=shared)
        for axes, column in zip(grid.flat, columns, strict=False):
            for method in methods:
                line = curve(curves, method, column)
                _line(axes, line, method, style[method], log=not shared, faint=faint)
            title = column.removeprefix(_WEIGHT)
            axes.set_title(f"λ of {title}" if shared else NAMES[column])
            axes.grid(alpha=0.25)
            if not shared:
                axes.set_yscale("log")
        for axes in grid.flat[len(columns) :]:
            axes.remove()
        for axes in grid[-1]:
            axes.set_xlabel("epoch")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        wide = min(len(labels), _MOST_ACROSS)
        drawn.legend(handles, labels, loc="outside lower center", ncols=wide, fontsize=7)


def _line(axes: Any, line: Curve, method: str, look: Look, *, log: bool, faint: float) -> None:
    """Mean and band; what is not above zero has no place on a logarithmic axis."""
    means = [point.estimate if point.estimate > 0 or not log else math.nan for point in line.points]
    # On a logarithmic axis a band that reaches zero is cut a third below the mean.
    low = [
        max(point.band[0], mean / 3) if log else point.band[0]
        for point, mean in zip(line.points, means, strict=True)
    ]
    high = [point.band[1] for point in line.points]
    every = max(1, len(line.epochs) // 6)
    axes.plot(
        line.epochs, means, color=look.colour, marker=look.marker, ms=3.5, markevery=every,
        lw=1.3, label=method, ls="-" if method in registry.names() else "--",
    )  # fmt: skip
    axes.fill_between(line.epochs, low, high, color=look.colour, alpha=faint, lw=0)


def _grid(panels: int) -> tuple[int, int]:
    """Rows and columns: one row up to four panels, then as square as it gets.

    >>> _grid(3), _grid(9)
    ((1, 3), (3, 3))
    """
    across = panels if panels <= _MOST_ACROSS else min(_MOST_ACROSS, math.ceil(math.sqrt(panels)))
    return math.ceil(panels / across), across
