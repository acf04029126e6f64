"""The trials of a trial: what is tried of every contender, and which setting is chosen.

First a grid, as many settings for all (:mod:`trimol.runs._grids`). Of each of its rows, the step
sizes with the same hyper-parameters of a contender's own, what lies beyond an end is tried as long
as the end is the row's best. Then, for every contender alike, what lies around its best setting,
one number changed at a time: by `REACHES`, far ones and near ones together, and around what is
better, until nothing gains `PLATEAU`; then by the next, finer reaches, of those numbers that still
matter at the finest of the last. Where the finer ones gained, all is tried again from the far ones
on: noise that did not show beside weights that were a little off may ask for another step size or
schedule. Then the best settings that lie apart are run with further seeds, and the best over all
seeds is taken: on a few seeds alone it may have been lucky. At last what lies close around that one
is tried (`CLOSE`) with all these seeds, down to a difference of a fifth of the verdict's margin: it
may have been fine-tuned beside another step size or schedule, and by the noise of a few seeds.
Methods that are 5 % behind the baseline by then, and more, are left as they are.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeGuard

from trimol._failures import BadValue
from trimol.methods._registry import BASELINE
from trimol.runs import _storage as files
from trimol.runs._candidates import Candidate, Series
from trimol.runs._grids import along, apart, beyond, grid, moves, schedules, usual_trials
from trimol.runs._judging import standing
from trimol.runs._run_folders import RunFolders, Wanted
from trimol.runs._trial_plan import TrialPlan
from trimol.runs._trial_stages import Point
from trimol.runs._tuning_tables import of_candidates
from trimol.runs.store import StoredRun
from trimol.runs.study import part_name
from trimol.runs.verdict import MARGIN, SMALLEST, Ways
from trimol.tasks import _answers as answers
from trimol.tasks.task import Settings, Task
from trimol.training import Diverged

# By how much a setting's neighbours differ: those of one line are tried together.
REACHES = tuple(
    tuple(10 ** (1 / part) for part in parts) for parts in ((2, 4, 8), (16, 32, 64), (128, 256))
)
# The same with all seeds, at last. First a probe: which numbers matter that much?
CLOSE = tuple(
    tuple(10 ** (1 / part) for part in parts) for parts in ((8, 64), (128, 256), (512, 1024))
)
EDGES = 8  # how often what lies beyond the ends of the grid's rows is tried
ROUNDS, LAST_ROUNDS = 24, 12  # how often neighbours are tried
BEST, APART = 6, 10**0.25  # so many settings, by this factor apart, are run with further seeds
HELD_OUT = 5  # one sample in so many, where a task has no validation data
PLATEAU = 1e-3  # of the size of the metrics: neighbours that gain less are no better
LAST = MARGIN / 5  # the same at last, of what gains are relative to in the verdict
IN_REACH = 50  # what is further behind the baseline, in these, is not tried at last
FEWEST = 10  # samples of train, or none is held out
ROUND = 9  # trials of each contender between looks at the clock, where time is limited
Executed = list[StoredRun | Diverged]
Reaches = tuple[tuple[float, ...], ...]


@dataclass
class Attempt:
    """A setting that was tried.

    Attributes:
        candidate: The setting.
        points: Its metrics on validation data, seed by seed.
        note: Why it is out of question; empty if it is not.
        score: The mean over seeds, larger for the better; −∞ where there is a note.
        again: The same with the further seeds, too; None where it was not run with them.
    """

    candidate: Candidate
    points: list[Point]
    note: str
    score: float = -math.inf
    again: float | None = None

    @property
    def value(self) -> float:
        """The mean over all seeds that it was run with."""
        return self.score if self.again is None else self.again


class Trying:
    """The trials of all contenders, at work.

    Attributes:
        series: The contenders that are in the trial, by name.
        attempts: What was tried of each, by the candidates' keys, in the order of the trials.
        scales: The sizes of the metrics.
        notes: What a reader has to know about how it went.
    """

    def __init__(
        self,
        plan: TrialPlan,
        task: Task,
        folder: Path,
        folders: RunFolders,
        stage: Callable[[str], None],
    ) -> None:
        self.plan, self.folders, self.stage = plan, folders, stage
        self.ways = ways_of_task(task)
        self.held_out = held_out(task)
        self.series = {name: self._series(name, task) for name in plan.contenders}
        self.attempts: dict[str, dict[str, Attempt]] = {name: {} for name in self.series}
        self.scales: dict[str, float] = {}
        self.notes: list[str] = []
        self.began = time.monotonic()
        self.stops_file = folder / f"{part_name('stopped', _facts(plan))}.json"
        self.stops = files.read_json(self.stops_file) if self.stops_file.exists() else {}

    def run(self) -> None:
        """All trials."""
        self._try_grids()
        if self.plan.most is None:
            self._extend()
        self._search()
        if self.plan.most is None:
            self._try_again()
            self._refine()

    def chosen(self, name: str) -> Candidate:
        """A contender's best setting."""
        return self._best(name).candidate

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What became of every candidate: `of_candidates`."""
        tried = list(self.attempts[name].values())
        scores = [
            [-math.inf] * self.plan.tuning_seeds if own.note else self._scores(own.points)
            for own in tried
        ]
        series = replace(self.series[name], candidates=tuple(own.candidate for own in tried))
        notes = [own.note for own in tried]
        rows = of_candidates(series, scores, notes, tried.index(self._best(name)))
        return [{**row, "again": own.again} for row, own in zip(rows, tried, strict=True)]

    def points(self, name: str) -> list[list[Point]]:
        """Every setting's metrics on validation data, seed by seed; those that came to an end."""
        return [own.points for own in self.attempts[name].values() if not own.note]

    def execute(self, wanted: Sequence[Wanted]) -> dict[str, Executed]:
        """Runs of contenders, by label; one that refuses to run is left out, with a note."""
        try:
            return _by_label(wanted, self.folders.execute(wanted))
        except BadValue:  # whose it is, shows one by one; what is finished is not run again
            pass
        found: dict[str, Executed] = {}
        for series in {each.label: each for each, _, _ in wanted}.values():
            if series.method not in self.series:
                continue
            own = [each for each in wanted if each[0].label == series.label]
            try:
                found[series.label] = self.folders.execute(own)
            except BadValue as error:
                if series.method == BASELINE:
                    raise
                del self.series[series.method]
                self.notes.append(f"{series.method} is not considered: it cannot run here: {error}")
        return found

    def _series(self, method: str, task: Task) -> Series:
        trials = self.plan.trials or usual_trials(len(task.objectives))
        settings = task.settings.get(method, Settings())
        return Series(
            label=method,
            task=self.plan.task,
            method=method,
            goals=task.goals,
            candidates=tuple(
                along(method, len(task.objectives), self.plan.rates)
                if self.plan.rates
                else grid(method, len(task.objectives), settings, trials)
            ),
            batch_size=self.plan.batch_size,
            epoch=self.plan.steps,
            epochs=1,
            options=self.plan.options,
            validation_only=True,
            hold_out=self.held_out,
        )

    # --- the grids ------------------------------------------------------------------------------

    def _try_grids(self) -> None:
        """Every contender's candidates, round by round, as long as there is time."""
        longest = max(len(series.candidates) for series in self.series.values())
        size = longest if self.plan.minutes is None else ROUND
        rounds = math.ceil(longest / size)
        allowed = self.stops.get("rounds", rounds)
        for number in range(allowed):
            self.stage(f"trials, round {number + 1} of {rounds}")
            part = slice(number * size, (number + 1) * size)
            self._try({name: series.candidates[part] for name, series in self.series.items()})
            if self._late("rounds"):
                allowed = number + 1
                break
        self._stop("rounds", allowed)
        if allowed < rounds:
            self.notes.append(
                f"The time was up after {allowed * size} of {longest} trials of each contender."
            )
        self._leave_out()
        self.scales = self._scales()
        for own in self.attempts.values():
            for attempt in own.values():
                self._score(attempt)

    def _extend(self) -> None:
        """Try the next step size beyond every end of the grid that is the best of its row.

        What lies around the best setting alone leaves the other rows with step sizes that are too
        small or too large for them, and on a few seeds the best may be in the wrong row by luck.
        """
        allowed, done = self.stops.get("edges", EDGES), 0
        while (more := self._beyond()) and done < allowed and not self._late("edges"):
            done += 1
            self.stage(f"beyond the ends of the grid, {done}")
            self._expect(more, self.plan.tuning_seeds)
            self._try(more)
        self._stop("edges", done)

    def _beyond(self) -> dict[str, list[Candidate]]:
        """What was not tried yet beyond the ends of the contenders' rows."""
        more = {}
        for name, series in self.series.items():
            rows: dict[str, list[Attempt]] = {}
            for own in self.attempts[name].values():
                row = series.key(replace(own.candidate, lr=1.0, schedule=None))
                rows.setdefault(row, []).append(own)
            ends = [_end_of(row) for row in rows.values()]
            if new := [end for end in ends if end is not None]:
                more[name] = new
        return more

    def _leave_out(self) -> None:
        """A method of which no setting came to an end is out; without a baseline all is."""
        for name in list(self.series):
            notes = [own.note for own in self.attempts[name].values()]
            if not all(notes):
                continue
            if name == BASELINE:
                raise Diverged(f"no setting of {name} came to an end: {notes[0]}")
            del self.series[name]
            self.notes.append(
                f"{name} is not considered: no setting of it came to an end: {notes[0]}"
            )

    def _try(self, candidates: Mapping[str, Sequence[Candidate]], *, again: bool = False) -> None:
        """Run candidates with every tuning seed, or with the further ones, too."""
        seeds = [*self.plan.seeds_tried, *(self.plan.seeds_again if again else ())]
        wanted = [
            (self.series[name], candidate, seed)
            for name, own in candidates.items()
            for candidate in own
            for seed in seeds
        ]
        for name, runs in self.execute(wanted).items():
            for place, candidate in enumerate(candidates[name]):
                each = runs[place * len(seeds) : (place + 1) * len(seeds)]
                attempt = self._attempt(candidate, each)
                self.attempts[name][self.series[name].key(candidate)] = attempt

    def _expect(self, settings: Mapping[str, Sequence[object]], seeds: int) -> None:
        """Count the steps of settings that are tried beyond the grids: progress goes by them."""
        self.folders.count.total += sum(map(len, settings.values())) * self.plan.steps * seeds

    def _attempt(self, candidate: Candidate, runs: Executed) -> Attempt:
        """What runs with the tuning seeds come to, and those with further ones, if any."""
        few, note = self.plan.tuning_seeds, _failure(runs, self.ways)
        points = [] if note else [_validated(r, self.ways) for r in runs if _finished(r)]
        attempt = Attempt(candidate, points[:few], note)
        if self.scales:
            self._score(attempt)
        if len(runs) > few:
            attempt.again = -math.inf if note else fmean(self._scores(points))
        return attempt

    def _score(self, attempt: Attempt) -> None:
        if not attempt.note:
            attempt.score = fmean(self._scores(attempt.points))

    def _scores(self, points: Sequence[Point]) -> list[float]:
        """One number a seed, larger for the better: the mean of all metrics, each in its scale."""
        columns = {metric: [own[metric] for own in points] for metric in self.ways}
        return standing(columns, self.ways, self.scales)

    def _scales(self) -> dict[str, float]:
        """The sizes of the metrics: of the middle one of the baseline's first trials."""
        values = [point for own in self.points(BASELINE) for point in own]
        return {m: median(abs(own[m]) for own in values) or 1.0 for m in self.ways}

    # --- around the best ------------------------------------------------------------------------

    def _search(self) -> None:
        """Try what lies around the best, and around what is better, far and then near."""
        self._look_around("neighbours", ROUNDS, REACHES)

    def _refine(self) -> None:
        """Try what lies close around what was best with all seeds, with all of them."""
        if self.stops.get("again", 1) == 0:
            return
        self._look_around("close", LAST_ROUNDS, CLOSE, again=True)

    def _in_reach(self) -> list[str]:
        """The baseline, and what is not too far behind it to come near by fine-tuning."""
        least = self._best(BASELINE).value - IN_REACH * self._last_worth
        return [n for n in self.series if n == BASELINE or self._best(n).value > least]

    def _look_around(
        self, what: str, rounds: int, reaches: Reaches, *, again: bool = False
    ) -> None:
        names = self._in_reach() if again else list(self.series)
        searches = {name: Around(self._best(name), reaches, last=again) for name in names}
        allowed, done = self.stops.get(what, rounds), 0
        seeds = self.plan.tuning_seeds + again * self.plan.seeds
        while more := self._neighbours(searches):
            if done == allowed or self._late(what):
                self._not_inside(more, "as the time was up" if done < rounds else done)
                break
            done += 1
            self.stage(f"{'close ' if again else ''}around the best so far, {done}")
            self._expect(more, seeds)
            before = {name: self._best(name).value for name in more}
            self._try(more, again=again)
            for name in more:
                if name in self.series:
                    self._conclude(name, searches[name], before[name])
        self._stop(what, done)

    def _neighbours(self, searches: Mapping[str, "Around"]) -> dict[str, list[Candidate]]:
        """What was not tried yet around each contender's best."""
        more = {}
        for name in [own for own in searches if own in self.series]:
            search, series, tried = searches[name], self.series[name], self.attempts[name]
            left = self._left(name)
            while not search.over and left != 0:
                near = {series.key(c): c for c in search.wanted}
                new = [
                    candidate
                    for key, candidate in near.items()
                    if key not in tried or (search.last and tried[key].again is None)
                ]
                if new:
                    more[name] = new[:left]
                    break
                self._conclude(name, search, self._best(name).value)
        return more

    def _left(self, name: str) -> int | None:
        """How many more settings of a contender may be tried; None: any number."""
        most = self.plan.most
        return None if most is None else max(0, most - len(self.attempts[name]))

    def _conclude(self, name: str, search: "Around", before: float) -> None:
        """Go on around a better setting, or with finer reaches of the numbers that matter."""
        if self._left(name) == 0:
            return
        best, series, tried = self._best(name), self.series[name], self.attempts[name]
        worth = self._last_worth if search.last else self._worth
        if best.value - before > worth:
            search.centre = best.candidate
            return
        centre = tried[series.key(search.centre)].value
        search.finer(
            {
                number
                for number, candidate in moves(search.centre, search.finest)
                if number in search.open
                and abs(tried[series.key(candidate)].value - centre) > worth
            }
        )
        search.centre = best.candidate
        if search.level == 1:
            search.coarse = best.value
        if search.over and not search.last and best.value - search.coarse > worth:
            search.restart(best)

    def _not_inside(self, names: Mapping[str, object], why: str | int) -> None:
        told = why if isinstance(why, str) else f"after {why} rounds"
        self.notes += [
            f"{name}: {told}, what lies around the best setting was not tried in full."
            for name in names
        ]

    @property
    def _worth(self) -> float:
        """What a score must gain for a neighbour to be better."""
        single = next(iter(self.scales.values())) if len(self.ways) == 1 else 1.0
        return PLATEAU * single

    @property
    def _last_worth(self) -> float:
        """The same at last: in the verdict's measure of the baseline's best."""
        each = self._best(BASELINE).points
        sizes = {m: abs(fmean(own[m] for own in each)) for m in self.ways}
        least = {m: max(sizes[m], SMALLEST * self.scales[m]) for m in self.ways}
        if len(least) == 1:
            return LAST * next(iter(least.values()))
        return LAST * fmean(least[m] / self.scales[m] for m in least)

    def _best(self, name: str) -> Attempt:
        """By all seeds, where some were run with more; else by those of the trials."""
        tried = self.attempts[name].values()
        again = [own for own in tried if own.again is not None]
        if again:
            return max(again, key=lambda own: own.again or 0.0)
        return max(tried, key=lambda own: own.score)

    # --- further seeds --------------------------------------------------------------------------

    def _try_again(self) -> None:
        """The best settings of every contender with further seeds: which of them is the best?"""
        if self.stops.get("again", 1) == 0 or self._late("again"):
            self._stop("again", 0)
            self.notes.append("The time was up: the best settings were not run with further seeds.")
            return
        self._stop("again", 1)
        self.stage("the best settings with further seeds")
        seeds, best = self.plan.seeds_again, {name: self._shortlist(name) for name in self.series}
        self._expect(best, len(seeds))
        wanted = [
            (self.series[name], attempt.candidate, seed)
            for name, own in best.items()
            for attempt in own
            for seed in seeds
        ]
        for name, runs in self.execute(wanted).items():
            for place, attempt in enumerate(best[name]):
                each = runs[place * len(seeds) : (place + 1) * len(seeds)]
                if not _failure(each, self.ways):
                    more = [_validated(run, self.ways) for run in each if _finished(run)]
                    attempt.again = fmean(self._scores([*attempt.points, *more]))

    def _shortlist(self, name: str) -> list[Attempt]:
        """The best settings that lie apart from each other."""
        tried = sorted(self.attempts[name].values(), key=lambda own: -own.score)
        found: list[Attempt] = []
        for own in tried:
            if own.note or len(found) == BEST:
                break
            if all(apart(own.candidate, other.candidate, APART) for other in found):
                found.append(own)
        return found

    # --- time -----------------------------------------------------------------------------------

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


