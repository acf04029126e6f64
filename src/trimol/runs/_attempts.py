"""What was tried in a trial: each setting's metrics, its score, and which is a contender's best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeGuard

from trimol._failures import BadValue
from trimol.methods._registry import BASELINE
from trimol.runs._candidates import Candidate, Series
from trimol.runs._judging import standing, units
from trimol.runs._trial_stages import Point, mean_point
from trimol.runs.store import StoredRun
from trimol.runs.verdict import MARGIN, SMALLEST, Ways
from trimol.training import Diverged

PLATEAU = 1e-3  # of the size of the metrics: neighbours that gain less are no better
LAST = MARGIN / 5  # the same at last, of what gains are relative to in the verdict
Executed = list[StoredRun | Diverged]


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


class Attempts:
    """All that was tried, contender by contender.

    Attributes:
        ways: What settings are judged by, and which way is better.
        seeds: How many seeds each is tried with at first.
        spread: Whether scores are relative to how far apart good settings are (`units`).
        sizes: The sizes of the metrics; empty until `set_scales`.
        scales: What a score's metrics are relative to; empty until then.
    """

    def __init__(self, ways: Ways, seeds: int, *, spread: bool = False) -> None:
        self.ways, self.seeds, self.spread = ways, seeds, spread
        self.sizes: dict[str, float] = {}
        self.scales: dict[str, float] = {}
        self._tried: dict[str, dict[str, Attempt]] = {}

    def of(self, name: str) -> dict[str, Attempt]:
        """A contender's, by the candidates' keys, in the order of the trials."""
        return self._tried.setdefault(name, {})

    def add(self, series: Series, candidate: Candidate, runs: Executed) -> None:
        """Note down what runs with the first seeds came to, and those with further ones, if any."""
        note = failure(runs, self.ways)
        points = [] if note else [validated(run, self.ways) for run in runs if finished(run)]
        attempt = Attempt(candidate, points[: self.seeds], note)
        if self.scales:
            self._score(attempt)
        if len(runs) > self.seeds:
            attempt.again = -math.inf if note else fmean(self.scores(points))
        self.of(series.method)[series.key(candidate)] = attempt

    def add_seeds(self, attempt: Attempt, runs: Executed) -> None:
        """Note down what runs of it with further seeds came to, if all of them came to an end."""
        if not failure(runs, self.ways):
            more = [validated(run, self.ways) for run in runs if finished(run)]
            attempt.again = fmean(self.scores([*attempt.points, *more]))

    def set_scales(self) -> None:
        """Take what metrics are relative to from the baseline's trials, and score all by it."""
        points = self.points(BASELINE)
        values = [point for own in points for point in own]
        self.sizes = {m: median(abs(own[m]) for own in values) or 1.0 for m in self.ways}
        means = [mean_point(own) for own in points]
        self.scales = units(means, self.ways, self.sizes, spread=self.spread)
        for tried in self._tried.values():
            for attempt in tried.values():
                self._score(attempt)

    def scores(self, points: Sequence[Point]) -> list[float]:
        """One number a seed, larger for the better: the mean of all metrics, each in its scale."""
        columns = {metric: [own[metric] for own in points] for metric in self.ways}
        return standing(columns, self.ways, self.scales)

    def scores_of(self, attempt: Attempt) -> list[float]:
        """Those of a setting with the first seeds; −∞ where it is out of question."""
        return [-math.inf] * self.seeds if attempt.note else self.scores(attempt.points)

    def points(self, name: str) -> list[list[Point]]:
        """Every setting's metrics on validation data, seed by seed; those that came to an end."""
        return [own.points for own in self.of(name).values() if not own.note]

    def best(self, name: str) -> Attempt:
        """By all seeds, where some were run with more; else by the first ones."""
        tried = self.of(name).values()
        again = [own for own in tried if own.again is not None]
        if again:
            return max(again, key=lambda own: own.again or 0.0)
        return max(tried, key=lambda own: own.score)

    def worth(self) -> float:
        """What a score must gain for a setting to be better than another."""
        return PLATEAU * self._in_scores(self.sizes)

    def last_worth(self) -> float:
        """The same at last: in the verdict's measure of the baseline's best."""
        each = self.best(BASELINE).points
        sizes = {m: abs(fmean(own[m] for own in each)) for m in self.ways}
        return LAST * self._in_scores({m: max(sizes[m], SMALLEST * self.sizes[m]) for m in sizes})

    def _in_scores(self, amounts: Point) -> float:
        """What such an amount of every metric makes of a score."""
        if len(amounts) == 1:  # a single metric is its own score
            return next(iter(amounts.values()))
        return fmean(amounts[m] / self.scales[m] for m in amounts)

    def _score(self, attempt: Attempt) -> None:
        if not attempt.note:
            attempt.score = fmean(self.scores(attempt.points))


def finished(run: StoredRun | Diverged) -> TypeGuard[StoredRun]:
    """Whether a run came to its end."""
    return isinstance(run, StoredRun)


def validated(run: StoredRun, ways: Ways) -> Point:
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


def failure(runs: Executed, ways: Ways) -> str:
    """Why a setting is out of question; empty if it is not."""
    for run in runs:
        if isinstance(run, Diverged):
            return str(run)
        for metric, value in validated(run, ways).items():
            if not math.isfinite(value):
                return f"{metric} on validation data became NaN or infinite"
    return ""
