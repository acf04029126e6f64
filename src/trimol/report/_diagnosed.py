"""A diagnosis as tables and lines, from what is on disk of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, FiniteFloat, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from trimol._words import count
from trimol.maths.fronts import nondominated
from trimol.report._numbers import interval, number
from trimol.report._summary import Table
from trimol.runs._storage import StoreError
from trimol.runs.config import one_line
from trimol.search._setting import Setting
from trimol.training.loop import Schedule

BETTER, WORSE = "▲", "▼"
MOST_SHOWN = 3  # metrics, two at a time
ARROWS = {"higher": "↑", "lower": "↓"}  # which way is better


class GainFacts(BaseModel):
    """One gain (`trimol.runs.verdict.Gain`) as stored."""

    method: str
    metric: str
    way: Literal["higher", "lower"]
    base: FiniteFloat
    mean: FiniteFloat
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


class SettingFacts(BaseModel):
    """A setting (`trimol.search.Setting`) as stored."""

    lr: FiniteFloat
    hyperparameters: dict[str, float | str | list[float] | None]
    schedule: Schedule | None

    def __str__(self) -> str:
        return Setting("", self.lr, self.hyperparameters, self.schedule).description


class ContenderFacts(BaseModel):
    """What was chosen of a contender, and what became of it."""

    setting: SettingFacts
    trials: int
    cost: float | None
    seeds: int
    kind: str


class TrialFacts(BaseModel):
    """A trial as stored."""

    metrics: Annotated[dict[str, Literal["higher", "lower"]], Field(min_length=1)]
    contenders: dict[str, ContenderFacts]
    gains: list[GainFacts]
    points: dict[str, list[dict[str, FiniteFloat]]]
    held_out: int
    notes: list[str]
    failed: list[str]

    @model_validator(mode="after")
    def _complete(self) -> "TrialFacts":
        every = [point for own in self.points.values() for point in own]
        if not all(set(self.metrics) <= set(point) for point in every):
            raise PydanticCustomError("points", "points must have every metric")
        return self


class BoundFacts(BaseModel):
    """A number with bounds, as far as known; of a pair of objectives where it is a cosine."""

    value: float | None
    low: float | None
    high: float | None
    pair: list[str] = []

    def __str__(self) -> str:
        return f"{number(self.value, 2)} ({number(self.low, 2)} to {number(self.high, 2)})"


class MomentFacts(BaseModel):
    """A moment of a look as stored."""

    name: str
    cosines: list[BoundFacts]
    norm_ratio: BoundFacts | None = None
    noise: dict[str, BoundFacts] = {}
    E_ca: BoundFacts | None = None


class LookFacts(BaseModel):
    """A look as stored."""

    reason: str
    warnings: list[str]
    moments: list[MomentFacts]


@dataclass(frozen=True)
class Bar:
    """A method's gain on a metric, as shares of the baseline's number: above 0 is better."""

    label: str
    metric: str
    mean: FiniteFloat
    low: float
    high: float


@dataclass(frozen=True)
class Cloud:
    """What the settings of a contender reach on two metrics, on validation data."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    best: tuple[bool, ...]  # whether no other of its settings is better on all metrics


@dataclass(frozen=True)
class Reached:
    """Two metrics, and the clouds of all contenders."""

    metrics: tuple[str, str]
    clouds: tuple[Cloud, ...]


