"""Beyond Table 3: more methods on MNIST, each with the same search on validation images.

The paper's three step sizes differ by a factor of fifty, and its static weighting has neither its
weights nor its step size tuned. Here every method has as many trials (`table3_beyond.toml`): static
weighting over its weights, the others over their own hyper-parameters, each with several step
sizes, kept or falling. The choice is made on images held out of training, with seeds of its own,
and the chosen setting is then run with ten others and measured as in Table 3. The paper's three
methods; with ``--full`` all that the file lists.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

import polars

from trimol.paper import _printed_mnist as paper
from trimol.paper import table3
from trimol.paper._studies import Context, get
from trimol.report._numbers import number
from trimol.runs._over_seeds import at_end, run_over_seeds
from trimol.runs.comparison import Difference, columns, judged_together, numbers
from trimol.runs.config import RunConfig
from trimol.runs.statistics import Paired
from trimol.runs.store import StoredRun
from trimol.runs.study import Row, Study
from trimol.training import Diverged

CHOSEN_BY = "validation_loss/"
COMPARED = ("cross-entropy", "MSE", "Huber", "accuracy")
MOST = 6  # times that a grid is extended; beyond, the study says that the choice is at its edge
Tried = dict[str, Sequence[StoredRun | Diverged]]  # by the key of the setting


def beyond(context: Context) -> Study:
    """Run the study."""
    grid, tried = search(context)
    final = {method: _final(best(configs, tried)) for method, configs in grid.items()}
    table = paper.paper()["table3"]
    tables = table3.measured(final, context.pick(table["runs"], 2), context)
    found = against_first(tables)
    return Study(
        name="table3-beyond",
        title=get("table3-beyond").title,
        rows=[row for name in final for row in _rows(final[name], tables[name], found)],
        notes=[
            *_how(grid, tried),
            *_remaining(found),
            conflict(tables),
            table3.speed(tables),
        ],
        tables={"runs": table3.joined(tables), "tuning": tuning(grid, tried)},
    )


@cache
def stated() -> dict[str, Any]:
    """What is tried: ``table3_beyond.toml``."""
    text = files("trimol.paper").joinpath("table3_beyond.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def search(context: Context) -> tuple[dict[str, list[RunConfig]], Tried]:
    """All that was tried for each method, and what became of it."""
    grid = candidates(context)
    seeds = stated()["seeds"][:1] if context.quick else stated()["seeds"]
    tried: Tried = {}
    more = [config for configs in grid.values() for config in configs]
    for _ in range(MOST + 1):
        runs = run_over_seeds(more, seeds, context.parts, context.watch, on=context.on)
        tried |= zip((config.key for config in more), runs, strict=True)
        further = {method: beyond_edge(configs, tried) for method, configs in grid.items()}
        more = [config for config in further.values() if config is not None]
        if context.quick or not more:
            break
        for config in more:
            grid[config.method].append(config)
    return {m: [c for c in configs if c.key in tried] for m, configs in grid.items()}, tried


def candidates(context: Context) -> dict[str, list[RunConfig]]:
    """What is tried for each method at first, to be looked at on validation images.

    The paper's three methods; all that the file lists where hours are no matter.
    """
    tried, steps = stated(), 20 if context.quick else paper.paper()["table3"]["steps"]
    lrs = tried["lr"][:2] if context.quick else tried["lr"]
    return {
        method: [
            _trial(method, float(f"{lr * own.get('times', 1.0):.3g}"), own, steps, schedule)
            for own in options
            for schedule in tried["schedules"]
            for lr in lrs
        ]
        for method, options in tried["methods"].items()
        if context.full or context.quick or method in paper.methods()
    }


def _trial(method: str, lr: float, own: Mapping[str, Any], steps: int, schedule: str) -> RunConfig:
    hyperparameters = {name: value for name, value in own.items() if name != "times"}
    how = {} if schedule == "constant" else {"schedule": schedule}
    return table3.setting(method, lr, hyperparameters, steps, validation_only=True, **how)


def best(configs: Sequence[RunConfig], outcomes: Tried) -> RunConfig:
    """The setting with the lowest validation losses; the first of equals."""
    scores = [_score(outcomes[config.key]) for config in configs]
    if min(scores) == math.inf:
        raise Diverged(f"every step size of {configs[0].method} diverged")
    return configs[scores.index(min(scores))]


def beyond_edge(configs: Sequence[RunConfig], outcomes: Tried) -> RunConfig | None:
    """The next step size, where the chosen one is the first or the last of its kind."""
    chosen = best(configs, outcomes)
    alike = [c.lr for c in configs if _kind(c) == _kind(chosen)]
    if min(alike) < chosen.lr < max(alike):
        return None
    factor = stated()["factor"]
    lr = chosen.lr * factor if chosen.lr == max(alike) else chosen.lr / factor
    return chosen.model_copy(update={"lr": float(f"{lr:.3g}")})


def _kind(config: RunConfig) -> tuple[Any, ...]:
    """What trials that differ in the step size alone have in common."""
    return config.hyperparameters, config.schedule


def tuning(grid: Mapping[str, Sequence[RunConfig]], outcomes: Tried) -> polars.DataFrame:
    """Every trial with its validation losses and accuracy; none where a run diverged."""
    return polars.DataFrame(
        [
            {
                "method": config.method,
                "lr": config.lr,
                "schedule": config.schedule or "constant",
                "hyperparameters": json.dumps(config.hyperparameters),
                "mean_log_loss": score if math.isfinite(score) else None,
                "validation_accuracy": _accuracy(outcomes[config.key]),
            }
            for configs in grid.values()
            for config in configs
            for score in [_score(outcomes[config.key])]
        ],
        infer_schema_length=None,
    )


def _score(runs: Sequence[StoredRun | Diverged]) -> float:
    """The mean over seeds and losses of the logarithms of the losses; ∞ if a run diverged."""
    if any(isinstance(run, Diverged) for run in runs):
        return math.inf
    losses = [
        value
        for run in runs
        if isinstance(run, StoredRun)
        for name, value in run.record.items()
        if name.startswith(CHOSEN_BY)
    ]
    return fmean(map(math.log, losses)) if all(0 < v < math.inf for v in losses) else math.inf


def _accuracy(runs: Sequence[StoredRun | Diverged]) -> float | None:
    found = [run.record["validation/accuracy"] for run in runs if isinstance(run, StoredRun)]
    return fmean(found) if len(found) == len(runs) else None


def _final(config: RunConfig) -> RunConfig:
    """The chosen setting, to be measured in full."""
    return config.model_copy(update={"validation_only": False})


def against_first(tables: Mapping[str, polars.DataFrame]) -> list[Difference]:
    """How each method differs from the first, seed by seed, with Holm's p for all of them."""
    seen = {
        name: columns([numbers(record) for record in at_end(table).sort("seed").to_dicts()])
        for name, table in tables.items()
    }
    first, *others = seen
    return judged_together(
        first,
        [
            (name, metric, Paired(seen[first][metric], seen[name][metric]))
            for name in others
            for metric in COMPARED
        ],
    )


