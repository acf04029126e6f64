"""What the steps did to the losses (`trimol.StepWatch`), as a table of methods."""

from collections.abc import Mapping, Sequence

from trimol.report._numbers import interval, number
from trimol.report._runs import last
from trimol.report._summary import Table
from trimol.runs.statistics import finite_mean
from trimol.runs.store import StoredRun

TITLE = "What the steps did"
NOTE = (
    "Of the steps that were looked at, the share that raised some loss of their batch, or all, to "
    "first order: mean over seeds ± half the width of its 95 % interval. Worst cosine: the least "
    "of a step with the steepest descent of a loss, over all steps; below 0 the loss rises. Some, "
    "all data: the share that raised some loss of all training data, where that was looked at."
)
COLUMNS = ("seen", "raised some", "raised all", "most often", "worst cosine")
FULL = "some, all data"
_EACH = "steps_raise/"


def step_effects(groups: Mapping[str, Sequence[StoredRun]]) -> Table | None:
    """A row for every group of runs, by its label; None if no step of any was looked at."""
    full = any(last(runs, "full_looked") for runs in groups.values())
    rows = tuple((label, *_cells(runs, full=full)) for label, runs in groups.items())
    looked = any(last(runs, "steps_looked") for runs in groups.values())
    return Table(("method", *COLUMNS, *([FULL] if full else [])), rows) if looked else None


def _cells(runs: Sequence[StoredRun], *, full: bool) -> list[str]:
    looked, worst = last(runs, "steps_looked"), last(runs, "steps_worst_cosine")
    return [
        number(sum(looked)) if looked else number(None),
        _percent(last(runs, "steps_raise_some")),
        _percent(last(runs, "steps_raise_all")),
        _most_often(runs),
        number(min(worst, default=None), digits=2),
        *([_percent(last(runs, "full_raise_some"))] if full else []),
    ]


def _percent(shares: Sequence[float]) -> str:
    """The mean of some shares.

    >>> _percent([0.25, 0.75]), _percent([0.84]), _percent([])
    ('50 ± 318 %', '84 %', '–')
    """
    if not shares:
        return number(None)
    mean = finite_mean(100 * share for share in shares)
    return f"{interval(mean.estimate, mean.half)} %"


def _most_often(runs: Sequence[StoredRun]) -> str:
    """The loss that most steps raised; a dash if none did."""
    names = dict.fromkeys(n for run in runs for n in run.metrics.columns if n.startswith(_EACH))
    shares = {name.removeprefix(_EACH): sum(last(runs, name)) for name in names}
    most = max(shares, key=lambda name: shares[name], default="")
    return most if shares.get(most) else number(None)
