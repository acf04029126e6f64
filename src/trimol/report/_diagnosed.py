"""A diagnosis as tables and lines, from what is on disk of it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from trimol.report._numbers import count, interval, listed, number
from trimol.report._summary import Table
from trimol.runs._sentences import setting
from trimol.runs._storage import StoreError
from trimol.runs.config import one_line
from trimol.runs.tuning import Candidate

BETTER, WORSE = "▲", "▼"
ARROWS = {"higher": "↑", "lower": "↓"}  # which way is better


class GainFacts(BaseModel):
    """One gain (`trimol.runs.verdict.Gain`) as stored."""

    method: str
    metric: str
    budget: Literal["samples", "time"]
    way: Literal["higher", "lower"]
    base: float
    mean: float
    ci: float | None
    wide: float | None
    n: int
    p: float | None
    share: float | None
    better: bool
    worse: bool

    @property
    def sign(self) -> int:
        """What makes a difference of a gain."""
        return 1 if self.way == "higher" else -1


class ContenderFacts(BaseModel):
    """What was chosen of a contender, and what became of it."""

    setting: dict[str, Any]
    trials: int
    cost: float
    steps_at_equal_time: int
    seeds: int
    kind: str


class Reach(BaseModel):
    """A hypervolume with its interval."""

    value: float
    low: float | None
    high: float | None


class TrialFacts(BaseModel):
    """A trial as stored."""

    metrics: dict[str, Literal["higher", "lower"]]
    contenders: dict[str, ContenderFacts]
    gains: list[GainFacts]
    hypervolume: dict[str, Reach]
    reference: dict[str, float]
    points: dict[str, list[dict[str, float]]]
    held_out: int
    notes: list[str]
    failed: list[str]


def facts(content: Mapping[str, Any]) -> TrialFacts | None:
    """The trial of a diagnosis; None where there was only a look.

    Raises:
        StoreError: It is not what `trimol.diagnose` writes.
    """
    found = content["evidence"].get("trial")
    if found is None:
        return None
    try:
        return TrialFacts.model_validate(found)
    except ValidationError as error:
        raise StoreError(f"the diagnosis is damaged: {one_line(error)}") from error


def gains(content: Mapping[str, Any]) -> Table | None:
    """Each method's difference from the baseline on test data, at equal samples and equal time."""
    found = facts(content)
    if found is None:
        return None
    base = next((name for name, own in found.contenders.items() if own.kind == "baseline"), "")
    cells = {(gain.method, gain.metric, gain.budget): gain for gain in found.gains}
    rows = tuple(
        (
            method,
            f"{metric} {ARROWS[way]}",
            number(next(g.base for g in found.gains if g.metric == metric)),
            *(_difference(cells.get((method, metric, budget))) for budget in ("samples", "time")),
        )
        for method in dict.fromkeys(gain.method for gain in found.gains)
        for metric, way in found.metrics.items()
        if any(gain.metric == metric for gain in found.gains)
    )
    return Table(("method", "metric", base, "at equal samples", "at equal time"), rows)


def chosen(content: Mapping[str, Any]) -> Table | None:
    """What was chosen of each contender, the cost of a step, and the hypervolume it reaches."""
    found = facts(content)
    if found is None:
        return None
    rows = tuple(
        (
            name,
            setting(Candidate(**own.setting)),
            str(own.trials),
            number(own.cost, 2),
            _reach(found.hypervolume.get(name)),
        )
        for name, own in found.contenders.items()
    )
    return Table(("chosen on validation data", "setting", "trials", "cost", "hypervolume"), rows)


def remarks(content: Mapping[str, Any]) -> list[str]:
    """What a reader has to know beside the tables, a line each."""
    found = facts(content)
    warned = [str(text) for text in content["evidence"].get("look", {}).get("warnings", [])]
    if found is None:
        return warned
    lines = [
        f"Differences from the baseline on test data; ↑ higher is better, ↓ lower is better. "
        f"{BETTER} is better and {WORSE} worse beyond noise; ± is the 95 % interval of each "
        "difference alone. A cost is that of a step beside the baseline's. Where a step costs the "
        "same, equal time is equal samples."
    ]
    if found.hypervolume:
        corner = listed([f"{name} {number(value)}" for name, value in found.reference.items()])
        lines.append(f"The hypervolume counts from the reference point {corner}, the medians.")
    if found.held_out:
        lines.append(
            f"The task has no validation data: {count(found.held_out, 'sample')} of train served "
            "as such, in all runs."
        )
    return [*lines, *found.notes, *(f"Diverged: {text}" for text in found.failed), *warned]


def _difference(gain: GainFacts | None) -> str:
    if gain is None:
        return number(None)
    mark = f" {BETTER}" if gain.better else f" {WORSE}" if gain.worse else ""
    return f"{interval(gain.sign * gain.mean, gain.ci)}{mark}"


def _reach(reach: Reach | None) -> str:
    if reach is None:
        return number(None)
    if reach.low is None or reach.high is None:
        return number(reach.value)
    return f"{number(reach.value)} ({number(reach.low)} to {number(reach.high)})"