class Around:
    """How far the search around a contender's best has come.

    Attributes:
        centre: What it looks around.
        reaches: How far, level by level.
        last: Whether it is the last one, with all seeds.
        level: Which of the reaches it is at.
        open: The numbers of which it tries neighbours.
        coarse: The best score that the far ones came to.
    """

    def __init__(self, best: Attempt, reaches: Reaches, *, last: bool) -> None:
        self.reaches, self.last = reaches, last
        self.restart(best)

    def restart(self, best: Attempt) -> None:
        """Look around this one, from the far ones on."""
        self.centre, self.level, self.coarse = best.candidate, 0, best.value
        self.open = {number for number, _ in moves(self.centre, self.finest)}

    @property
    def over(self) -> bool:
        """Whether nothing is left to try."""
        return self.level == len(self.reaches) or not self.open

    @property
    def finest(self) -> float:
        """The finest reach of this level."""
        return self.reaches[self.level][-1]

    @property
    def wanted(self) -> list[Candidate]:
        """What lies around the centre: with the far ones, other schedules, too."""
        near = [
            candidate
            for reach in self.reaches[self.level]
            for number, candidate in moves(self.centre, reach)
            if number in self.open
        ]
        others = self.level == 0 and not self.last
        return [*near, *(schedules(self.centre) if others else [])]

    def finer(self, numbers: set[str]) -> None:
        """Go on with finer reaches of these numbers."""
        self.level, self.open = self.level + 1, numbers


