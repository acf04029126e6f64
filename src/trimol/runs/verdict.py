r"""Is a method better than the baseline? One rule, for `diagnose`, `compare` and every report.

Runs are judged by the metrics that the task names as its goals (`trimol.tasks.Task.goals`), else by
its test losses, seed by seed against the baseline (same start, same samples). A method is

- *better* on a metric if the difference is clear (`trimol.runs._significance`, for all
  comparisons together) and the gain is above `MARGIN` beyond noise: the lower end of its 95 %
  interval is, as a share of the baseline's number (or of `SMALLEST` of the metric's usual size,
  where the baseline has come that close to 0: 1e-12 is not worse than 1e-15);
- *worse* on a metric if the difference is clear, and a loss. It *may be worse* if the 95 % interval
  of this one difference, without a correction, lies on the bad side of 0.

A method *wins* if it is better on a metric and worse on none, nor may be, at every budget it was
run with. One that is better on some metrics and (perhaps) worse on others is a *trade*: it wins
only if the hypervolume that its settings reach is larger, too, beyond noise and by more than the
margin. In every other case the verdict is to stay with the baseline. With settings that do not
differ from it, a difference is named in one study in twenty at most; with fewer than five seeds
(more, where many numbers are compared) none is.
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
SMALLEST = 0.02  # of a metric's usual size: the least number that gains are relative to
HYPERVOLUME = "hypervolume"  # of all that a contender reaches, among the metrics
Budget = Literal["samples", "time"]
Kind = Literal["wins", "trades", "loses", "alike", "unknown"]
Ways = Mapping[str, Better]


@dataclass(frozen=True)
class Pair:
    """One number of a method and of the baseline, seed by seed.

    Attributes:
        method: The method.
        metric: What was measured.
        both: The baseline's numbers and the method's.
        budget: What both had the same of: ``"samples"`` or ``"time"``.
    """

    method: str
    metric: str
    both: Paired
    budget: Budget = "samples"


@dataclass(frozen=True)
class Gain:
    """How much better than the baseline a method is on one metric.

    Attributes:
        method: The method.
        metric: The metric.
        budget: What both had the same of.
        way: Which way is better.
        base: The baseline's mean.
        scale: What gains are relative to: the size of ``base``, where that is not next to 0.
        mean: The mean gain over seeds: above 0 is better, whichever way the metric goes.
        ci: Half of its own 95 % interval; None for a single seed.
        wide: Half of an interval that holds for all comparisons together (Bonferroni).
        n: The seeds that both finished.
        p: Holm's p value, for all comparisons.
        fixed: Whether all seeds gave the same numbers.
    """

    method: str
    metric: str
    budget: Budget
    way: Better
    base: float
    scale: float
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
        return self.clear and self.mean < 0 and self.share < -self.negligible

    @property
    def may_be_worse(self) -> bool:
        """Whether it is a loss beyond the noise of this difference alone."""
        alone = self.ci is not None and self.mean + self.ci < 0
        return self.worse or (alone and self.share < -self.negligible)

    @property
    def negligible(self) -> float:
        """What harm is none: less than the least that could be a gain anywhere."""
        return 0.0 if self.scale == abs(self.base) else MARGIN

    def _share(self, value: float) -> float:
        if value == 0:
            return 0.0
        return value / self.scale if self.scale else math.copysign(math.inf, value)


@dataclass(frozen=True)
class Verdict:
    """What the rule says.

    Attributes:
        baseline: What the methods are compared with.
        use: The baseline's or a method's name.
        gains: Every method's gain on every metric that is judged by.
        reached: Every method's gain in hypervolume, where that was measured.
        comparisons: How many differences were looked at in all.
    """

    baseline: str
    use: str
    gains: tuple[Gain, ...]
    reached: tuple[Gain, ...] = ()
    comparisons: int = 0

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that were compared with the baseline."""
        return tuple(dict.fromkeys(gain.method for gain in self.gains))

    def of(self, method: str, budget: Budget | None = None) -> list[Gain]:
        """The gains of a method, at one budget or at all."""
        return [g for g in self.gains if g.method == method and budget in (None, g.budget)]

    def kind(self, method: str, budget: Budget | None = None) -> Kind:
        """What a method is beside the baseline, at one budget or over all."""
        own = self.of(method, budget)
        budgets = {gain.budget for gain in own}
        if budget is None and len(budgets) > 1:
            return _over_budgets([self.kind(method, each) for each in sorted(budgets)])
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

        At equal samples, in view of all comparisons: no method is better by more on any metric.
        """
        known = [g for g in self.gains if g.most is not None and g.budget == "samples"]
        return max(known, key=lambda gain: gain.most or 0.0, default=None)


def judge(
    pairs: Sequence[Pair],
    ways: Ways,
    *,
    baseline: str,
    sizes: Mapping[str, float] | None = None,
    reached: Sequence[Pair] = (),
) -> Verdict:
    """Apply the rule.

    Args:
        pairs: All differences that were looked at: Holm's correction is for all of them.
        ways: The metrics that decide, and which way is better.
        baseline: What the methods are compared with.
        sizes: The usual sizes of the metrics, where they are known.
        reached: The hypervolumes, with a correction of their own: they decide on trades only.

    Example:
        >>> base = [0.80, 0.81, 0.79, 0.805, 0.795]
        >>> pair = Paired(base, [value + 0.05 + 0.001 * i for i, value in enumerate(base)])
        >>> judge([Pair("modo", "accuracy", pair)], {"accuracy": "higher"}, baseline="static").use
        'modo'
        >>> judge([Pair("modo", "loss", pair)], {"loss": "lower"}, baseline="static").use
        'static'
    """
    found = Verdict(
        baseline,
        baseline,
        _gains(pairs, ways, sizes or {}),
        _gains(reached, {HYPERVOLUME: "higher"}, {HYPERVOLUME: 1.0}),
        len(pairs),
    )
    winners = [method for method in found.methods if _wins(found, method)]
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


def _over_budgets(kinds: Sequence[Kind]) -> Kind:
    """A method is as good as at the budget that suits it least."""
    order: tuple[Kind, ...] = ("loses", "alike", "unknown", "trades", "wins")
    return min(kinds, key=order.index)


def _wins(found: Verdict, method: str) -> bool:
    kind = found.kind(method)
    return kind == "wins" or (
        kind == "trades" and any(g.better for g in found.reached if g.method == method)
    )


def _gains(pairs: Sequence[Pair], ways: Ways, sizes: Mapping[str, float]) -> tuple[Gain, ...]:
    adjusted = p_values([pair.both for pair in pairs])
    level = 1 - (1 - LEVEL) / max(1, len(pairs))
    return tuple(
        _gain(pair, ways[pair.metric], sizes.get(pair.metric, 0.0), p, level)
        for pair, p in zip(pairs, adjusted, strict=True)
        if pair.metric in ways
    )


def _gain(pair: Pair, way: Better, size: float, p: float | None, level: float) -> Gain:
    both = pair.both
    base = fmean(both.base)
    return Gain(
        method=pair.method,
        metric=pair.metric,
        budget=pair.budget,
        way=way,
        base=base,
        scale=max(abs(base), SMALLEST * size),
        mean=fmean(both.apart) * (1 if way == "higher" else -1),
        ci=both.ci,
        wide=interval(both.apart, level, resolution=both.step),
        n=len(both.apart),
        p=p,
        fixed=both.fixed,
    )


def _mean_share(gains: Sequence[Gain]) -> float:
    return fmean(gain.share for gain in gains)
