"""One number for a training's metrics, larger is better."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from trimol.runs._judging import units
from trimol.search._trial import Point, Trial, TrialState
from trimol.tasks.task import Better

Ways = Mapping[str, Better]


class Scorer:
    """Scores metrics relative to the baseline's trials.

    The score is the mean over metrics of how much better than the median complete trial the value
    is: 2 (r − 1)/(r + 1) with the ratio r of the two. So 0.1 is about 10 %, and no metric counts
    more than 2, for better or worse: neither a loss that is a thousand times as large, nor one that
    a trivial solution brought to 0, outweighs all others. Two kinds of metrics have differences in
    place of ratios: those that trade against each other (``spread``), relative to how far apart the
    Pareto-optimal baseline trials lie, and those that are not above 0, relative to their size.

    Args:
        ways: The metrics, and which way is better.
        spread: Whether metrics trade against each other.
    """

    def __init__(self, ways: Ways, *, spread: bool = False) -> None:
        self.ways, self.spread = ways, spread and len(ways) > 1
        self.reference: Point = dict.fromkeys(ways, 0.0)
        self.scales: Point = dict.fromkeys(ways, 1.0)
        self.ratios: frozenset[str] = frozenset()

    def fit(self, points: Sequence[Point], others: Sequence[Point] = ()) -> None:
        """Set reference and scales by the baseline's points; all points decide on ratios."""
        if points:
            self.reference = {m: median(own[m] for own in points) for m in self.ways}
            sizes = {m: abs(self.reference[m]) or 1.0 for m in self.ways}
            self.scales = units(points, self.ways, sizes, spread=self.spread)
            seen = [*points, *others]
            self.ratios = frozenset(
                m
                for m in self.ways
                if not self.spread and self.reference[m] > 0 and all(own[m] >= 0 for own in seen)
            )

    @property
    def is_ratio(self) -> bool:
        """Whether all of the score is of ratios."""
        return len(self.ratios) == len(self.ways)

    def score(self, point: Point) -> float:
        """Return the score of one training's metrics.

        >>> scorer = Scorer({"loss": "lower"})
        >>> scorer.fit([{"loss": 2.0}])
        >>> round(scorer.score({"loss": 1.8}), 3), round(scorer.score({"loss": 2000.0}), 3)
        (0.105, -1.996)
        """
        return fmean(
            (1 if way == "higher" else -1) * self._change(m, point[m])
            for m, way in self.ways.items()
        )

    def _change(self, metric: str, value: float) -> float:
        before = self.reference[metric]
        if metric in self.ratios:
            return 2 * (value - before) / (value + before)
        return (value - before) / self.scales[metric]

    def update(self, trials: Sequence[Trial]) -> None:
        """Score complete trials anew: the mean over their seeds."""
        for trial in trials:
            if trial.state is TrialState.COMPLETE:
                trial.score = fmean(map(self.score, trial.points.values()))


def paired_gains(base: Sequence[Point], own: Sequence[Point], like: Scorer) -> list[float]:
    """Return how much better each point is than its partner, relative to the partners' mean."""
    scorer = Scorer(like.ways, spread=like.spread)
    scorer.fit([{m: fmean(point[m] for point in base) for m in like.ways}], [*base, *own])
    if scorer.spread:
        scorer.scales = like.scales
    return [scorer.score(b) - scorer.score(a) for a, b in zip(base, own, strict=True)]


def percent(gain: float, ci: float | None = None, *, ratio: bool = True) -> str:
    """Say a difference of two scores in words, without its sign.

    Args:
        gain: The difference.
        ci: Half of its interval.
        ratio: Whether scores are of ratios; large ones are said as factors.

    >>> print(percent(0.12, 0.04), percent(-0.12), percent(0.12, ratio=False), sep=", ")
    11 ± 3.6 %, 13 %, 12 %
    >>> print(percent(-1.2, 0.4))
    a factor of 4 (2.3 to 9)
    >>> print(percent(1.9, 0.3))
    a factor of 39 (9 or more)
    """
    if ratio and abs(gain) > _FACTORS:
        low, high = (abs(gain) + way * (ci or 0.0) for way in (-1, 1))
        ends = f"{_factor(low):.2g} " + ("or more" if high >= _MOST else f"to {_factor(high):.2g}")
        return f"a factor of {_factor(abs(gain)):.2g}" + ("" if ci is None else f" ({ends})")
    # A value with this gain changes by the share r − 1 = −2 g/(2 + g), if lower is better.
    share, slope = (abs(2 * gain / (2 + gain)), 4 / (2 + gain) ** 2) if ratio else (abs(gain), 1.0)
    half = "" if ci is None else f" ± {100 * ci * slope:.2g}"
    return f"{100 * share:.2g}{half} %"


def _factor(gain: float) -> float:
    """Return the ratio that has a gain, at most that of `_MOST`.

    >>> round(_factor(2 * (3 - 1) / (3 + 1)), 6)
    3.0
    """
    bounded = min(gain, _MOST)
    return (2 + bounded) / (2 - bounded)


_FACTORS = 0.6  # from here on, a change is said as a factor
_MOST = 1.999  # a factor of 4000
