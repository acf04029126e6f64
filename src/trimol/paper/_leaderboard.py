"""The leaderboard: every method on every small task, each tuned with as many trials.

A task's part is a study (:mod:`trimol.search`): `Scale.most` settings of static weights and of
every method, over learning rates, weights and hyper-parameters. All begin with learning rates over
more than five decades, falling to 0, and go on around the best. What is best on validation data is
trained with fresh seeds and judged on test data by what it was chosen by: the mean of the task's
metrics (its losses where it has no goals), each in the scale that settings were chosen by. A score
is that mean in per cent, minus static weights', so that above 0 is better. Holm's correction is for
all differences of the board together.
"""

import shutil
from collections.abc import Mapping, Sequence
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
from trimol.runs._hold_out import count_held_out
from trimol.runs._journal import StepCount
from trimol.runs.config import task_of
from trimol.runs.study import Study, part
from trimol.search._problem import TaskProblem
from trimol.search._sampler import OptunaSampler
from trimol.search._space import space_of
from trimol.search._study import BudgetStudy
from trimol.search._trial import Point


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
FACTOR = 10 ** (2 / 3)  # between the learning rates to begin with
WIDE = 3.0  # powers of ten around the middle one that may be tried
AT_ONCE = 8  # settings of each method between two looks at what was found
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
        count_held_out(task_of(place.task, place.options))
    except UserError as error:  # its data are not here
        return str(error)
    return ""


def _played(place: Place, scale: Scale, context: Context, at: tuple[int, int]) -> Tables:
    """A task's final runs and trials, as tables; what is finished is read."""
    names = [name for name in methods.names() if name == BASELINE or not methods.growth(name)]
    each = scale.most * scale.tuning_seeds + scale.seeds
    folder = context.parts / store.OF_STUDIES / f"leaderboard-{place.task}"

    def watch(steps: int, total: int) -> None:
        if context.watch is not None and total:
            context.watch(round(1000 * (at[0] + steps / total)), 1000 * at[1])

    def compute() -> Tables:
        problem = TaskProblem(
            place.task,
            folder,
            steps=place.steps,
            batch_size=place.batch_size,
            options=place.options,
            lr=place.lr,
            on=context.on,
            watch=StepCount(each * len(names) * place.steps, watch),
        )
        return tables_of(contest(problem, names, scale))

    facts = {**asdict(place), **asdict(scale), "methods": names}
    tables = part(context.parts, f"leaderboard-{place.task}", facts, compute)
    shutil.rmtree(folder, ignore_errors=True)  # thousands of runs, whose numbers are kept now
    return tables


@dataclass(frozen=True)
class Contest:
    """A task's trials, and the final runs of each method's best setting, by seed."""

    study: BudgetStudy
    finals: Mapping[str, Mapping[int, Point]]


def contest(problem: TaskProblem, names: Sequence[str], scale: Scale) -> Contest:
    """Try as many settings of every method, and train the best of each on fresh seeds."""
    size, lr = len(problem.objectives), problem.rate(BASELINE)
    samplers = {}
    for name in names:
        space = space_of(name, size, lr, length="own", schedule="linear")
        wide = replace(space, reach=WIDE)
        first = [wide.start(rate) for rate in rates(lr, scale.rates)]
        samplers[name] = OptunaSampler(wide, first)
    seeds = range(scale.tuning_seeds)
    budget = len(names) * (scale.most * scale.tuning_seeds + scale.seeds)
    study = BudgetStudy(problem, samplers, budget, seeds=seeds)
    for done in range(0, scale.most, AT_ONCE):
        study.round(dict.fromkeys(names, min(AT_ONCE, scale.most - done)))
    ended = [n for n in names if any(trial.is_complete for trial in study.trials[n])]
    chosen = {name: study.best(name).setting for name in ended}
    return Contest(study, study.confirm(chosen, range(seeds.stop, seeds.stop + scale.seeds)))


def rates(middle: float, count: int) -> list[float]:
    """Step sizes around the middle one.

    >>> rates(1.0, 3)
    [0.215, 1.0, 4.64]
    """
    return [float(f"{middle * FACTOR ** (at - count // 2):.3g}") for at in range(count)]


def tables_of(done: Contest) -> Tables:
    """What the board keeps of a task: final runs, trials, and who was left out."""
    study, scorer = done.study, done.study.scorer
    runs = [
        {"method": method, "seed": seed, "metric": metric, "way": way}
        | {"scale": scorer.scales[metric], "value": point[metric]}
        for method, own in done.finals.items()
        for seed, point in own.items()
        for metric, way in scorer.ways.items()
    ]
    tried = [
        {"method": method, "lr": trial.setting.lr, "schedule": trial.setting.schedule}
        | {"hyperparameters": str(dict(trial.setting.hyperparameters)), "score": trial.score}
        | {"chosen": method in done.finals and trial is study.best(method)}
        for method, trials in study.trials.items()
        for trial in trials
    ]
    said = [
        f"{method} is not considered: no setting of it came to an end: {trials[0].note}"
        for method, trials in study.trials.items()
        if method not in done.finals
    ]
    return {
        "runs": polars.DataFrame(runs, infer_schema_length=None),
        "tuning": polars.DataFrame(tried, infer_schema_length=None),
        "notes": polars.DataFrame({"note": said}, schema={"note": polars.String}),
    }


# --- in words -----------------------------------------------------------------------------------


def _how(scale: Scale) -> str:
    return (
        f"Every method, static weights too: {scale.rates} learning rates by factors of "
        f"{FACTOR:.1f}, falling to 0, then settings around the best, {scale.most} in all, with "
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
