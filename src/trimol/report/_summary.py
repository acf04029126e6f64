"""What it came to, in sentences and tables: of a comparison and of a study."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimol._words import count
from trimol.report._numbers import (
    counts,
    estimated,
    interval,
    listed,
    number,
    power,
    shortened,
    unit,
)
from trimol.report._runs import Comparison, Setting, columns, flattened, last, weights_told
from trimol.report._triangle import AXES, Triangle
from trimol.runs._diagnosis_file import FILE as DIAGNOSIS
from trimol.runs._sentences import compared
from trimol.runs.statistics import finite_mean
from trimol.runs.store import StoredRun
from trimol.runs.study import COLUMNS, Row, Study
from trimol.runs.verdict import judge_runs

LONGEST_REASON = 400  # letters of why a run failed, where all runs are told of
# These of a study's row have a column of their own beside the setting's.
VERDICT, PAPER_SPREAD, HALF = "verdict", "paper_std", "ci"


@dataclass(frozen=True)
class Table:
    """A table as text; the first cell of a row names it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def headline(comparison: Comparison) -> tuple[str, ...]:
    """What was compared, what differs beyond noise, and whose λ did not move."""
    return (
        _compared(comparison),
        *_found(comparison),
        *weights_told({s.label: s.runs for s in comparison.settings}),
    )


def final(comparison: Comparison) -> Table:
    """Every setting's last losses, metrics and errors: mean over seeds ± 95 % interval."""
    tested = bool(columns(comparison, "test_loss/"))
    prefix, kind = ("test_loss/", "test") if tested else ("loss/", "training")
    names = {
        **{f"{name} ({kind} loss)": prefix + name for name in comparison.objectives},
        **{name: f"metric/{name}" for name in columns(comparison, "metric/")},
        **{name: name for name in ("R_opt", "R_pop", "|R_gen|", "E_ca", "E_caw")},
    }
    values = {
        heading: [last(setting.runs, column) for setting in comparison.settings]
        for heading, column in names.items()
    }
    measured = {name: column for name, column in values.items() if any(column)}
    units, cells = zip(*map(_in_one_unit, measured.values()), strict=True) if measured else ((), ())
    seeds = [str(len(setting.runs)) for setting in comparison.settings]
    return Table(
        ("method", "seeds", *(n + power(u) for n, u in zip(measured, units, strict=True))),
        tuple(zip(map(_named, comparison.settings), seeds, *cells, strict=True)),
    )


def settings(comparison: Comparison) -> Table:
    """What every setting was run with."""
    flat = [flattened(setting.runs[0].config.model_dump()) for setting in comparison.settings]
    names = [n for n in dict.fromkeys(name for f in flat for name in f) if n != "method"]
    rows = tuple(
        (
            setting.label,
            ", ".join(map(str, setting.seeds)),
            *(str(f[name]) if name in f else number(None) for name in names),
        )
        for setting, f in zip(comparison.settings, flat, strict=True)
    )
    return Table(("method", "seeds", *names), rows)


def measured_and_paper(study: Study) -> Table:
    """A study's rows: mean ± standard deviation, interval, the paper's number and the verdict."""
    rows = study.rows
    apart = (*COLUMNS, VERDICT, PAPER_SPREAD, HALF)
    own = dict.fromkeys(name for row in rows for name in row if name not in apart)
    # A calculation or a single trial has no spread.
    measured = "measured" + " (mean ± std)" * any(row["std"] is not None for row in rows)
    columns = {
        "method": [str(row["method"]) for row in rows],
        **{name: [_text(row.get(name)) for row in rows] for name in own},
        "metric": [str(row["metric"]) for row in rows],
        measured: [interval(row["mean"], row["std"]) for row in rows],
        "n": [str(row["n"]) for row in rows],
    }
    if any(row.get(HALF) is not None for row in rows):
        columns["95 % interval of the mean"] = [_ends(row) for row in rows]
    if any(row["paper"] is not None for row in rows):
        columns["paper"] = [
            row["paper"]  # the paper may print words
            if isinstance(row["paper"], str)
            else interval(row["paper"], row.get(PAPER_SPREAD))
            for row in rows
        ]
    if any(row.get(VERDICT) for row in rows):
        columns["verdict"] = [_text(row.get(VERDICT)) for row in rows]
    return Table(tuple(columns), tuple(zip(*columns.values(), strict=True)))


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
        *(text for setting in comparison.settings for text in _stopped(setting)),
        *(text for setting in comparison.settings for text in _not_finite(setting)),
        *_few_seeds(comparison),
    ]


