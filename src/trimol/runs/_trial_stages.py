"""What the stages of a trial hand on: points reached, settings chosen, final runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from trimol.runs._candidates import Candidate
from trimol.runs.store import StoredRun

Point = dict[str, float]
Runs = dict[str, list[StoredRun]]


@dataclass(frozen=True)
class Final:
    """The final runs.

    Attributes:
        settings: What was chosen, by contender.
        costs: How long a step of each contender takes, in steps of the baseline.
        steps: The steps of each contender at equal time.
        runs: At equal samples, by contender.
        timed: At equal time, of those whose step costs more or less.
        failed: Those that diverged, in words.
    """

    settings: dict[str, Candidate]
    costs: dict[str, float]
    steps: dict[str, int]
    runs: Runs
    timed: Runs
    failed: list[str]


def mean_point(seeds: Sequence[Point]) -> Point:
    """A setting's metrics, the mean over its seeds."""
    return {metric: fmean(own[metric] for own in seeds) for metric in seeds[0]}
