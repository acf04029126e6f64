r"""Is a method better than the baseline? One rule, for `diagnose`, `compare` and every report.

Runs are judged by the metrics that the task names as its goals (`trimol.tasks.Task.goals`), else by
its test losses, seed by seed against the baseline (same start, same samples). A method is

- *better* on a metric if the difference is clear (`trimol.runs._significance`, for all
  comparisons together) and the gain is above `MARGIN` beyond noise: the lower end of its 95 %
  interval is, as a share of the baseline's number;
- *worse* on a metric if the difference is clear, and a loss. It *may be worse* if the 95 % interval
  of this one difference, without a correction, lies on the bad side of 0.

A method *wins* if it is better on a metric and worse on none, nor may be. One that is better on
some metrics and (perhaps) worse on others is a *trade*. In every case but the first the verdict is
to stay with the baseline. With settings that do not differ from it, a difference is named in one
study in twenty at most; with fewer than five seeds (more, where many numbers are compared) none is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Literal

from trimol.runs._judging import flat_goals
from trimol.runs._significance import is_clear, p_values
from trimol.runs.comparison import JUDGED, all_paired, usual_baseline
from trimol.runs.statistics import LEVEL, Paired, interval
from trimol.runs.store import StoredRun
from trimol.tasks.task import Better

MARGIN = 0.005  # of the baseline's number: a smaller gain is no reason to change anything
Kind = Literal["wins", "trades", "loses", "alike", "unknown"]
Ways = Mapping[str, Better]


@dataclass(frozen=True)
class Pair:
    """One number of a method and of the baseline, seed by seed.

    Attributes:
        method: The method.
        metric: What was measured.
        both: The baseline's numbers and the method's.
    """

    method: str
    metric: str
    both: Paired


@dataclass(frozen=True)
class Gain:
    """How much better than the baseline a method is on one metric.

    Attributes:
        method: The method.
        metric: The metric.
        way: Which way is better.
        base: The baseline's mean.
        mean: The mean gain over seeds: above 0 is better, whichever way the metric goes.
        ci: Half of its own 95 % interval; None for a single seed.
        wide: Half of an interval that holds for all comparisons together (Bonferroni).
        n: The seeds that both finished.
        p: Holm's p value, for all comparisons.
        fixed: Whether all seeds gave the same numbers.
    """

    method: str
    metric: str
    way: Better
    base: float
    mean: float
    ci: float | None
    wide: float | None
    n: int
    p: float | None
    fixed: bool = False

    @property
    def share(self) -> float:
        """The gain as a share of the baseline's number; infinite where that is 0."""
        return self._share(self.mean)

    @property
    def change(self) -> float:
        """The method's number minus the baseline's."""
        return self.mean if self.way == "higher" else -self.mean

    @property
    def most(self) -> float | None:
        """The share is at most this, in view of all comparisons; None if nothing is known."""
        return None if self.wide is None else self._share(max(0.0, self.mean + self.wide))

    @property
    def clear(self) -> bool:
        """Whether the difference, to either side, is larger than its noise."""
        return is_clear(self.p)

    @property
    def better(self) -> bool:
        """Whether it is above the margin, beyond noise."""
        least = self.mean - (self.ci or 0.0)
        return self.clear and least > 0 and self._share(least) > MARGIN

    @property
    def worse(self) -> bool:
        """Whether it is a loss, beyond noise."""
        return self.clear and self.mean < 0

    @property
    def may_be_worse(self) -> bool:
        """Whether it is a loss beyond the noise of this difference alone."""
        return self.worse or (self.ci is not None and self.mean + self.ci < 0)

    def _share(self, value: float) -> float:
        if value == 0:
            return 0.0
        return value / abs(self.base) if self.base else math.copysign(math.inf, value)


