"""What many steps did: looks counted, their shares, and these in one line."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trimol.training._looks import StepLook
from trimol.training.records import Record


@dataclass(frozen=True)
class StepSummary:
    """What the steps that were looked at did, to first order. Shares are from 0 to 1.

    Attributes:
        looked: The steps that were looked at, those with an effect that is not finite left out.
        some: The share that raised at least one loss; NaN if no step was looked at.
        all: The share that raised every loss.
        by_objective: The share that raised each.
        worst_cosine: The least cosine of a step with −∇f_m, over steps and objectives: negative if
            a step raised a loss. None if it is not known.
        not_finite: The steps that were looked at and had an effect that is NaN or infinite.
        undecided: The share of which a subsample could not tell whether they raised some loss.
        full: The same on the training data; None without ``train``.

    Example:
        >>> print(StepSummary(15, 0.84, 0.03, {"pde": 0.8, "initial": 0.1}, worst_cosine=-0.31))
        of 15 steps looked at, 84 % raised some loss (3 % all): most often 'pde'; worst cosine -0.31
    """

    looked: int
    some: float
    all: float
    by_objective: dict[str, float]
    worst_cosine: float | None
    not_finite: int = 0
    undecided: float = 0.0
    full: "StepSummary | None" = None

    @property
    def record(self) -> Record:
        """The keys that a record has of it (:mod:`trimol.training.records`)."""
        own = self._keys("steps")
        return own if self.full is None else own | self.full._keys("full")

    def _keys(self, kind: str) -> Record:
        record: Record = {}
        if self.looked:
            record |= {f"{kind}_looked": self.looked}
            record |= {f"{kind}_raise_some": self.some, f"{kind}_raise_all": self.all}
            record |= {f"{kind}_raise/{name}": share for name, share in self.by_objective.items()}
        if self.worst_cosine is not None:
            record[f"{kind}_worst_cosine"] = self.worst_cosine
        if self.undecided:
            record[f"{kind}_undecided"] = self.undecided
        if self.not_finite:
            record[f"{kind}_not_finite"] = self.not_finite
        return record

    def __str__(self) -> str:
        parts = ["no step looked at"]
        if self.looked:
            parts = [f"of {_steps(self.looked)} looked at, {self._said()}"]
        if self.not_finite:
            parts.append(f"{_steps(self.not_finite)} with effects that are not finite left out")
        if self.full is not None and self.full.looked:
            parts.append(f"on the training data, of {_steps(self.full.looked)} {self.full._said()}")
        return "; ".join(parts)

    def _said(self) -> str:
        """What they did, without how many they are."""
        text = "none raised a loss"
        if self.some:
            most = max(self.by_objective, key=lambda name: self.by_objective[name])
            text = f"{percent(self.some)} raised some loss ({percent(self.all)} all)"
            text += f": most often {most!r}" if len(self.by_objective) > 1 else ""
        if self.undecided:
            text += f", {percent(self.undecided)} undecided"
        return (
            text if self.worst_cosine is None else f"{text}; worst cosine {self.worst_cosine:.2g}"
        )


def from_record(record: Mapping[str, float]) -> StepSummary:
    """What a record says of the steps that were looked at; NaN where it says nothing.

    >>> summary = StepSummary(4, 0.5, 0.0, {"a": 0.5, "b": 0.0}, worst_cosine=-0.1)
    >>> from_record(summary.record) == summary
    True
    """
    full = _of_kind(record, "full") if "full_looked" in record else None
    return replace(_of_kind(record, "steps"), full=full)


def _of_kind(record: Mapping[str, float], kind: str) -> StepSummary:
    each = f"{kind}_raise/"
    return StepSummary(
        looked=int(record.get(f"{kind}_looked", 0)),
        some=record.get(f"{kind}_raise_some", math.nan),
        all=record.get(f"{kind}_raise_all", math.nan),
        by_objective={k.removeprefix(each): v for k, v in record.items() if k.startswith(each)},
        worst_cosine=record.get(f"{kind}_worst_cosine"),
        not_finite=int(record.get(f"{kind}_not_finite", 0)),
        undecided=record.get(f"{kind}_undecided", 0.0),
    )


@dataclass
class Tally:
    """Counts of looks, by objective in their order."""

    looked: int = 0
    some: int = 0
    all: int = 0
    each: list[int] = field(default_factory=list)
    worst: float | None = None
    not_finite: int = 0
    undecided: int = 0

    @property
    def looks(self) -> int:
        """How many there were, whatever came of them."""
        return self.looked + self.not_finite

    def add(self, look: StepLook) -> None:
        """Count one more."""
        names = list(look.effects)
        self.each = self.each or [0] * len(names)
        if not look.finite:
            self.not_finite += 1
            return
        self.looked += 1
        self.some += bool(look.raised)
        self.all += len(look.raised) == len(names)
        self.undecided += bool(look.undecided and not look.raised)
        self.each = [n + (name in look.raised) for n, name in zip(self.each, names, strict=True)]
        known = [c for c in (self.worst, look.worst_cosine) if c is not None]
        self.worst = min(known, default=None)

    def summary(self, names: Sequence[str], full: "Tally | None" = None) -> StepSummary:
        """The shares."""
        count = self.looked or math.nan
        each = zip(names, self.each or [0] * len(names), strict=True)
        return StepSummary(
            looked=self.looked,
            some=self.some / count,
            all=self.all / count,
            by_objective={name: n / count for name, n in each},
            worst_cosine=self.worst,
            not_finite=self.not_finite,
            undecided=self.undecided / self.looked if self.looked else 0.0,
            full=None if full is None else full.summary(names),
        )

    def state(self) -> dict[str, Any]:
        """Numbers only."""
        return asdict(self)


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def percent(share: float) -> str:
    """A share in percent; what is not 0 does not look like it.

    >>> percent(0.84), percent(0.001), percent(0.999)
    ('84 %', '0.1 %', '99.9 %')
    """
    hundred = 100 * share
    near = 0 < hundred < 1 or 99 < hundred < 100
    return f"{hundred:.1f} %" if near else f"{hundred:.0f} %"