class Diagnosed:
    """A diagnosis that was read, checked.

    Args:
        content: What `trimol.runs._diagnosis_file.read` gives.

    Raises:
        StoreError: It is not what `trimol.diagnose` writes.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.task, self.sentence, self.regime = (
            str(content[name]) for name in ("task", "sentence", "regime")
        )
        self.trial = facts(content)
        try:
            self.look = LookFacts.model_validate(content["evidence"].get("look"))
        except ValidationError as error:
            raise StoreError(f"the diagnosis is damaged: {one_line(error)}") from error

    @property
    def contenders(self) -> list[str]:
        """Their names, the baseline's first."""
        return list(self.trial.contenders) if self.trial else []

    @property
    def bars(self) -> list[Bar]:
        """The gains with their intervals; those that are no shares of anything are left out."""
        return [
            Bar(
                label=gain.method,
                metric=gain.metric,
                mean=gain.mean / abs(gain.base),
                low=(gain.mean - (gain.ci or 0.0)) / abs(gain.base),
                high=(gain.mean + (gain.ci or 0.0)) / abs(gain.base),
            )
            for gain in (self.trial.gains if self.trial else ())
            if gain.base
        ]

    @property
    def reached(self) -> list[Reached]:
        """The settings of all contenders on every two of the first three metrics."""
        if self.trial is None:
            return []
        points, ways = self.trial.points, self.trial.metrics
        kept = {name: nondominated(_lower(own, ways)) for name, own in points.items() if own}
        return [
            Reached(
                metrics=(across, up),
                clouds=tuple(
                    Cloud(
                        label=name,
                        x=tuple(point[across] for point in points[name]),
                        y=tuple(point[up] for point in points[name]),
                        best=tuple(map(bool, best)),
                    )
                    for name, best in kept.items()
                ),
            )
            for across, up in combinations(list(ways)[:MOST_SHOWN], 2)
        ]

    @property
    def moments(self) -> Table:
        """What was seen of the gradients: a row for each moment."""
        return Table(
            ("moment", "least cosine", "longest to shortest gradient", "most noise", "E_ca"),
            tuple(
                (
                    moment.name,
                    _least(moment.cosines),
                    number(None) if moment.norm_ratio is None else str(moment.norm_ratio),
                    _most(moment.noise),
                    number(None) if moment.E_ca is None else str(moment.E_ca),
                )
                for moment in self.look.moments
            ),
        )


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
    """Each method's difference from the baseline on test data; None where there are none."""
    found = facts(content)
    if found is None or not found.gains:
        return None
    base = next((name for name, own in found.contenders.items() if own.kind == "baseline"), "")
    rows = tuple(
        (gain.method, f"{gain.metric} {ARROWS[gain.way]}", number(gain.base), _difference(gain))
        for gain in found.gains
    )
    return Table(("method", "metric", base, "difference"), rows)


def chosen(content: Mapping[str, Any]) -> Table | None:
    """What was chosen of each method, and the cost of a step."""
    found = facts(content)
    if found is None:
        return None
    rows = tuple(
        (
            name,
            str(own.setting),
            str(own.trials),
            number(own.cost, 2),
        )
        for name, own in found.contenders.items()
    )
    return Table(("chosen on validation data", "setting", "trials", "cost"), rows)


def remarks(content: Mapping[str, Any]) -> list[str]:
    """What a reader has to know beside the tables, a line each."""
    return [*notes(content), *warned(content)]


def warned(content: Mapping[str, Any]) -> list[str]:
    """What the look at plain training warns of."""
    return [str(text) for text in content["evidence"].get("look", {}).get("warnings", [])]


def notes(content: Mapping[str, Any]) -> list[str]:
    """How to read the tables, and how the trial went."""
    found = facts(content)
    if found is None:
        return []
    lines = (
        []
        if not found.gains
        else [
            f"Differences from the baseline on test data; ↑ higher is better, ↓ lower is better. "
            f"{BETTER} is better and {WORSE} worse beyond noise; ± is the 95 % interval of each "
            "difference alone. A cost is that of a step, compared with the baseline's."
        ]
    )
    if found.held_out:
        lines.append(
            f"The task has no validation data: {count(found.held_out, 'sample')} of train served "
            "as such, in all runs."
        )
    told = _once(found.notes, found.contenders)
    return [*lines, *told, *(f"Diverged: {text}" for text in found.failed)]


def _once(said: Iterable[str], names: Collection[str]) -> list[str]:
    """What is said of several contenders alike, once of all of them.

    >>> _once(["modo: too few", "all in all", "mgda: too few"], ["modo", "mgda"])
    ['modo, mgda: too few', 'all in all']
    """
    found: dict[str, list[str]] = {}
    for line in said:
        name, _, text = line.partition(": ")
        if name in names:
            found.setdefault(text, []).append(name)
        else:
            found[line] = []
    return [f"{', '.join(own)}: {text}" if own else text for text, own in found.items()]


def _difference(gain: GainFacts) -> str:
    mark = f" {BETTER}" if gain.better else f" {WORSE}" if gain.worse else ""
    return f"{interval(gain.sign * gain.mean, gain.ci)}{mark}"


def _lower(points: Sequence[Mapping[str, float]], ways: Mapping[str, str]) -> list[list[float]]:
    """Points whose every number is the better the lower it is."""
    signs = {metric: -1 if way == "higher" else 1 for metric, way in ways.items()}
    return [[signs[metric] * point[metric] for metric in ways] for point in points]


def _least(cosines: Sequence[BoundFacts]) -> str:
    known = [(cosine.value, cosine) for cosine in cosines if cosine.value is not None]
    if not known:
        return number(None)
    _, least = min(known, key=lambda pair: pair[0])
    return f"{least}, {' and '.join(least.pair)}" if least.pair else str(least)


def _most(noise: Mapping[str, BoundFacts]) -> str:
    known = {name: bound.value for name, bound in noise.items() if bound.value is not None}
    if not known:
        return number(None)
    name = max(known, key=lambda objective: known[objective])
    return f"{noise[name]}, {name}"
