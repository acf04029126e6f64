"""What it came to: the sentences at the top, the table of final numbers, and what to beware of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trimol.errors import conflict_over_runs
from trimol.report._means import Estimate, estimate
from trimol.report._numbers import count, interval, number, power, unit
from trimol.report._runs import Comparison, Setting, columns, last
from trimol.report._triangle import AXES, Triangle
from trimol.runs.store import DIRECTION, StoredRun

MOST_NAMED = 4


@dataclass(frozen=True)
class Table:
    """A table as text.

    Attributes:
        columns: The headings.
        rows: The cells, a row a list; the first cell of a row names it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def headline(comparison: Comparison) -> tuple[str, ...]:
    """What was compared, and which method ended with the smallest errors: two sentences."""
    return (_compared(comparison), *_smallest(comparison))


def final(comparison: Comparison) -> Table:
    """Every setting's last losses, metrics and errors: mean over seeds ± 95 % interval."""
    tested = bool(columns(comparison, "test_loss/"))
    prefix, kind = ("test_loss/", "test") if tested else ("loss/", "training")
    names = {
        **{f"{name} ({kind} loss)": prefix + name for name in comparison.objectives},
        **{name: f"metric/{name}" for name in columns(comparison, "metric/")},
        **{name: name for name in ("R_opt", "R_pop", "|R_gen|", "E_ca", "E_caw")},
    }
    found = {
        heading: [estimate(last(setting.runs, column)) for setting in comparison.settings]
        for heading, column in names.items()
    }
    found["E_ca of the mean"] = [_of_the_mean(setting) for setting in comparison.settings]
    kept = {name: column for name, column in found.items() if any(e.total for e in column)}
    units = {name: unit(e.mean for e in column) for name, column in kept.items()}
    cells = [[_cell(e, units[name]) for e in column] for name, column in kept.items()]
    seeds = [str(len(setting.runs)) for setting in comparison.settings]
    return Table(
        ("method", "seeds", *(name + power(units[name]) for name in kept)),
        tuple(zip(comparison.labels, seeds, *cells, strict=True)),
    )


def relative(figure: Triangle) -> Table:
    """The triangle's numbers: each error as a multiple of the worst method's."""
    return Table(
        ("method", *(f"{name} ({symbol})" for name, symbol in AXES)),
        tuple(
            (shape.label, *(_multiple(corner.ratio) for corner in shape.corners))
            for shape in figure.shapes
        ),
    )


def warnings(comparison: Comparison) -> list[str]:
    """What a reader has to know before believing the figures."""
    return [
        *(text for setting in comparison.settings for text in _unfinished(setting)),
        *(text for setting in comparison.settings for text in _not_finite(setting)),
        *_few_seeds(comparison),
    ]


def absent(comparison: Comparison) -> list[str]:
    """Which figures are missing, and why."""
    settings = comparison.settings
    if not any(last(setting.runs, "R_opt") for setting in settings):
        return ["Nothing has been measured yet."]
    texts = []
    if not any(last(setting.runs, "R_pop") for setting in settings):
        texts.append("There is no test data: R_pop and R_gen are not known.")
    elif len(settings) < 2:
        texts.append("One method alone makes no trade-off: no triangle of the three errors.")
    if len(comparison.objectives) == 1:
        texts.append("There is one objective: its weight is always 1, and nothing conflicts.")
    return texts


def _compared(comparison: Comparison) -> str:
    settings = comparison.settings
    configs = [run.config for setting in settings for run in setting.runs]
    seeds = sorted({len(setting.runs) for setting in settings})
    objectives = len(comparison.objectives)
    what = count(len(settings), "method" if _one_each(settings) else "setting")
    return (
        f"{what} on {comparison.title} with {count(objectives, 'objective')}"
        f"{': ' + _listed(comparison.objectives) if 0 < objectives <= 6 else ''}; "
        f"{_range(seeds, 'seed')}{' each' if len(settings) > 1 else ''}, "
        f"{_range(sorted({c.steps for c in configs}), 'step')} of "
        f"{_range(sorted({c.batch_size for c in configs}), 'sample')}."
    )