def _end_of(row: Sequence[Attempt]) -> Candidate | None:
    """What lies beyond the end that is the best of a row; None if the best lies inside."""
    best = max(row, key=lambda own: own.score)
    return None if best.note else beyond(best.candidate, [own.candidate.lr for own in row])


def ways_of_task(task: Task) -> Ways:
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


def _by_label(wanted: Sequence[Wanted], runs: Executed) -> dict[str, Executed]:
    found: dict[str, Executed] = {}
    for (series, _, _), run in zip(wanted, runs, strict=True):
        found.setdefault(series.label, []).append(run)
    return found


def _finished(run: StoredRun | Diverged) -> TypeGuard[StoredRun]:
    return isinstance(run, StoredRun)


def _validated(run: StoredRun, ways: Ways) -> Point:
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


def _failure(runs: Sequence[StoredRun | Diverged], ways: Ways) -> str:
    """Why a setting is out of question; empty if it is not."""
    for run in runs:
        if isinstance(run, Diverged):
            return str(run)
        for metric, value in _validated(run, ways).items():
            if not math.isfinite(value):
                return f"{metric} on validation data became NaN or infinite"
    return ""


def _facts(plan: TrialPlan) -> dict[str, Any]:
    """What decides the order of the trials."""
    return {
        **asdict(plan),
        "methods": list(plan.methods),
        "options": dict(plan.options),
        "rates": list(plan.rates),
    }
