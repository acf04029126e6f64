"""A front, not a point: a task trained for many preferences, and refined where that is thin."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from trimol import methods
from trimol._checks import number_of_runs, simplex, whole_number
from trimol._failures import BadValue
from trimol.methods._registry import BASELINE, SPREADING, spreading
from trimol.runs import store
from trimol.runs._front_members import measured
from trimol.runs._front_points import (
    GOALS,
    TRAIN,
    Array,
    Front,
    FrontPoint,
    Space,
    derived,
    judged,
    lowered,
    point,
    recorded,
    spaces,
)
from trimol.runs._front_tables import save_front
from trimol.runs._journal import Watch
from trimol.runs._pool import execute_all
from trimol.runs._preferences import Weights, even, thin
from trimol.runs._variants import Variant, variants
from trimol.runs.comparing import first_given
from trimol.runs.comparison import folder_name
from trimol.runs.config import (
    RunConfig,
    configure,
    equal_steps,
    hyperparameters_of,
    steps_per_epoch,
    task_of,
    usual_batch_size,
)
from trimol.runs.store import StoredRun
from trimol.tasks import Settings, Task
from trimol.tasks import _answers as answers
from trimol.tasks._catalogue import CONDITIONED, POPULATION
from trimol.tasks.loading import blaming, find
from trimol.training import Diverged

CHECKPOINTS = 5  # of a run, if nothing interrupts it
# Preferences that are added at once, so that several run at a time. Not by how many do: what is
# run must not depend on the machine.
AT_ONCE = 4
KNOWN = 500  # points of a known front


def front(
    task: str,
    by: Sequence[str | Variant] = SPREADING,
    *,
    folder: Path | str,
    steps: int,
    points: int | Sequence[Sequence[float]] = 10,
    refine: int = 0,
    seeds: int = 1,
    batch_size: int | None = None,
    task_options: Mapping[str, Any] | None = None,
    hyperparameters: Mapping[str, Mapping[str, Any]] | None = None,
    lr: float | Mapping[str, float] | None = None,
    schedule: str | Mapping[str, str] | None = None,
    optimizer: str | None = None,
    precision: str = "no",
    reference: Sequence[float] | None = None,
    jobs: int | None = None,
    on: str | None = None,
    watch: Watch | None = None,
    together: bool = False,
    retry: bool = False,
    say: Callable[[str], None] | None = None,
    command: str = "",
) -> Front:
    """Train a task for many preferences, by each of some methods: the points of a front.

    Every point is an ordinary run in a folder of its own below ``folder``: finished ones are not
    run again, killed ones go on, and what is refined follows from what the first points reached.
    Run i of every preference and method starts from the same parameters and sees the same samples.
    The result is saved as ``study.json`` there, for `trimol.report.write`.

    Args:
        task: A task's name, or ``path/to/file.py:Class``.
        by: Methods that say which hyper-parameter takes a preference (``prefers`` of
            `trimol.methods.Method`), or how many models they train at once (``spreads``), by name,
            or `Variant` for settings of one; or ``"conditioned"``: one model that is told the
            preference (:mod:`trimol.tasks.conditioned`).
        folder: Where the runs are stored.
        steps: Steps of each run.
        points: How many preferences, spread evenly on the simplex; or the preferences.
        refine: How many more, each in the middle of two neighbours whose training losses (means
            over the seeds, in units of their ranges) are farthest apart.
        seeds: How often each front is made.
        batch_size: Samples per step; None: the task's own.
        task_options: Keyword arguments of the task's constructor.
        hyperparameters: Of some methods, by name; they go before the task's settings. Those of
            ``"conditioned"`` are that task's options, such as ``{"penalty": 1.0}``.
        lr: α of all methods, or of some, by name.
        schedule: How α falls to 0 over the steps (``"constant"``, ``"linear"``, ``"cosine"``), for
            all methods, or for some, by name.
        optimizer: The same for all, by its name (`RunConfig`); None: the task's own.
        precision: ``"no"``, ``"bf16"`` or ``"fp16"``.
        reference: The losses up to which the hypervolume is taken. By default the worst of all
            nondominated points, and a tenth of their range more.
        jobs: How many runs at a time; by default one, and on a cluster as many as it has CPUs.
        on: A Ray cluster, as for `compare`.
        watch: As for `compare`; runs that are there already are told of, too.
        together: As for `compare`.
        retry: Whether runs that diverged before are trained again.
        say: Told, in a line each, of runs that failed before for another reason.
        command: What to type to get it again, for the report.

    Raises:
        Diverged: Every run diverged. Where some did, the others go on: see `Front.failed`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = front("concave", ["stch"], folder=folder, points=3, steps=100)
        >>> [[round(loss, 1) for loss in point.values["test"]] for point in found.points]
        [[0.0, 1.0], [0.6, 0.6], [1.0, 0.0]]
    """
    made = task_of(task, task_options)
    ways = _ways(by, hyperparameters or {})
    _check_called(ways, hyperparameters=hyperparameters, lr=lr, schedule=schedule)
    _check_options(ways, task_options or {})
    asked = _preferences(points, made)
    given_reference = _reference(reference, made)
    refine = whole_number("refine", refine, least=0)
    each = len(ways) * whole_number("seeds", seeds, least=1)
    number_of_runs("(points + refine) × by × seeds", (len(asked) + refine) * each)
    size = usual_batch_size(task, task_options) if batch_size is None else batch_size
    steps_per_epoch(task, size, task_options)  # says if there are too few samples
    with blaming(task):
        validated = answers.data(made).validation is not None
    runner = _Runner(
        folder=Path(folder),
        seeds=seeds,
        steps=steps,
        scored=validated,
        settings={
            "task": task,
            "task_options": dict(task_options or {}),
            "batch_size": size,
            "optimizer": optimizer,
            "precision": precision,
            "checkpoint_every": max(1, steps // CHECKPOINTS),
        },
        points=len(asked),
        own={"hyperparameters": hyperparameters, "lr": lr, "schedule": schedule},
        execution={"jobs": jobs, "on": on, "together": together, "retry": retry, "say": say},
        watch=watch,
        ideal=_ideal(made, task),
    )
    among = spaces(made, validation=validated)
    trials = runner.run([(way, aim) for way in ways for aim in way.aims(asked)])
    while refine:
        more = _thin(trials, ways, among, min(AT_ONCE, refine))
        trials += runner.run(more, refined=True)
        refine = refine - AT_ONCE if more and refine > AT_ONCE else 0
    found = _front(made.name, ways, runner.seeds, trials, among, given_reference, made)
    save_front(found, runner.folder, command)
    return found


@dataclass(frozen=True)
class _Aim:
    """Which point of a front is meant: by a preference, or by its number among several models."""

    preference: Weights
    member: int | None = None


@dataclass(frozen=True)
class _Way:
    """A method that makes a front, and the task around the given one that it is trained on."""

    variant: Variant
    around: str | None = None

    @property
    def label(self) -> str:
        return self.variant.label

    @property
    def called(self) -> str:
        """By which name it is given hyper-parameters, a step size and a schedule."""
        return CONDITIONED if self.around == CONDITIONED else self.variant.method

    def aims(self, preferences: Sequence[Weights]) -> list[_Aim]:
        """The points for some preferences; several models at once find their own places."""
        if self.around == POPULATION:
            return [_Aim((), member) for member in range(len(preferences))]
        return [_Aim(preference) for preference in preferences]


@dataclass(frozen=True)
class _Trial:
    """A point of a method, with one seed, and what came of its run."""

    way: _Way
    aim: _Aim
    refined: bool
    config: RunConfig
    result: StoredRun | Diverged


@dataclass(frozen=True)
class _Runner:
    """Makes and executes the runs of points."""

    folder: Path
    seeds: int
    steps: int
    points: int
    scored: bool  # whether there are validation data to look at in the end
    settings: Mapping[str, Any]  # of all runs
    own: Mapping[str, Any]  # what a method may have of its own
    execution: Mapping[str, Any]
    watch: Watch | None
    ideal: list[float] | None  # what losses are at least, for methods that ask

    def run(self, wanted: Sequence[tuple[_Way, _Aim]], *, refined: bool = False) -> list[_Trial]:
        """Execute the runs of some points, for every seed."""
        asked = [
            (way, aim, self._config(way, aim, seed))
            for seed in range(self.seeds)
            for way, aim in wanted
        ]
        jobs = [(config, self.folder / folder_name(config)) for _, _, config in asked]
        self._tell(jobs)
        executed = execute_all(jobs, watch=self.watch, **self.execution)
        return [
            _Trial(way, aim, refined, config, result)
            for (way, aim, config), result in zip(asked, executed, strict=True)
        ]

    def _config(self, way: _Way, aim: _Aim, seed: int) -> RunConfig:
        variant, own = way.variant, self.own
        name, common = variant.method, (own["hyperparameters"] or {}).get(way.called, {})
        settings = self._placed(way.around, common)
        steer = methods.get(name).prefers
        alone = way.around is None and steer is not None
        told = {steer: list(aim.preference)} if alone and steer else {}
        usual = task_of(settings["task"], settings["task_options"]).settings.get(name, Settings())
        if alone and self.ideal and "ideal" in {*hyperparameters_of(name)} - {*usual.method}:
            told["ideal"] = self.ideal
        size, options = settings["batch_size"], settings["task_options"]
        steps = equal_steps(settings["task"], name, self.steps, size, options)
        return configure(
            method=name,
            hyperparameters={
                **told,
                **(common if way.called == name else {}),
                **variant.hyperparameters,
            },
            lr=first_given(variant.lr, own["lr"], way.called),
            schedule=first_given(variant.schedule, own["schedule"], way.called),
            steps=steps,
            seed=seed,
            score_every=steps if self.scored and alone else 0,
            **settings,
        )

    def _placed(self, around: str | None, common: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of all runs, on a task around the given one if need be."""
        if around is None:
            return dict(self.settings)
        task, options = self.settings["task"], self.settings["task_options"]
        several = {"points": self.points} if around == POPULATION else dict(common)
        return {
            **self.settings,
            "task": around,
            "task_options": {"of": task, **several, **options},
        }

    def _tell(self, jobs: Sequence[tuple[RunConfig, Path]]) -> None:
        """Of the runs that are there already."""
        for config, folder in jobs:
            if self.watch is not None and (folder / store.SUMMARY).exists():
                self.watch(config, config.steps, None)