def _smallest(comparison: Comparison) -> list[str]:
    """Which setting has the smallest mean of each error, and whether its interval stands apart."""
    if len(comparison.settings) < 2:
        return []
    parts = []
    for name, column in AXES:
        found = {s.label: estimate(last(s.runs, column)) for s in comparison.settings}
        found = {label: e for label, e in found.items() if e.n}
        if len(found) > 1:
            parts.append(f"{name} error {column}: {_winner(found)}")
    return [f"Smallest {'; '.join(parts)}."] if parts else []


def _winner(found: dict[str, Estimate]) -> str:
    best = min(found, key=lambda label: found[label].mean)
    text = f"{best}, {_cell(found[best])}"
    if found[best].half is None:
        return f"{text} (one seed)"
    rivals = [
        label
        for label, other in found.items()
        if label != best and other.half is not None and other.low <= found[best].high
    ]
    if len(rivals) > MOST_NAMED:
        return f"{text} (intervals overlap with {len(rivals)} others)"
    return f"{text} (intervals overlap: {_listed(rivals)})" if rivals else text


def _cell(found: Estimate, exponent: int = 0) -> str:
    if not found.total:
        return number(None)
    scale = 10.0**exponent
    text = interval(found.mean / scale, None if found.half is None else found.half / scale)
    return text if found.n == found.total else f"{text} ({found.n} of {found.total} finite)"


def _of_the_mean(setting: Setting) -> Estimate:
    """The definition's E_ca, with the expectation over runs inside the norm: one number."""
    stored = all((run.path / DIRECTION).exists() for run in setting.runs)
    if not setting.finished or len(setting.runs) < 2 or not stored:
        return estimate([])
    return estimate([conflict_over_runs(run.direction for run in setting.runs).definition])


def _multiple(ratio: float) -> str:
    return "1 (worst)" if ratio == 1 else f"{number(ratio, 2)}"


def _unfinished(setting: Setting) -> list[str]:
    if not setting.finished:
        reached = [_reached(run) for run in setting.runs]
        total = setting.runs[0].config.steps
        return [
            f"{setting.label}: no run is finished; shown as far as measured "
            f"(step {_listed([str(step) for step in reached])} of {total})."
        ]
    if setting.left_out:
        seeds = _listed([str(run.config.seed) for run in setting.left_out])
        return [f"{setting.label}: unfinished and left out: seed {seeds}."]
    return []


def _reached(run: StoredRun) -> int:
    steps = run.metrics["step"].to_list() if "step" in run.metrics.columns else []
    return max(steps, default=0)


def _not_finite(setting: Setting) -> list[str]:
    found = [_first_not_finite(run) for run in setting.runs]
    steps = [step for step in found if step is not None]
    if not steps:
        return []
    return [
        f"{setting.label}: {len(steps)} of {count(len(found), 'run')} recorded numbers that are "
        f"not finite, from step {min(steps)} on; means are over the finite ones."
    ]


def _first_not_finite(run: StoredRun) -> int | None:
    return next(
        (
            row["step"]
            for row in run.metrics.iter_rows(named=True)
            if any(isinstance(v, float) and not math.isfinite(v) for v in row.values())
        ),
        None,
    )


def _few_seeds(comparison: Comparison) -> list[str]:
    single = [setting.label for setting in comparison.settings if len(setting.runs) == 1]
    if not single:
        return []
    who = "every method" if len(single) == len(comparison.settings) else _listed(single)
    return [f"One seed only for {who}: no interval, and no telling a difference from luck."]


def _one_each(settings: Sequence[Setting]) -> bool:
    return len({setting.method for setting in settings}) == len(settings)


def _range(values: Sequence[int], thing: str) -> str:
    if len(values) == 1:
        return count(values[0], thing)
    return f"{values[0]} to {count(values[-1], thing)}" if values else f"no {thing}s"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
