"""What a comparison found: which numbers are best beyond noise, and the differences in words."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from trimol.report._numbers import interval
from trimol.runs.comparison import (
    DEFINITION,
    ERRORS,
    STEPS,
    UNBIASED,
    Comparison,
    Difference,
    differences,
    summarise,
)
from trimol.runs.store import StoredRun
from trimol.runs.study import Row

# One number of all seeds: they have no spread, and are said under the table.
OVER_SEEDS = (DEFINITION, UNBIASED)


def rows_of_seeds(rows: Sequence[Row]) -> list[Row]:
    """The rows that are means over seeds; what the steps did has a table of its own."""
    return [row for row in rows if row["metric"] not in (*OVER_SEEDS, *STEPS)]


def best(compared: Comparison) -> set[tuple[str, str]]:
    """Method and metric of every number that is below all others' by more than the noise.

    Only losses and errors are looked at: of those, lower is better. Noise is judged by the paired
    differences from the candidate, with Holm's adjustment for all of them.
    """
    rows = rows_of_seeds(summarise(compared))
    marked = set()
    for metric in lower_is_better(compared):
        means = {row["method"]: row["mean"] for row in rows if row["metric"] == metric}
        lowest = min(means, key=lambda method: means[method], default=None)
        if lowest is not None and len(means) > 1 and _beats_all(compared, lowest, metric):
            marked.add((lowest, metric))
    return marked


def lower_is_better(compared: Comparison) -> list[str]:
    """The losses and the errors; nobody says of a task's metrics which way is better."""
    return [*objectives(compared), *ERRORS]


def objectives(compared: Comparison) -> tuple[str, ...]:
    """The names of the objectives."""
    return next(run.objectives for runs in compared.runs.values() for run in runs)


def sentences(compared: Comparison) -> list[str]:
    """A line for every method but the first: what differs from the first by more than the noise."""
    looked = differences(compared)
    first, *others = compared.runs
    return [
        _sentence(method, first, [d for d in looked if d.method == method]) for method in others
    ]


def readings(rows: Sequence[Row]) -> list[tuple[str, float, float, float]]:
    """Method, mean of the squares, definition and unbiased E_ca, where several seeds were run.

    See `trimol.runs.summarise` for what they are.
    """
    values = {(row["method"], row["metric"]): row["mean"] for row in rows}
    return [
        (method, values[method, "E_ca"], value, values[method, UNBIASED])
        for (method, metric), value in values.items()
        if metric == DEFINITION and (method, "E_ca") in values
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


def _beats_all(compared: Comparison, method: str, metric: str) -> bool:
    others = {name: runs for name, runs in compared.runs.items() if name != method and runs}
    turned = replace(compared, runs={method: compared.runs[method], **others})
    looked = [d for d in differences(turned) if d.metric == metric]
    return len(looked) == len(others) and all(d.clear and d.mean > 0 for d in looked)


def _sentence(method: str, first: str, looked: Sequence[Difference]) -> str:
    clear = [d for d in looked if d.clear]
    if not looked:
        return f"{method} − {first}: no seed that both finished"
    if looked[0].ci is None:
        return f"{method} − {first}: one seed cannot say"
    said = "; ".join(_difference(d) for d in clear) or "no difference larger than noise"
    return f"{method} − {first}: {said}"


def _difference(d: Difference) -> str:
    return f"{d.metric} {interval(d.mean, d.ci)} ({'lower' if d.mean < 0 else 'higher'})"