def absent(comparison: Comparison) -> list[str]:
    """Which figures are missing, and why."""
    compared = comparison.settings
    if not any(last(setting.runs, "R_opt") for setting in compared):
        return ["Nothing has been measured yet."]
    texts = []
    if not any(last(setting.runs, "R_pop") for setting in compared):
        texts.append("There is no test data: R_pop and R_gen are not known.")
    elif len(comparison.ranked) < 2:
        alone = "alone" if len(compared) < 2 else "that is finished"
        texts.append(f"One method {alone} makes no trade-off: no triangle of the three errors.")
    if len(comparison.objectives) == 1:
        texts.append("There is one objective: its weight is always 1, and nothing conflicts.")
    return texts


def unfinished(comparison: Comparison) -> list[str]:
    """The runs that are not finished, and what has become of each: a line each."""
    return [
        f"{comparison.title}: {setting.label}, seed {run.config.seed}: {_shown(run)}"
        for setting in comparison.settings
        for run in (*setting.runs, *setting.left_out)
        if not run.finished
    ]


def _compared(comparison: Comparison) -> str:
    compared, objectives = comparison.settings, comparison.objectives
    configs = [run.config for setting in compared for run in setting.runs]
    seeds = sorted({len(setting.runs) for setting in compared})
    one_each = len({setting.method for setting in compared}) == len(compared)
    return (
        f"{count(len(compared), 'method' if one_each else 'setting')} on {comparison.title} with "
        f"{count(len(objectives), 'objective')}"
        f"{': ' + listed(objectives) if 0 < len(objectives) <= 6 else ''}; "
        f"{counts(seeds, 'seed')}{' each' if len(compared) > 1 else ''}, "
        f"{counts(sorted({c.steps for c in configs}), 'step')} of "
        f"{counts(sorted({c.batch_size for c in configs}), 'sample')}."
    )


def _found(comparison: Comparison) -> list[str]:
    """What differs from static weighting beyond noise: by the rule of `trimol.runs.verdict`."""
    finished = {s.label: s.runs for s in comparison.settings if s.finished}
    if any(map(_judged_already, (run for runs in finished.values() for run in runs))):
        return ["These are the final runs of the diagnosis above, which judges them."]
    return compared(*judge_runs(finished)) if len(finished) > 1 else []


def _judged_already(run: StoredRun) -> bool:
    """Whether it is a final run of a diagnosis: in runs/METHOD/SETTING/seed-N of its folder."""
    above = run.path.resolve().parents
    return len(above) > 3 and (above[3] / DIAGNOSIS).exists()


def _in_one_unit(column: Sequence[Sequence[float]]) -> tuple[int, list[str]]:
    """The power of ten that suits a column, and its cells: the mean of each group's values."""
    means = [finite_mean(values) for values in column]
    exponent = unit(mean.estimate for mean in means)
    sizes = map(len, column)
    return exponent, [estimated(m, size, exponent) for m, size in zip(means, sizes, strict=True)]


def _multiple(ratio: float) -> str:
    return "1 (worst)" if ratio == 1 else number(ratio, 2)


def _unfinished(setting: Setting) -> list[str]:
    if not setting.finished:
        return [f"{setting.label}: no run is finished; shown as far as measured ({_at(setting)})."]
    if setting.left_out:
        seeds = listed([str(run.config.seed) for run in setting.left_out])
        return [f"{setting.label}: unfinished and left out: seed {seeds}."]
    return []


def _named(setting: Setting) -> str:
    """The label, with the step that the numbers are of where it is not the last."""
    return setting.label if setting.finished else f"{setting.label} ({_at(setting)})"


def _at(setting: Setting) -> str:
    reached = listed([str(_reached(run)) for run in setting.runs])
    return f"step {reached} of {setting.runs[0].config.steps}"


def _stopped(setting: Setting) -> list[str]:
    """What has become of the runs that are not finished, where that is known."""
    return [
        f"{setting.label}, seed {run.config.seed}: {_shown(run)}"
        for run in (*setting.runs, *setting.left_out)
        if not run.finished and run.state.reason
    ]


def _shown(run: StoredRun) -> str:
    return shortened(str(run.state), LONGEST_REASON)


def _reached(run: StoredRun) -> int:
    steps = run.metrics["step"].to_list() if "step" in run.metrics.columns else []
    return max(steps, default=0)


def _not_finite(setting: Setting) -> list[str]:
    steps = [s for run in setting.runs if (s := _first_not_finite(run)) is not None]
    if not steps:
        return []
    return [
        f"{setting.label}: {len(steps)} of {count(len(setting.runs), 'run')} recorded numbers "
        f"that are not finite, from step {min(steps)} on; means are over the finite ones."
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
    who = "every method" if len(single) == len(comparison.settings) else listed(single)
    return [f"One seed only for {who}: no interval, and no telling a difference from luck."]


def _ends(row: Row) -> str:
    """From where to where the interval of a mean reaches."""
    half = row.get(HALF)
    if half is None:
        return number(None)
    return f"{number(row['mean'] - half)} to {number(row['mean'] + half)}"


def _text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value))
    return number(None) if value is None else str(value)
