"""One number for a training's metrics, larger is better."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from trimol.runs._judging import units
from trimol.search._trial import Point, Trial, TrialState
from trimol.tasks.task import Better

Ways = Mapping[str, Better]


class Scorer:
    """Scores metrics relative to the baseline's first complete trial.

    The score is the mean over metrics of how much better than there the value is, over its scale:
    its size there, or, for metrics that trade against each other (``spread``), how far apart the
    Pareto-optimal baseline trials lie. So 0.1 is 10 % better.

    Args:
        ways: The metrics, and which way is better.
        spread: Whether scales are spreads.
    """

    def __init__(self, ways: Ways, *, spread: bool = False) -> None:
        self.ways, self.spread = ways, spread
        self.reference: Point = dict.fromkeys(ways, 0.0)
        self.scales: Point = dict.fromkeys(ways, 1.0)

    def fit(self, points: Sequence[Point]) -> None:
        """Set reference and scales by the metrics of the baseline's complete trials."""
        if points:
            self.reference = points[0]
            sizes = {m: abs(points[0][m]) or 1.0 for m in self.ways}
            self.scales = units(points, self.ways, sizes, spread=self.spread)

    def score(self, point: Point) -> float:
        """Return the score of one training's metrics."""
        return fmean(
            (1 if way == "higher" else -1) * (point[m] - self.reference[m]) / self.scales[m]
            for m, way in self.ways.items()
        )

    def update(self, trials: Sequence[Trial]) -> None:
        """Score complete trials anew: the mean over their seeds."""
        for trial in trials:
            if trial.state is TrialState.COMPLETE:
                trial.score = fmean(map(self.score, trial.points.values()))
