"""Beyond Table 3: more methods on MNIST, each tuned on validation images over the same step sizes.

The paper's three step sizes differ by a factor of fifty. Here every method has the same grid of
step sizes and as many images, the choice is made on images held out of training, and the chosen
setting is then run with ten seeds and measured as in Table 3.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import polars

from trimol.paper import _printed_mnist as paper
from trimol.paper import table3
from trimol.paper._studies import Context, get
from trimol.runs import _seeds as seeds
from trimol.runs._seeds import Setting
from trimol.runs.study import Study

CHOSEN_BY = "validation/accuracy"


def beyond(context: Context) -> Study:
    """Run the study."""
    grid = candidates(context)
    tried = [setting for settings in grid.values() for setting in settings]
    found = dict(zip((s.key for s in tried), seeds.run_all(tried, context.parts), strict=True))
    final = {method: _final(best(settings, found), context) for method, settings in grid.items()}
    measured = seeds.run_all(list(final.values()), context.parts, context.watch)
    tables = dict(zip(final, measured, strict=True))
    return Study(
        name="table3-beyond",
        title=get("table3-beyond").title,
        rows=[row for m, table in tables.items() for row in table3.rows_of(final[m], table)],
        notes=[*_notes(final), table3.speed(tables)],
        tables={"runs": table3.joined(tables), "tuning": tuning(tried, found)},
    )


@cache
def stated() -> dict[str, Any]:
    """What is tried: ``table3_beyond.toml``."""
    text = files("trimol.paper").joinpath("table3_beyond.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def candidates(context: Context) -> dict[str, list[Setting]]:
    """What is tried for each method, to be looked at on validation images."""
    table, tried = paper.paper()["table3"], stated()
    lrs = tried["lr"][::3] if context.quick else tried["lr"]
    return {
        method: [
            Setting(
                task=table3.TASK,
                method=method,
                lr=lr,
                hyperparameters=own,
                steps=(20 if context.quick else table["steps"],),
                seeds=tuple(range(1 if context.quick else tried["seeds"])),
                batch_size=table["batch_size"],
                on="validation",
            )
            for own in options
            for lr in lrs
        ]
        for method, options in tried["methods"].items()
    }


def best(settings: Sequence[Setting], found: Mapping[str, polars.DataFrame]) -> Setting:
    """The setting with the highest mean validation accuracy.

    Args:
        settings: The candidates of one method.
        found: What became of them, by their key.
    """
    return max(settings, key=lambda setting: _score(found[setting.key]))


def tuning(settings: Sequence[Setting], found: Mapping[str, polars.DataFrame]) -> polars.DataFrame:
    """Every candidate with its validation accuracy."""
    return polars.DataFrame(
        [
            {
                "method": setting.method,
                "lr": setting.lr,
                "hyperparameters": json.dumps(dict(setting.hyperparameters)),
                "validation_accuracy": _score(found[setting.key]),
            }
            for setting in settings
        ]
    )


def _score(table: polars.DataFrame) -> float:
    return float(table[CHOSEN_BY].to_numpy().mean())


def _final(setting: Setting, context: Context) -> Setting:
    """The chosen setting, to be measured in full with all seeds."""
    runs = context.pick(paper.paper()["table3"]["runs"], 2)
    return replace(setting, seeds=tuple(range(runs)), on="all")


def _notes(final: Mapping[str, Setting]) -> list[str]:
    tried = stated()
    edge = [m for m, setting in final.items() if setting.lr in (tried["lr"][0], tried["lr"][-1])]
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