def _thin(
    trials: Sequence[_Trial], ways: Sequence[_Way], among: Sequence[Space], count: int
) -> list[tuple[_Way, _Aim]]:
    """Where the fronts of methods are thin, by the means over seeds of the training losses."""
    (train,) = (space for space in among if space.name == TRAIN)
    found = []
    for way in ways:
        reached: dict[Weights, list[FrontPoint]] = {}
        for p in _points([t for t in trials if t.way == way], among):
            if p.preference and all(map(math.isfinite, p.values[TRAIN])):
                reached.setdefault(p.preference, []).append(p)
        means = [lowered(own, train).mean(0) for own in reached.values()]
        if len(means) > 1:
            found += [(way, _Aim(new)) for new in thin([*reached], np.array(means), count)]
    return found


def _points(trials: Sequence[_Trial], among: Sequence[Space]) -> list[FrontPoint]:
    return [
        point(
            trial.result,
            among,
            _record(trial.result, trial),
            method=trial.way.label,
            preference=trial.aim.preference,
            member=trial.aim.member,
            refined=trial.refined,
        )
        for trial in trials
        if isinstance(trial.result, StoredRun)
    ]


def _record(run: StoredRun, trial: _Trial) -> dict[str, Any]:
    if trial.way.around is None:
        return recorded(run)
    return measured(run, trial.aim.preference, trial.aim.member)


