"""The trials of a trial: what is tried of every contender, and which setting is chosen.

First a grid, as many settings for all (:mod:`trimol.runs._grids`). Of each of its rows, the step
sizes with the same hyper-parameters of a contender's own, what lies beyond an end is tried as long
as the end is the row's best. Then, for every contender alike, what lies around its best setting
(:mod:`trimol.runs._near_best`), by `REACHES`. Then the best settings that lie apart are run with
further seeds, and the best over all seeds is taken: on a few seeds alone it may have been lucky. At
last what lies close around that one is tried (`CLOSE`) with all these seeds, down to a difference
of a fifth of the verdict's margin: it may have been fine-tuned beside another step size or
schedule, and by the noise of a few seeds. Methods that are 5 % behind the baseline by then, and
more, are left as they are.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimol._failures import BadValue
from trimol.methods._registry import BASELINE
from trimol.runs._attempts import Attempt, Attempts, Executed
from trimol.runs._candidates import Candidate, Series
from trimol.runs._grids import along, apart, beyond, grid, usual_trials
from trimol.runs._judging import flat_goals
from trimol.runs._near_best import NearBest, Reaches
from trimol.runs._run_folders import RunFolders, Wanted
from trimol.runs._stops import Stops
from trimol.runs._trial_plan import TrialPlan
from trimol.runs._tuning_tables import of_candidates
from trimol.runs.verdict import Ways
from trimol.tasks import _answers as answers
from trimol.tasks.task import Settings, Task
from trimol.training import Diverged

# By how much a setting's neighbours differ: those of one line are tried together.
REACHES = tuple(
    tuple(10 ** (1 / part) for part in parts) for parts in ((2, 4, 8), (16, 32, 64), (128, 256))
)
# The same where few settings may be tried: none is spent around one that is not the best any more.
FEW_REACHES = tuple((10 ** (1 / part),) for part in (2, 4, 8, 16))
# The same with all seeds, at last. First a probe: which numbers matter that much?
CLOSE = tuple(
    tuple(10 ** (1 / part) for part in parts) for parts in ((8, 64), (128, 256), (512, 1024))
)
EDGES = 8  # how often what lies beyond the ends of the grid's rows is tried
ROUNDS, LAST_ROUNDS = 24, 12  # how often neighbours are tried
BEST, APART = 6, 10**0.25  # so many settings, by this factor apart, are run with further seeds
HELD_OUT = 5  # one sample in so many, where a task has no validation data
IN_REACH = 50  # what is further behind the baseline, in gains that count at last, is not tried then
FEWEST = 10  # samples of train, or none is held out
ROUND = 9  # trials of each contender between looks at the clock, where time is limited


class Trying:
    """The trials of all contenders, at work.

    Attributes:
        series: The contenders that are in the trial, by name.
        tried: What was tried of each.
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
        self.tried = Attempts(ways_of_task(task), plan.tuning_seeds, spread=bool(task.goals))
        self.held_out = held_out(task)
        self.series = {name: self._series(name, task) for name in plan.contenders}
        self.notes: list[str] = []
        self.stops = Stops(plan, folder)

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
        return self.tried.best(name).candidate

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What became of every candidate: `of_candidates`."""
        tried = list(self.tried.of(name).values())
        scores = [self.tried.scores_of(own) for own in tried]
        series = replace(self.series[name], candidates=tuple(own.candidate for own in tried))
        notes = [own.note for own in tried]
        rows = of_candidates(series, scores, notes, tried.index(self.tried.best(name)))
        return [{**row, "again": own.again} for row, own in zip(rows, tried, strict=True)]

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
                along(method, len(task.objectives), self.plan.rates)[: self.plan.most]
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
        allowed = self.stops.allowed("rounds", rounds)
        for number in range(allowed):
            self.stage(f"trials, round {number + 1} of {rounds}")
            part = slice(number * size, (number + 1) * size)
            self._try({name: series.candidates[part] for name, series in self.series.items()})
            if self.stops.late("rounds"):
                allowed = number + 1
                break
        self.stops.note("rounds", allowed)
        if allowed < rounds:
            self.notes.append(
                f"The time was up after {allowed * size} of {longest} trials of each contender."
            )
        self._leave_out()
        self.tried.set_scales()

    def _extend(self) -> None:
        """Try the next step size beyond every end of the grid that is the best of its row.

        What lies around the best setting alone leaves the other rows with step sizes that are too
        small or too large for them, and on a few seeds the best may be in the wrong row by luck.
        """
        allowed, done = self.stops.allowed("edges", EDGES), 0
        while (more := self._beyond()) and done < allowed and not self.stops.late("edges"):
            done += 1
            self.stage(f"beyond the ends of the grid, {done}")
            self._expect(more, self.plan.tuning_seeds)
            self._try(more)
        self.stops.note("edges", done)

    def _beyond(self) -> dict[str, list[Candidate]]:
        """What was not tried yet beyond the ends of the contenders' rows."""
        more = {}
        for name, series in self.series.items():
            rows: dict[str, list[Attempt]] = {}
            for own in self.tried.of(name).values():
                row = series.key(replace(own.candidate, lr=1.0, schedule=None))
                rows.setdefault(row, []).append(own)
            ends = [_end_of(row) for row in rows.values()]
            if new := [end for end in ends if end is not None]:
                more[name] = new
        return more

    def _leave_out(self) -> None:
        """A method of which no setting came to an end is out; without a baseline all is."""
        for name in list(self.series):
            notes = [own.note for own in self.tried.of(name).values()]
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
        for name, runs in self._run(candidates, seeds).items():
            for candidate, each in zip(candidates[name], runs, strict=True):
                self.tried.add(self.series[name], candidate, each)

    def _run(
        self, candidates: Mapping[str, Sequence[Candidate]], seeds: Sequence[int]
    ) -> dict[str, list[Executed]]:
        """The runs of every candidate with these seeds, of those contenders that can run."""
        wanted = [
            (self.series[name], candidate, seed)
            for name, own in candidates.items()
            for candidate in own
            for seed in seeds
        ]
        return {
            name: [runs[start : start + len(seeds)] for start in range(0, len(runs), len(seeds))]
            for name, runs in self.execute(wanted).items()
        }

    def _expect(self, settings: Mapping[str, Sequence[object]], seeds: int) -> None:
        """Count the steps of settings that are tried beyond the grids: progress goes by them."""
        self.folders.count.total += sum(map(len, settings.values())) * self.plan.steps * seeds

    # --- around the best ------------------------------------------------------------------------

    def _search(self) -> None:
        """Try what lies around the best, and around what is better, far and then near."""
        self._look_around("neighbours", ROUNDS, REACHES if self.plan.most is None else FEW_REACHES)

    def _refine(self) -> None:
        """Try what lies close around what was best with all seeds, with all of them."""
        if self.stops.allowed("again", 1) == 0:
            return
        self._look_around("close", LAST_ROUNDS, CLOSE, again=True)

    def _in_reach(self) -> list[str]:
        """The baseline, and what is not too far behind it to come near by fine-tuning."""
        least = self.tried.best(BASELINE).value - IN_REACH * self.tried.last_worth()
        return [n for n in self.series if n == BASELINE or self.tried.best(n).value > least]

    def _look_around(
        self, what: str, rounds: int, reaches: Reaches, *, again: bool = False
    ) -> None:
        names = self._in_reach() if again else list(self.series)
        search = NearBest(self.series, self.tried, names, reaches, most=self.plan.most, last=again)
        allowed, done = self.stops.allowed(what, rounds), 0
        seeds = self.plan.tuning_seeds + again * self.plan.seeds
        while more := search.wanted():
            if done == allowed or self.stops.late(what):
                self._not_inside(more, "as the time was up" if done < rounds else done)
                break
            done += 1
            self.stage(f"{'close ' if again else ''}around the best so far, {done}")
            self._expect(more, seeds)
            self._try(more, again=again)
            search.conclude(more)
        self.stops.note(what, done)

    def _not_inside(self, names: Mapping[str, object], why: str | int) -> None:
        told = why if isinstance(why, str) else f"after {why} rounds"
        self.notes += [
            f"{name}: {told}, what lies around the best setting was not tried in full."
            for name in names
        ]

    # --- further seeds --------------------------------------------------------------------------

    def _try_again(self) -> None:
        """The best settings of every contender with further seeds: which of them is the best?"""
        if self.stops.allowed("again", 1) == 0 or self.stops.late("again"):
            self.stops.note("again", 0)
            self.notes.append("The time was up: the best settings were not run with further seeds.")
            return
        self.stops.note("again", 1)
        self.stage("the best settings with further seeds")
        best = {name: self._shortlist(name) for name in self.series}
        self._expect(best, len(self.plan.seeds_again))
        candidates = {name: [own.candidate for own in listed] for name, listed in best.items()}
        for name, runs in self._run(candidates, self.plan.seeds_again).items():
            for attempt, each in zip(best[name], runs, strict=True):
                self.tried.add_seeds(attempt, each)

    def _shortlist(self, name: str) -> list[Attempt]:
        """The best settings that lie apart from each other."""
        tried = sorted(self.tried.of(name).values(), key=lambda own: -own.score)
        found: list[Attempt] = []
        for own in tried:
            if own.note or len(found) == BEST:
                break
            if all(apart(own.candidate, other.candidate, APART) for other in found):
                found.append(own)
        return found


def _end_of(row: Sequence[Attempt]) -> Candidate | None:
    """What lies beyond the end that is the best of a row; None if the best lies inside."""
    best = max(row, key=lambda own: own.score)
    return None if best.note else beyond(best.candidate, [own.candidate.lr for own in row])


def ways_of_task(task: Task) -> Ways:
    """What a task is judged by: its goals' metrics, else its losses; and which way is better."""
    return flat_goals(task.goals) or dict.fromkeys(task.objectives, "lower")


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
