"""Beyond Table 3: more methods on MNIST, each tuned on validation images over the same step sizes.

The paper's three step sizes differ by a factor of fifty. Here every method has the same grid of
step sizes and as many images, the choice is made on images held out of training, and the chosen
setting is then run with ten seeds and measured as in Table 3.
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
from trimol.runs._over_seeds import run_over_seeds
from trimol.runs.config import RunConfig
from trimol.runs.store import StoredRun
from trimol.runs.study import Study
from trimol.training import Diverged

CHOSEN_BY = "validation/accuracy"
Tried = Mapping[str, Sequence[StoredRun | Diverged]]  # by the key of the setting


def beyond(context: Context) -> Study:
    """Run the study."""
    grid = candidates(context)
    tried = [config for configs in grid.values() for config in configs]
    runs = run_over_seeds(tried, 1 if context.quick else stated()["seeds"], context.parts)
    tried_runs = dict(zip((config.key for config in tried), runs, strict=True))
    final = {method: _final(best(configs, tried_runs)) for method, configs in grid.items()}
    table = paper.paper()["table3"]
    tables = table3.measured(final, context.pick(table["runs"], 2), context)
    stated_steps = {"steps": 20 if context.quick else table["steps"]}
    return Study(
        name="table3-beyond",
        title=get("table3-beyond").title,
        rows=[
            {**row, **stated_steps}
            for method, config in final.items()
            for row in table3.rows_of(config, tables[method])
        ],
        notes=[*_notes(final), table3.speed(tables)],
        tables={"runs": table3.joined(tables), "tuning": tuning(tried, tried_runs)},
    )


@cache
def stated() -> dict[str, Any]:
    """What is tried: ``table3_beyond.toml``."""
    text = files("trimol.paper").joinpath("table3_beyond.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def candidates(context: Context) -> dict[str, list[RunConfig]]:
    """What is tried for each method, to be looked at on validation images."""
    tried, steps = stated(), 20 if context.quick else paper.paper()["table3"]["steps"]
    lrs = tried["lr"][::3] if context.quick else tried["lr"]
    return {
        method: [
            table3.setting(method, lr, own, steps, validation_only=True)
            for own in options
            for lr in lrs
        ]
        for method, options in tried["methods"].items()
    }


def best(configs: Sequence[RunConfig], outcomes: Tried) -> RunConfig:
    """The setting with the highest mean validation accuracy; the first of equals."""
    scores = [_score(outcomes[config.key]) for config in configs]
    if max(scores) == -math.inf:
        raise Diverged(f"every step size of {configs[0].method} diverged")
    return configs[scores.index(max(scores))]


def tuning(configs: Sequence[RunConfig], outcomes: Tried) -> polars.DataFrame:
    """Every candidate with its validation accuracy; none where a run diverged."""
    return polars.DataFrame(
        [
            {
                "method": config.method,
                "lr": config.lr,
                "hyperparameters": json.dumps(config.hyperparameters),
                "validation_accuracy": score if math.isfinite(score) else None,
            }
            for config in configs
            for score in [_score(outcomes[config.key])]
        ]
    )


def _score(runs: Sequence[StoredRun | Diverged]) -> float:
    """The mean accuracy over seeds; −∞ if a run diverged."""
    stored = [run for run in runs if isinstance(run, StoredRun)]
    if len(stored) < len(runs):
        return -math.inf
    return fmean(run.record[CHOSEN_BY] for run in stored)


def _final(config: RunConfig) -> RunConfig:
    """The chosen setting, to be measured in full."""
    return config.model_copy(update={"validation_only": False})


def _notes(final: Mapping[str, RunConfig]) -> list[str]:
    tried = stated()
    edge = [m for m, config in final.items() if config.lr in (tried["lr"][0], tried["lr"][-1])]
    notes = [
        f"Step sizes tried for every method: {', '.join(f'{lr:g}' for lr in tried['lr'])}; "
        "hyper-parameters as in table3_beyond.toml, the methods' defaults otherwise. Chosen by the "
        f"accuracy on 10 000 validation images, mean of {tried['seeds']} seeds; the numbers here "
        "are on test images, of runs that include those seeds.",
        "Every method sees 64 000 images: 1000 steps of 64, or fewer steps where batches grow.",
    ]
    if edge:
        notes.append(
            f"At the edge of the grid, a better step size may lie beyond it: {', '.join(edge)}."
        )
    return notes