def _front(
    task: str,
    ways: Sequence[_Way],
    seeds: int,
    trials: Sequence[_Trial],
    among: Sequence[Space],
    reference: tuple[float, ...] | None,
    made: Task,
) -> Front:
    failed = [(t.config, str(t.result)) for t in trials if isinstance(t.result, Diverged)]
    if len(failed) == len(trials):
        raise Diverged(f"every run diverged; {failed[0][0].method}: {failed[0][1]}")
    among = [space for space in among if space.name != GOALS or _measured(trials, space)]
    points = judged(_points(trials, among), among)
    references = {
        space.name: derived(points, space)
        if reference is None or space.name == GOALS
        else reference
        for space in among
    }
    return Front(
        task=task,
        methods=tuple(way.label for way in ways),
        seeds=seeds,
        spaces=tuple(among),
        points=points,
        references=references,
        given=reference is not None,
        known=_known(made, task, among),
        failed=failed,
    )


def _measured(trials: Sequence[_Trial], space: Space) -> bool:
    """Whether some run has all of a space's numbers."""
    return any(all(map(math.isfinite, p.values[space.name])) for p in _points(trials, [space]))


def _ideal(made: Task, task: str) -> list[float] | None:
    """What each loss is at least, where the task knows its front and losses go below 0 on it.

    Preferences are counted from there. Batches reach a little lower than all data do.
    """
    with blaming(task):
        found = answers.true_front(made, answers.data(made).train, KNOWN)
    if found is None or (found >= 0).all():
        return None
    least, most = found.amin(0), found.amax(0)
    ideal: list[float] = (least - (most - least) - least.abs()).tolist()
    return ideal


