"""What a comparison found: which numbers are best beyond noise, and the differences in words."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from trimol.report._numbers import interval
from trimol.report._runs import weights_told
from trimol.runs._sentences import compared as said
from trimol.runs._significance import too_few
from trimol.runs.comparison import (
    DEFINITION,
    JUDGED,
    SIZE,
    STEPS,
    UNBIASED,
    Comparison,
    Difference,
    differences,
    summarise,
    usual_baseline,
)
from trimol.runs.store import StoredRun
from trimol.runs.study import Row
from trimol.runs.verdict import judge_runs, ways_of
from trimol.tasks.task import Better

# One number of all seeds: they have no spread, and are for machines (--json).
OVER_SEEDS = (DEFINITION, UNBIASED)


def rows_of_seeds(rows: Sequence[Row]) -> list[Row]:
    """The rows of the table: means over seeds; what the steps did has a table of its own."""
    return [row for row in rows if row["metric"] not in (*OVER_SEEDS, *STEPS, SIZE)]


def best(compared: Comparison) -> set[tuple[str, str]]:
    """Method and metric of every number that is better than all others' by more than the noise.

    Losses, errors and the metrics that the task's goals name are looked at. Noise is judged by the
    paired differences from the candidate, with Holm's adjustment for all of them. An error is not
    marked where another method is better on what the runs are judged by: a model that has learnt
    nothing generalizes perfectly.
    """
    rows = rows_of_seeds(summarise(compared))
    marked = set()
    for metric, way in _ways(compared).items():
        means = {row["method"]: row["mean"] for row in rows if row["metric"] == metric}
        pick = max if way == "higher" else min
        lead = pick(means, key=lambda method: means[method], default=None)
        if lead is not None and len(means) > 1 and _beats_all(compared, lead, metric, way):
            marked.add((lead, metric))
    return marked


def verdict(compared: Comparison) -> list[str]:
    """What the rule of `trimol.runs.verdict` says, as the headline of a report does."""
    finished = _finished(compared)
    return said(*judge_runs(finished)) if len(finished) > 1 else []


def about_weights(compared: Comparison) -> list[str]:
    """Which methods were static weighting in effect, or weighed one objective alone."""
    return weights_told(compared.runs)


def _finished(compared: Comparison) -> dict[str, list[StoredRun]]:
    """The methods that have a run that came to its end."""
    return {label: runs for label, runs in compared.runs.items() if runs}


def _ways(compared: Comparison) -> dict[str, Better]:
    """The numbers of which it is known which way is better."""
    lower: dict[str, Better] = dict.fromkeys([*objectives(compared), *JUDGED], "lower")
    return {**lower, **ways_of(compared.runs)}


def objectives(compared: Comparison) -> tuple[str, ...]:
    """The names of the objectives."""
    return next(run.objectives for runs in compared.runs.values() for run in runs)


def sentences(compared: Comparison) -> list[str]:
    """A line for every method but the baseline: what differs from it by more than the noise.

    The differences are those of the verdict; where that has told all there is to say, none.
    """
    looked = differences(compared)
    if looked and (
        all(difference.fixed for difference in looked)
        or too_few(max(difference.n for difference in looked), len(looked))
    ):
        return []
    first = usual_baseline(compared.runs)
    return [
        _sentence(method, first, [d for d in looked if d.method == method])
        for method in compared.runs
        if method != first
    ]


def weights(compared: Comparison) -> list[tuple[str, list[float], list[float]]]:
    """Every method with the means over seeds of λ at the end, and of λ*, which avoids conflict."""
    return [
        (method, _means(runs, "weight"), _means(runs, "avoiding"))
        for method, runs in compared.runs.items()
        if runs
    ]


def failures(compared: Comparison) -> list[str]:
    """A line for every run that diverged."""
    return [
        f"{compared.label(config)}, seed {config.seed}: {said}" for config, said in compared.failed
    ]


def _means(runs: Sequence[StoredRun], kind: str) -> list[float]:
    names = [f"{kind}/{objective}" for objective in runs[0].objectives]
    return [fmean(run.record[name] for run in runs) for name in names]


def _beats_all(compared: Comparison, method: str, metric: str, way: Better) -> bool:
    others = {name: runs for name, runs in compared.runs.items() if name != method and runs}
    turned = replace(compared, runs={method: compared.runs[method], **others})
    looked = [d for d in differences(turned, method) if d.metric == metric]
    sign = -1 if way == "higher" else 1
    clear = len(looked) == len(others) and all(d.clear and sign * d.mean > 0 for d in looked)
    return clear and not (metric in JUDGED and _beaten(turned))


def _beaten(turned: Comparison) -> bool:
    """Whether a method is better than the first on what runs are judged by, beyond noise."""
    judged, _ = judge_runs(turned.runs, baseline=next(iter(turned.runs)))
    return any(gain.clear and gain.mean > 0 for gain in judged.gains)


def _sentence(method: str, first: str, looked: Sequence[Difference]) -> str:
    clear = [d for d in looked if d.clear]
    if not looked:
        return f"{method} − {first}: no seed that both finished"
    said = "; ".join(_difference(d) for d in clear) or "no difference larger than noise"
    return f"{method} − {first}: {said}"


def _difference(d: Difference) -> str:
    return f"{d.metric} {interval(d.mean, d.ci)} ({'lower' if d.mean < 0 else 'higher'})"
