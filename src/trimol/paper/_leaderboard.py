"""The leaderboard: every method on every small task, each tuned with as many trials.

A task's part is a trial as `trimol diagnose` has it (:mod:`trimol.runs.trial`): static weighting
over its weights, every method over its own hyper-parameters, all over step sizes and schedules. All
begin with step sizes over more than five decades, with several settings of what they have of their
own, and go on around the best, with at most `Scale.most` settings each. What is best on validation
data is run with fresh seeds and judged on test data by what it was chosen by: the mean of the
task's metrics (its losses where it has no goals), each in the scale that settings were chosen by
(``scales`` of `trimol.runs.trial.Trial`). A score is that mean in per cent, minus static
weighting's, so that above 0 is better. Holm's correction is for all differences of the board
together.
"""

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import polars

from trimol import methods
from trimol._failures import UserError
from trimol.methods._registry import BASELINE
from trimol.paper import _standings as standings
from trimol.paper._standings import Tables
from trimol.paper._studies import Context, get
from trimol.runs import store
from trimol.runs.comparison import numbers
from trimol.runs.config import task_of
from trimol.runs.study import Study, part
from trimol.runs.trial import Trial, TrialPlan, held_out, trial


@dataclass(frozen=True)
class Place:
    """A task of the board, the middle of the step sizes to begin with, and how long a run is."""

    task: str
    lr: float
    steps: int
    batch_size: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """How thorough the board is: the same for every method on every task."""

    rates: int
    most: int
    tuning_seeds: int
    seeds: int


PLACES = (
    Place("digits", 1.0, 100, 32, {"hidden": 16}),
    Place("quadratic", 0.1, 30, 16, {"samples": 100, "dimension": 10}),
    Place("compas", 0.01, 100, 128, {"hidden": 16}),
    Place("german", 0.01, 100, 128, {"hidden": 16}),
    Place("toy", 0.1, 300, 16),
    Place("poisson", 0.01, 100, 100, {"width": 20, "depth": 3, "points": 100, "conditions": 25}),
    Place("funnel", 0.01, 100, 256, {"rows": 20_000, "sparse": False}),
)
FACTOR = 10 ** (2 / 3)  # between the step sizes to begin with
USUAL, FULL, QUICK = Scale(9, 40, 2, 10), Scale(9, 80, 3, 10), Scale(2, 2, 1, 2)
QUICK_PLACES, QUICK_STEPS = 2, 5


def leaderboard(context: Context) -> Study:
    """Run the study."""
    places, scale = _asked(context)
    board: dict[str, Tables] = {}
    notes = [_how(scale), *_growing()]
    for at, place in enumerate(places):
        missing = _missing(place)
        if missing:
            notes.append(f"{place.task} was not played: {missing}")
        else:
            board[place.task] = _played(place, scale, context, (at, len(places)))
    found = standings.judged(board)
    return Study(
        name="leaderboard",
        title=get("leaderboard").title,
        rows=[*standings.ranking(board), *standings.rows(board, found)],
        notes=[*standings.summary(board, found), *notes, *_left_out(board)],
        tables={name: _joined(board, name) for name in ("runs", "tuning")} if board else {},
    )


def _asked(context: Context) -> tuple[list[Place], Scale]:
    """What is played, and how thoroughly."""
    scale = QUICK if context.quick else FULL if context.full else USUAL
    places = list(PLACES)
    if context.quick:
        places = [replace(place, steps=QUICK_STEPS) for place in places[:QUICK_PLACES]]
    return places, replace(scale, seeds=context.seeds or scale.seeds)


# --- one task -----------------------------------------------------------------------------------


def _missing(place: Place) -> str:
    """Why a task cannot be played here; empty if it can."""
    try:
        held_out(task_of(place.task, place.options))
    except UserError as error:  # its data are not here
        return str(error)
    return ""


def _played(place: Place, scale: Scale, context: Context, at: tuple[int, int]) -> Tables:
    """A task's final runs and trials, as tables; what is finished is read."""
    plan = TrialPlan(
        place.task,
        [name for name in methods.names() if name != BASELINE and not methods.growth(name)],
        place.options,
        steps=place.steps,
        batch_size=place.batch_size,
        seeds=scale.seeds,
        tuning_seeds=scale.tuning_seeds,
        most=scale.most,
        timed=False,
        rates=rates(place.lr, scale.rates),
    )
    folder = context.parts / store.OF_STUDIES / f"leaderboard-{place.task}"

    def watch(steps: int, total: int) -> None:
        if context.watch is not None and total:
            context.watch(round(1000 * (at[0] + steps / total)), 1000 * at[1])

    def compute() -> Tables:
        return tables_of(trial(plan, folder, on=context.on, watch=watch))

    facts = asdict(plan) | {"methods": list(plan.methods)}
    tables = part(context.parts, f"leaderboard-{place.task}", facts, compute)
    shutil.rmtree(folder, ignore_errors=True)  # thousands of runs, whose numbers are kept now
    return tables


def rates(middle: float, count: int) -> list[float]:
    """Step sizes around the middle one.

    >>> rates(1.0, 3)
    [0.215, 1.0, 4.64]
    """
    return [float(f"{middle * FACTOR ** (at - count // 2):.3g}") for at in range(count)]


def tables_of(done: Trial) -> Tables:
    """What the board keeps of a trial: final runs, trials, and who was left out."""
    runs = [
        {"method": method, "seed": run.config.seed, "metric": metric, "way": way}
        | {"scale": done.scales[metric]}
        | {"value": numbers(run.record).get(metric, math.nan)}
        for method, own in done.runs.items()
        for run in own
        for metric, way in done.ways.items()
    ]
    tried = done.tuning.select("method", "lr", "schedule", "hyperparameters", "score", "chosen")
    said = [*done.notes, *done.failed]
    return {
        "runs": polars.DataFrame(runs, infer_schema_length=None),
        "tuning": tried,
        "notes": polars.DataFrame({"note": said}, schema={"note": polars.String}),
    }


# --- in words -----------------------------------------------------------------------------------


def _how(scale: Scale) -> str:
    return (
        f"Every contender, static weighting too: {scale.rates} step sizes by factors of "
        f"{FACTOR:.1f} (every second of them with each of several settings of what is its own: for "
        f"static weighting, weights), then settings around the best, {scale.most} at most, with "
        f"{scale.tuning_seeds} seeds each on validation data; the best of them with {scale.seeds} "
        "fresh seeds on test data. As many samples and steps for all, whatever a step costs."
    )


def _growing() -> list[str]:
    grow = [name for name in methods.names() if methods.growth(name)]
    return [f"{name} is not considered: its batches grow." for name in grow]


def _left_out(board: Mapping[str, Tables]) -> list[str]:
    """Who is missing on which task, and why."""
    return [f"{task}: {note}" for task, own in board.items() for note in own["notes"]["note"]]


def _joined(board: Mapping[str, Tables], name: str) -> polars.DataFrame:
    each = [own[name].with_columns(task=polars.lit(task)) for task, own in board.items()]
    return polars.concat(each, how="diagonal")