def _known(made: Task, task: str, among: Sequence[Space]) -> dict[str, Array]:
    """The true front on each kind of data, where the task knows it."""
    with blaming(task):
        data = answers.data(made)
        samples = {s.name: getattr(data, s.name) for s in among if s.name != GOALS}
        found = {name: answers.true_front(made, batch, KNOWN) for name, batch in samples.items()}
    return {name: at.double().cpu().numpy() for name, at in found.items() if at is not None}


def _ways(by: Sequence[str | Variant], common: Mapping[str, Mapping[str, Any]]) -> list[_Way]:
    """How fronts are made; no method may be given what says which point is meant."""
    made = variants(Variant(BASELINE, name) if name == CONDITIONED else name for name in by)
    return [_Way(v, CONDITIONED) if v.label == CONDITIONED else _way(v, common) for v in made]


def _check_called(ways: Sequence[_Way], **given: Any) -> None:
    """What is given by name must be for one of these."""
    called = dict.fromkeys(way.called for way in ways)
    for name, values in given.items():
        other = [key for key in values if key not in called] if isinstance(values, Mapping) else []
        if other:
            raise BadValue(f"{name} must be of {', '.join(called)}, found {other[0]!r}")


def _check_options(ways: Sequence[_Way], given: Mapping[str, Any]) -> None:
    """An option of the task must not mean another thing to the task around it."""
    for around in {way.around for way in ways if way.around is not None}:
        if both := given.keys() & signature(find(around)).parameters.keys():
            raise BadValue(f"task_options: {min(both)} is an option of {around}, too")


def _way(variant: Variant, common: Mapping[str, Mapping[str, Any]]) -> _Way:
    name = variant.method
    method = methods.get(name)
    steer = method.prefers or method.spreads
    if steer is None:
        raise BadValue(
            f"by must be of {', '.join([*spreading(), CONDITIONED])}, which make a front, found "
            f"{name!r}"
        )
    if steer in {**common.get(name, {}), **variant.hyperparameters}:
        raise BadValue(f"{name}: {steer} says which points of the front are meant: do not set it")
    return _Way(variant, POPULATION if method.prefers is None else None)


def _preferences(points: int | Sequence[Sequence[float]], made: Task) -> list[Weights]:
    objectives = len(made.objectives)
    if objectives < 2:
        raise BadValue(f"a front needs at least two objectives, found one, {made.objectives[0]}")
    if isinstance(points, Sequence):
        asked = [tuple(simplex(p, objectives, "points").tolist()) for p in points]
        if not asked or len(set(asked)) < len(asked):
            raise BadValue(f"points must be one or more different preferences, found {points!r}")
        return asked
    return even(whole_number("points", points, least=1), objectives)


def _reference(given: Sequence[float] | None, made: Task) -> tuple[float, ...] | None:
    if given is None:
        return None
    reference = tuple(float(value) for value in given)
    if len(reference) != len(made.objectives) or not all(map(math.isfinite, reference)):
        raise BadValue(
            f"reference must be {len(made.objectives)} finite numbers, one for each of "
            f"{', '.join(made.objectives)}, found {list(given)}"
        )
    return reference
