"""Tuned static weighting against tuned methods, at equal samples and at equal time.

Every contender has as many trials: its own hyper-parameters (for static weighting, the weights) ×
step sizes × schedules. Then what lies around the best on validation data is tried, and around what
is better, until nothing near is. What is chosen is run again with seeds that the choice has not
seen, and judged on test data (:mod:`trimol.runs.verdict`): once with as many steps as the baseline
has, once with as many as take the baseline's time.

In the folder, ``tuning-only/`` has the trials, ``runs/`` the final runs, ``costs-….json`` the
measured cost of a step, so that a study that is resumed has the same steps, and ``stopped-….json``,
where time is limited, how many rounds of trials there were, and how many around the best.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import polars

from trimol import methods
from trimol._checks import whole_number
from trimol._failures import BadValue
from trimol.maths.fronts import hypervolume
from trimol.methods._registry import BASELINE
from trimol.runs import _storage as files
from trimol.runs._candidates import Candidate, Series
from trimol.runs._costs import step_costs
from trimol.runs._grids import around, grid, usual_trials
from trimol.runs._journal import Progress
from trimol.runs._judging import standing
from trimol.runs._lock import locked
from trimol.runs._run_folders import RunFolders, Wanted
from trimol.runs._tuning_tables import of_candidates
from trimol.runs.comparison import numbers, paired
from trimol.runs.config import task_of
from trimol.runs.statistics import Interval, Paired, bootstrap
from trimol.runs.store import StoredRun
from trimol.runs.study import part_name
from trimol.runs.verdict import HYPERVOLUME, Pair, Verdict, Ways, judge
from trimol.tasks import _answers as answers
from trimol.tasks.task import Settings, Task
from trimol.training import Diverged

REACHES = (10**0.5, 10**0.25)  # by how much a setting's neighbours differ: far ones first
ROUNDS = 12  # how often neighbours are tried
HELD_OUT = 5  # one sample in so many, where a task has no validation data
PLATEAU = 1e-3  # of the size of the metrics: neighbours that gain less are no better
FEWEST = 10  # samples of train, or none is held out
ROUND = 9  # trials of each contender between looks at the clock, where time is limited
MOST_METRICS = 6  # exact hypervolumes of more take too long
ALIKE = 1.05  # a step that costs no more than this many of the baseline's costs the same
Tried = dict[str, list[StoredRun | Diverged]]  # a contender's runs by candidate's key, by seed


@dataclass(frozen=True)
class TrialPlan:
    """What is tried.

    Attributes:
        task: A task's name, or ``path/to/file.py:Class``.
        methods: The methods that are to beat static weighting.
        options: The task's options.
        trials: Settings tried of each contender, before those around the best; None: 9 for each
            objective and 9 more.
        steps: Steps of every run.
        batch_size: Samples a step.
        seeds: Final runs of each contender.
        tuning_seeds: Runs of every setting that is tried.
        first_seed: Tuning takes the seeds from here on, the final runs those after.
        minutes: No more trials are begun after so long; None: all.
    """

    task: str
    methods: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int | None = None
    steps: int = 500
    batch_size: int = 64
    seeds: int = 10
    tuning_seeds: int = 3
    first_seed: int = 0
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "seeds", "tuning_seeds"):
            whole_number(name, getattr(self, name), least=1)
        whole_number("first_seed", self.first_seed, least=0)
        if self.trials is not None:
            whole_number("trials", self.trials, least=1)
        if self.minutes is not None and not self.minutes > 0:
            raise BadValue(f"minutes must be above 0, found {self.minutes}")
        if not self.methods or len({*self.methods, BASELINE}) <= len(self.methods):
            raise BadValue(
                f"methods must be one or more different names other than {BASELINE}, found "
                f"{', '.join(self.methods) or 'none'}"
            )
        for name in self.methods:
            if methods.growth(name):
                raise BadValue(
                    f"methods must take the same samples at every step, found {name!r}, whose "
                    "batches grow"
                )

    @property
    def contenders(self) -> tuple[str, ...]:
        """Static weighting first, then the methods."""
        return BASELINE, *self.methods


@dataclass(frozen=True)
class Trial:
    """What a trial found.

    Attributes:
        verdict: What the rule says.
        ways: The metrics that were judged by, and which way is better.
        settings: What was chosen, by contender.
        tuning: One row per setting that was tried, as in the ``tuning`` of `trimol.runs.Outcome`.
        costs: How long a step of each contender takes, in steps of the baseline.
        steps: The steps of each contender at equal time.
        runs: The final runs at equal samples, by contender.
        timed: Those at equal time.
        failed: Final runs that diverged, in words.
        reached: The hypervolume of all that each contender's settings reach on validation data, the
            mean over tuning seeds with a bootstrap interval; empty where it was not computed.
        reference: The reference point of the hypervolume, by metric.
        points: The settings' metrics on validation data, means over seeds, by contender.
        notes: What a reader has to know about how the trial went.
        held_out: Samples of train that were its validation data; 0 where the task has its own.
    """

    verdict: Verdict
    ways: Ways
    settings: dict[str, Candidate]
    tuning: polars.DataFrame
    costs: dict[str, float]
    steps: dict[str, int]
    runs: dict[str, list[StoredRun]]
    timed: dict[str, list[StoredRun]]
    failed: list[str]
    reached: dict[str, Interval]
    reference: dict[str, float]
    points: dict[str, list[dict[str, float]]]
    notes: list[str]
    held_out: int


def trial(
    plan: TrialPlan,
    folder: Path | str,
    *,
    jobs: int | None = None,
    on: str | None = None,
    watch: Progress | None = None,
    stage: Callable[[str], None] | None = None,
) -> Trial:
    """Run a trial, or go on with it, or read what is finished.

    Args:
        plan: What is tried.
        folder: Where the runs are kept.
        jobs: How many runs at a time; as many as there are cores by default.
        on: A Ray cluster to run them on (`trimol.runs.execute_all`).
        watch: Called with (done, total), in steps of all runs that are known of.
        stage: Told in a few words what is being done.

    Raises:
        Diverged: Every setting of static weighting did, or every final run.
    """
    path = Path(folder)
    work = _Work(plan, path, watch, stage or (lambda _: None), jobs=jobs, on=on)
    files.make_folder(path)
    with locked(path):
        found = work.result()
        files.write_table(path / "tuning.parquet", found.tuning)
    return found


class _Work:
    """One trial at work."""

    def __init__(
        self,
        plan: TrialPlan,
        folder: Path,
        watch: Progress | None,
        stage: Callable[[str], None],
        *,
        jobs: int | None,
        on: str | None,
    ) -> None:
        self.plan, self.path, self.stage = plan, folder, stage
        task = task_of(plan.task, plan.options)
        self.ways = _ways_of_task(task)
        self.held_out = held_out(task)
        count = plan.trials or usual_trials(len(task.objectives))
        self.series = {name: self._series(name, task, count) for name in plan.contenders}
        self.seeds = range(plan.first_seed, plan.first_seed + plan.tuning_seeds)
        self.fresh = range(self.seeds.stop, self.seeds.stop + plan.seeds)
        total = plan.steps * len(self.series) * (count * plan.tuning_seeds + 2 * plan.seeds)
        self.folders = RunFolders(folder, total, watch, jobs=jobs, on=on, together=True)
        self.tried: dict[str, Tried] = {name: {} for name in self.series}
        self.scales: dict[str, float] = {}
        self.notes: list[str] = []
        self.began = time.monotonic()
        self.stops_file = folder / f"{part_name('stopped', _facts(plan))}.json"
        self.stops = files.read_json(self.stops_file) if self.stops_file.exists() else {}

    def result(self) -> Trial:
        """All of it."""
        self._try_all()
        self._search()
        rows = {name: self._rows(name) for name in self.series}
        settings = {name: self._chosen(name, own) for name, own in rows.items()}
        costs = self._costs(settings)
        steps = {
            name: self.plan.steps if cost <= ALIKE else max(1, int(self.plan.steps / cost))
            for name, cost in costs.items()
        }
        runs, timed, failed = self._final(settings, steps)
        points = {name: self._points(name) for name in self.series}
        reference, volumes = self._volumes(points)
        return Trial(
            verdict=self._judged(runs, timed, volumes),
            ways=self.ways,
            settings=settings,
            tuning=polars.DataFrame(
                [row for own in rows.values() for row in own], infer_schema_length=None
            ),
            costs=costs,
            steps=steps,
            runs=runs,
            timed=timed,
            failed=failed,
            reached={name: _mean_over_seeds(own) for name, own in volumes.items()},
            reference=reference,
            points={name: [_mean_point(each) for each in own] for name, own in points.items()},
            notes=self.notes,
            held_out=self.held_out,
        )

    def _series(self, method: str, task: Task, trials: int) -> Series:
        settings = task.settings.get(method, Settings())
        return Series(
            label=method,
            task=self.plan.task,
            method=method,
            goals=task.goals,
            candidates=tuple(grid(method, len(task.objectives), settings, trials)),
            batch_size=self.plan.batch_size,
            epoch=self.plan.steps,
            epochs=1,
            options=self.plan.options,
            validation_only=True,
            hold_out=self.held_out,
        )

    # --- trials ---------------------------------------------------------------------------------

    def _try_all(self) -> None:
        """Every contender's candidates, round by round, as long as there is time."""
        longest = max(len(series.candidates) for series in self.series.values())
        size = longest if self.plan.minutes is None else ROUND
        rounds = math.ceil(longest / size)
        allowed = self.stops.get("rounds", rounds)
        for number in range(allowed):
            self.stage(f"trials, round {number + 1} of {rounds}")
            part = slice(number * size, (number + 1) * size)
            self._execute({n: series.candidates[part] for n, series in self.series.items()})
            if self._late("rounds"):
                allowed = number + 1
                break
        self._stop("rounds", allowed)
        if allowed < rounds:
            self.notes.append(
                f"The time was up after {allowed * size} of {longest} trials of each contender."
            )
        self.series = {
            name: replace(series, candidates=series.candidates[: allowed * size])
            for name, series in self.series.items()
        }
        self._leave_out()
        self.scales = self._scales()

    def _leave_out(self) -> None:
        """A method of which no setting came to an end is out; without a baseline all is."""
        for name in self.plan.methods:
            notes = [_failure(runs, self.ways) for runs in self.tried[name].values()]
            if all(notes):
                del self.series[name]
                self.notes.append(
                    f"{name} is not considered: no setting of it came to an end: {notes[0]}"
                )

    def _late(self, what: str) -> bool:
        """Whether the time is up, unless it is known how many there are to be."""
        minutes = self.plan.minutes
        if minutes is None or what in self.stops:
            return False
        return time.monotonic() - self.began > 60 * minutes

    def _stop(self, what: str, count: int) -> None:
        """Note down how many there were: a study that is resumed has as many."""
        if self.plan.minutes is not None:
            self.stops[what] = count
            files.write_json(self.stops_file, self.stops)

    def _execute(self, candidates: Mapping[str, Sequence[Candidate]]) -> None:
        """Run candidates with every tuning seed."""
        wanted: list[Wanted] = [
            (self.series[name], candidate, seed)
            for name, own in candidates.items()
            for candidate in own
            for seed in self.seeds
        ]
        for (series, candidate, _), run in zip(wanted, self.folders.execute(wanted), strict=True):
            self.tried[series.label].setdefault(series.key(candidate), []).append(run)

    def _search(self) -> None:
        """Try what lies around the best, and around what is better, until nothing near is."""
        reach = dict.fromkeys(self.series, 0)
        allowed, done = self.stops.get("neighbours", ROUNDS), 0
        while more := self._neighbours(reach):
            if done == allowed or self._late("neighbours"):
                self._not_inside(more, done)
                break
            done += 1
            self.stage(f"around the best so far, {done}")
            count = sum(map(len, more.values()))
            self.folders.count.total += count * self.plan.steps * self.plan.tuning_seeds
            best = {name: self._best(name) for name in more}
            self._execute(more)
            for name, own in more.items():
                series = self.series[name]
                self.series[name] = replace(series, candidates=(*series.candidates, *own))
                reach[name] += self._best(name) - best[name] <= self._worth
        self._stop("neighbours", done)

    def _neighbours(self, reach: dict[str, int]) -> dict[str, list[Candidate]]:
        """What was not tried yet around each contender's best: near it once nothing far is left."""
        more = {}
        for name, series in self.series.items():
            best = self._chosen(name, self._rows(name))
            while reach[name] < len(REACHES):
                near = {series.key(c): c for c in around(best, REACHES[reach[name]])}
                new = [c for key, c in near.items() if key not in self.tried[name]]
                if new:
                    more[name] = new
                    break
                reach[name] += 1
        return more

    def _not_inside(self, names: Iterable[str], done: int) -> None:
        why = f"after {done} rounds" if done == ROUNDS else "as the time was up"
        self.notes += [
            f"{name}: {why}, what lies around the best setting was not tried in full."
            for name in names
        ]

    def _best(self, name: str) -> float:
        return max(float(row["score"]) for row in self._rows(name))

    @property
    def _worth(self) -> float:
        """What a score must gain for a neighbour to be better."""
        single = next(iter(self.scales.values())) if len(self.ways) == 1 else 1.0
        return PLATEAU * single

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """What became of every candidate: `of_candidates`."""
        series = self.series[name]
        each = [self.tried[name][series.key(candidate)] for candidate in series.candidates]
        notes = [_failure(runs, self.ways) for runs in each]
        if all(notes):
            raise Diverged(f"no setting of {name} came to an end: {notes[0]}")
        scores = [
            [-math.inf] * len(runs) if note else self._scores(runs)
            for runs, note in zip(each, notes, strict=True)
        ]
        return of_candidates(series, scores, notes)

    def _chosen(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Candidate:
        candidates = self.series[name].candidates
        return next(c for c, row in zip(candidates, rows, strict=True) if row["chosen"])

    def _scores(self, runs: Sequence[StoredRun | Diverged]) -> list[float]:
        """One number a seed, larger for the better: the mean of all metrics, each in its scale."""
        values = [_validated(run, self.ways) for run in runs if isinstance(run, StoredRun)]
        columns = {metric: [own[metric] for own in values] for metric in self.ways}
        return standing(columns, self.ways, self.scales)

    def _scales(self) -> dict[str, float]:
        """The sizes of the metrics: of the middle one of the baseline's first trials."""
        values = [
            _validated(run, self.ways)
            for runs in self.tried[BASELINE].values()
            if not _failure(runs, self.ways)
            for run in runs
            if isinstance(run, StoredRun)
        ]
        return {m: median(abs(own[m]) for own in values) or 1.0 for m in self.ways if values}

    # --- final runs -----------------------------------------------------------------------------

    def _costs(self, settings: Mapping[str, Candidate]) -> dict[str, float]:
        """The cost of a step beside the baseline's: measured once, then read."""
        configs = {n: self.series[n].config(c, self.fresh.start) for n, c in settings.items()}
        facts = {name: config.key for name, config in configs.items()}
        file = self.path / f"{part_name('costs', facts)}.json"
        if not file.exists():
            self.stage("the cost of a step")
            seconds = step_costs(configs)
            files.write_json(file, {"seconds": seconds, "runs": facts})
        seconds = files.read_json(file)["seconds"]
        return {name: seconds[name] / seconds[BASELINE] for name in settings}

    def _final(
        self, settings: Mapping[str, Candidate], steps: Mapping[str, int]
    ) -> tuple[dict[str, list[StoredRun]], dict[str, list[StoredRun]], list[str]]:
        """What was chosen with fresh seeds: at equal samples, at equal time, and what diverged."""
        self.stage("the chosen settings with fresh seeds")
        short = [count for count in steps.values() if count < self.plan.steps]
        left = self.plan.seeds * (self.plan.steps * len(steps) + sum(short))
        self.folders.count.total = self.folders.count.done + left
        even = {n: replace(series, validation_only=False) for n, series in self.series.items()}
        timed = {
            n: replace(series, label=f"{n} (equal time)", epoch=steps[n])
            for n, series in even.items()
            if steps[n] < self.plan.steps
        }
        self.folders.only([*even.values(), *timed.values()])
        for group in (even, timed):
            for name, series in group.items():
                self.folders.choose(series, settings[name])
        wanted = [
            (series, settings[name], seed)
            for group in (even, timed)
            for name, series in group.items()
            for seed in self.fresh
        ]
        runs: dict[str, list[StoredRun]] = {series.label: [] for series, _, _ in wanted}
        failed = []
        for (series, _, seed), run in zip(wanted, self.folders.execute(wanted), strict=True):
            if isinstance(run, Diverged):
                failed.append(f"{series.label}, seed {seed}: {run}")
            else:
                runs[series.label].append(run)
        return (
            {name: runs[series.label] for name, series in even.items()},
            {name: runs[series.label] for name, series in timed.items()},
            failed,
        )

    # --- verdict --------------------------------------------------------------------------------

    def _judged(
        self,
        runs: Mapping[str, Sequence[StoredRun]],
        timed: Mapping[str, Sequence[StoredRun]],
        volumes: Mapping[str, Sequence[float]],
    ) -> Verdict:
        base = runs[BASELINE]
        if not base:
            raise Diverged(f"every final run of {BASELINE} diverged: there is nothing to judge by")
        if len(base) < self.plan.seeds:
            self.notes.append(
                f"{BASELINE} diverged in {self.plan.seeds - len(base)} of {self.plan.seeds} final "
                "runs: it is judged by the others, which flatters it."
            )
        ways = self._known(base)
        methods = [name for name in self.series if name != BASELINE]
        sure = [name for name in methods if self._complete(name, runs, timed, ways)]
        self.notes += [
            f"{name} is not considered: it diverged in final runs, or lacks numbers of them."
            for name in methods
            if name not in sure
        ]
        pairs = [
            pair
            for name in sure
            for pair in (
                *_pairs(name, base, runs[name], ways),
                *_pairs(name, base, timed.get(name, ()), ways, timed=True),
            )
        ]
        reached = [
            Pair(name, HYPERVOLUME, Paired(volumes[BASELINE], volumes[name]))
            for name in sure
            if volumes
        ]
        return judge(pairs, ways, baseline=BASELINE, sizes=self.scales, reached=reached)

    def _known(self, base: Sequence[StoredRun]) -> Ways:
        """The metrics that are numbers in all final runs of the baseline."""
        known = {m: way for m, way in self.ways.items() if all(_has(run, m) for run in base)}
        self.notes += [
            f"{metric} is not judged by: on test data it is NaN or infinite with {BASELINE}."
            for metric in self.ways
            if metric not in known
        ]
        if not known:
            raise Diverged(f"no metric of {BASELINE} on test data is a number")
        return known

    def _complete(
        self,
        name: str,
        runs: Mapping[str, Sequence[StoredRun]],
        timed: Mapping[str, Sequence[StoredRun]],
        ways: Ways,
    ) -> bool:
        """Whether all final runs of a method came to an end, with numbers on test data."""
        groups = [runs[name], *([timed[name]] if name in timed else [])]
        return all(len(own) == self.plan.seeds for own in groups) and all(
            _has(run, metric) for own in groups for run in own for metric in ways
        )

    def _points(self, name: str) -> list[list[dict[str, float]]]:
        """Every setting's metrics on validation data, seed by seed; those that came to an end."""
        return [
            [_validated(run, self.ways) for run in runs if isinstance(run, StoredRun)]
            for runs in self.tried[name].values()
            if not _failure(runs, self.ways)
        ]

    def _volumes(
        self, points: Mapping[str, Sequence[Sequence[Mapping[str, float]]]]
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """The reference point, and the hypervolume of every contender, seed by seed.

        The reference is, on each metric, the median of all points of all contenders. The unit is
        the box from there to the best value of each metric.
        """
        each = [point for own in points.values() for seeds in own for point in seeds]
        reference = {m: median(point[m] for point in each) for m in self.ways}
        if not 2 <= len(self.ways) <= MOST_METRICS:
            return reference, {}
        signs = {m: 1 if way == "lower" else -1 for m, way in self.ways.items()}
        best = {m: signs[m] * min(signs[m] * point[m] for point in each) for m in self.ways}
        sizes = {m: abs(reference[m] - best[m]) or 1.0 for m in self.ways}

        def placed(point: Mapping[str, float]) -> list[float]:
            return [signs[m] * (point[m] - reference[m]) / sizes[m] for m in self.ways]

        corner = [0.0] * len(self.ways)
        return reference, {
            name: [
                hypervolume(np.array([placed(seeds[place]) for seeds in own]), corner)
                for place in range(len(self.seeds))
            ]
            for name, own in points.items()
        }


def _ways_of_task(task: Task) -> Ways:
    """What a task is judged by: its goals' metrics, else its losses; and which way is better."""
    named = {metric: way for metrics in task.goals.values() for metric, way in metrics.items()}
    return named or dict.fromkeys(task.objectives, "lower")


def held_out(task: Task) -> int:
    """How many samples of train become validation data: none where the task has its own.

    Raises:
        BadValue: It has none, and no part of train can take its place.
    """
    data = answers.data(task)
    if data.validation is not None:
        return 0
    samples = len(data.train[0])
    if type(task).sampler is not Task.sampler or samples < FEWEST:
        why = f"{samples} samples" if samples < FEWEST else "a sampler of its own"
        raise BadValue(
            f"{task.name} must have validation data to choose settings on, found none, and {why}, "
            "so that none can be held out of train"
        )
    return samples // HELD_OUT


def _validated(run: StoredRun, ways: Ways) -> dict[str, float]:
    """A run's metrics (or losses) on validation data."""
    record = run.record
    found = {m: record.get(f"validation/{m}", record.get(f"validation_loss/{m}")) for m in ways}
    for metric, value in found.items():
        if value is None:
            has = [name.partition("/")[2] for name in record if name.startswith("validation/")]
            raise BadValue(
                f"goals must name metrics of the task ({', '.join(has) or 'it has none'}), found "
                f"{metric!r}"
            )
    return {metric: value for metric, value in found.items() if value is not None}


def _has(run: StoredRun, metric: str) -> bool:
    """Whether a run has a number on test data, which is finite."""
    return math.isfinite(numbers(run.record).get(metric, math.nan))


def _failure(runs: Sequence[StoredRun | Diverged], ways: Ways) -> str:
    """Why a setting is out of question; empty if it is not."""
    for run in runs:
        if isinstance(run, Diverged):
            return str(run)
        for metric, value in _validated(run, ways).items():
            if not math.isfinite(value):
                return f"{metric} on validation data became NaN or infinite"
    return ""


def _pairs(
    method: str,
    base: Sequence[StoredRun],
    own: Sequence[StoredRun],
    ways: Ways,
    *,
    timed: bool = False,
) -> list[Pair]:
    """Baseline and method on test data, seed by seed."""
    return [
        Pair(method, metric, pair, "time" if timed else "samples")
        for metric, pair in paired(base, own).items()
        if metric in ways
    ]


def _mean_point(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {metric: fmean(own[metric] for own in seeds) for metric in seeds[0]}


def _mean_over_seeds(volumes: Sequence[float]) -> Interval:
    values = np.array(volumes)
    return bootstrap(lambda places: float(values[places].mean()), len(values))


def _facts(plan: TrialPlan) -> dict[str, Any]:
    """What decides the order of the trials."""
    return {**asdict(plan), "methods": list(plan.methods), "options": dict(plan.options)}