def _rows(config: RunConfig, table: polars.DataFrame, found: Sequence[Difference]) -> list[Row]:
    """The rows of a method, those that are compared with their difference from the first."""
    beside = {
        one.metric: {"difference": one.mean, "difference_ci": one.ci, "p": one.p}
        for one in found
        if one.method == config.method
    }
    how = {"schedule": config.schedule or "constant"}
    return [
        {**row, **how, **beside.get(row["metric"], {})} for row in table3.rows_of(config, table)
    ]


def _how(grid: Mapping[str, Sequence[RunConfig]], outcomes: Tried) -> list[str]:
    tried = stated()
    least = min(map(len, grid.values()))
    further = {m: len(configs) - least for m, configs in grid.items() if len(configs) > least}
    edge = [m for m, configs in grid.items() if beyond_edge(configs, outcomes) is not None]
    notes = [
        f"{least} trials of every method: {', '.join(f'{lr:g}' for lr in tried['lr'])} as step "
        f"sizes, {' and '.join(tried['schedules'])}, and three settings of its own (weights for "
        "static weighting; a finer grid of step sizes where a method has none: "
        "table3_beyond.toml). "
        + (
            "More, as the best step size was the first or the last: "
            f"{', '.join(f'{method} {count}' for method, count in further.items())}. "
            if further
            else ""
        )
        + "Chosen by the mean logarithm of the three losses on 10 000 validation images, mean of "
        f"{len(tried['seeds'])} seeds; the numbers here are on test images, of ten other seeds.",
        "Every method sees 64 000 images: 1000 steps of 64, or fewer steps where batches grow.",
    ]
    if edge:
        notes.append(f"Still at the edge of the grid: {', '.join(edge)}.")
    return notes


def _remaining(found: Sequence[Difference]) -> list[str]:
    """What is left of each difference from the first method."""
    return [
        f"{method} against {own[0].baseline}: {', '.join(map(_difference, own))}."
        for method in dict.fromkeys(one.method for one in found)
        for own in [[one for one in found if one.method == method]]
    ]


def _difference(one: Difference) -> str:
    """One difference in words."""
    shown = f"{one.metric} {one.mean:+.2g}" + ("" if one.ci is None else f" ± {one.ci:.1g}")
    if one.p is None:
        return shown
    return f"{shown} ({'clear' if one.clear else 'not clear'}, p = {number(one.p, 2)})"


def conflict(tables: Mapping[str, polars.DataFrame]) -> str:
    """Whether any two gradients over all training images conflict at the end of a run."""
    ends = polars.concat([at_end(table) for table in tables.values()], how="diagonal")
    cosines = ends.select(name for name in ends.columns if name.startswith("cosine/"))
    least = {name.removeprefix("cosine/"): float(cosines[name].min()) for name in cosines.columns}  # type: ignore[arg-type]
    runs = int((ends["conflicting"] > 0).sum())
    shown = ", ".join(f"{name.replace('/', ' and ')} {value:.2g}" for name, value in least.items())
    if not runs:
        return (
            f"No pair of gradients conflicts at the end of any of the {len(ends)} runs: the least "
            f"cosines, over all training images, are {shown}."
        )
    return (
        f"A pair of gradients conflicts at the end of {runs} of {len(ends)} runs; the least "
        f"cosines, over all training images, are {shown}."
    )
