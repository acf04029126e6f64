"""A setting over its seeds, with its score."""

import math
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean

from trimol.search._setting import Setting

Point = dict[str, float]  # metrics, by name


class TrialState(Enum):
    """Where a trial is: it begins as RUNNING and ends as one of the others."""

    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass
class Trial:
    """A setting over its seeds, with its score.

    Attributes:
        number: Its place among the trials of its method, from 0.
        setting: What is tried.
        state: Where it is.
        points: Its metrics on validation data, by seed.
        score: One number for them, larger is better; −∞ unless it is complete.
        note: Why it is not complete.
    """

    number: int
    setting: Setting
    state: TrialState = TrialState.RUNNING
    points: dict[int, Point] = field(default_factory=dict)
    score: float = -math.inf
    note: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether it has a score."""
        return self.state is TrialState.COMPLETE


def mean_point(trial: Trial) -> Point:
    """Return a trial's metrics, the means over its seeds."""
    each = list(trial.points.values())
    return {name: fmean(point[name] for point in each) for name in each[0]}