@dataclass(frozen=True)
class Verdict:
    """What the rule says.

    Attributes:
        baseline: What the methods are compared with.
        use: The baseline's or a method's name.
        gains: Every method's gain on every metric that is judged by.
        comparisons: How many differences were looked at in all.
    """

    baseline: str
    use: str
    gains: tuple[Gain, ...]
    comparisons: int = 0

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that were compared with the baseline."""
        return tuple(dict.fromkeys(gain.method for gain in self.gains))

    def of(self, method: str) -> list[Gain]:
        """The gains of a method."""
        return [gain for gain in self.gains if gain.method == method]

    def kind(self, method: str) -> Kind:
        """What a method is beside the baseline."""
        own = self.of(method)
        if not any(gain.p is not None for gain in own):
            return "unknown"
        if any(g.better for g in own):
            return "trades" if any(g.may_be_worse for g in own) else "wins"
        return "loses" if any(g.worse for g in own) else "alike"

    @property
    def fixed(self) -> bool:
        """Whether all seeds gave the same numbers: there is no noise to judge by."""
        return bool(self.gains) and all(gain.fixed for gain in self.gains)

    @property
    def limit(self) -> Gain | None:
        """The gain whose upper end, as a share of the baseline's number, is the largest.

        In view of all comparisons: no method is better by more on any metric.
        """
        known = [gain for gain in self.gains if gain.most is not None]
        return max(known, key=lambda gain: gain.most or 0.0, default=None)


def judge(pairs: Sequence[Pair], ways: Ways, *, baseline: str) -> Verdict:
    """Apply the rule.

    Args:
        pairs: All differences that were looked at: Holm's correction is for all of them.
        ways: The metrics that decide, and which way is better.
        baseline: What the methods are compared with.

    Example:
        >>> base = [0.80, 0.81, 0.79, 0.805, 0.795]
        >>> pair = Paired(base, [value + 0.05 + 0.001 * i for i, value in enumerate(base)])
        >>> judge([Pair("modo", "accuracy", pair)], {"accuracy": "higher"}, baseline="static").use
        'modo'
        >>> judge([Pair("modo", "loss", pair)], {"loss": "lower"}, baseline="static").use
        'static'
    """
    found = Verdict(baseline, baseline, _gains(pairs, ways), len(pairs))
    winners = [method for method in found.methods if found.kind(method) == "wins"]
    best = max(winners, key=lambda method: _mean_share(found.of(method)), default=baseline)
    return replace(found, use=best)


def judge_runs(
    runs: Mapping[str, Sequence[StoredRun]], baseline: str | None = None
) -> tuple[Verdict, Verdict]:
    """Finished runs of one task by the rule, and their errors by the same.

    The correction is for all numbers of the runs, as in `trimol.runs.differences`.

    Args:
        runs: By label.
        baseline: What the others are compared with; by default static weighting, where it is
            among them, else the first.
    """
    first = baseline or usual_baseline(runs)
    pairs = [Pair(*each) for each in all_paired(runs, first)]
    lower: Ways = dict.fromkeys(JUDGED, "lower")
    return judge(pairs, ways_of(runs), baseline=first), judge(pairs, lower, baseline=first)


def ways_of(runs: Mapping[str, Sequence[StoredRun]]) -> dict[str, Better]:
    """What runs of one task are judged by: the goals' metrics, else the test losses."""
    first = next((run for own in runs.values() for run in own if run.finished), None)
    if first is None:
        return {}
    goals = (first.summary or {}).get("goals", {})
    named = flat_goals(goals)
    measured = {name.partition("/")[2] for name in first.record if name.startswith("metric/")}
    if named and set(named) <= measured:
        return named
    return dict.fromkeys(first.objectives, "lower")


def _gains(pairs: Sequence[Pair], ways: Ways) -> tuple[Gain, ...]:
    adjusted = p_values([pair.both for pair in pairs])
    level = 1 - (1 - LEVEL) / max(1, len(pairs))
    return tuple(
        _gain(pair, ways[pair.metric], p, level)
        for pair, p in zip(pairs, adjusted, strict=True)
        if pair.metric in ways
    )


def _gain(pair: Pair, way: Better, p: float | None, level: float) -> Gain:
    both = pair.both
    return Gain(
        method=pair.method,
        metric=pair.metric,
        way=way,
        base=fmean(both.base),
        mean=fmean(both.apart) * (1 if way == "higher" else -1),
        ci=both.ci,
        wide=interval(both.apart, level, resolution=both.step),
        n=len(both.apart),
        p=p,
        fixed=both.fixed,
    )


def _mean_share(gains: Sequence[Gain]) -> float:
    return fmean(gain.share for gain in gains)
