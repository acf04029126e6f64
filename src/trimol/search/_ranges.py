"""What may be tried of one setting: some values, a range, or weights that sum to one."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Literal

from trimol._checks import number_of_runs
from trimol._failures import BadValue

Scale = Literal["lin", "log", "int"]
_RANGE = re.compile(r"(lin|log|int):([^:]+?)\.\.([^:]+?)(?::([^:]+))?")
_DIGITS = 12  # of a grid's numbers: nobody would type 0.30000000000000004
_TYPED = 4  # digits of numbers that are proposed
_EDGE = 0.02  # of a range: as near to an end as this is at its edge


class Dimension(ABC):
    """What may be tried of one setting. Its text is what a user types."""

    @abstractmethod
    def size(self, objectives: int) -> int | None:
        """Return how many values there are, at most; None if they cannot be counted."""

    @abstractmethod
    def values(self, objectives: int) -> list[Any]:
        """Return all values of a dimension that has a size, in order."""

    def ends(self, objectives: int) -> list[Any]:
        """Return values by which to check whether all are valid."""
        return self.values(objectives)

    def is_edge(self, value: Any) -> bool:
        """Tell whether a number is at an end, so that better ones may lie beyond."""
        return False

    def suggest(self, trial: Any, name: str, objectives: Sequence[str]) -> Any:
        """Return what a trial of Optuna suggests. It knows no lists: these are named by text."""
        values = self.values(len(objectives))
        if len(values) == 1:
            return values[0]
        plain = (bool, int, float, str)
        named = {v if v is None or isinstance(v, plain) else str(v): v for v in values}
        return named[trial.suggest_categorical(name, list(named))]


@dataclass(frozen=True)
class Choice(Dimension):
    """One of some values.

    Example:
        >>> print(Choice((0.1, [0.5, 0.5])), Choice((0.1, 1.0, 10.0)).is_edge(1.0))
        0.1,[0.5,0.5] False
    """

    options: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise BadValue("must have values to choose from, found none")
        if len(set(map(write_value, self.options))) < len(self.options):
            raise BadValue(f"must be different values, found {str(self)!r}")

    def __str__(self) -> str:
        return ",".join(map(write_value, self.options))

    def size(self, objectives: int) -> int | None:
        """Return how many values there are."""
        return len(self.options)

    def values(self, objectives: int) -> list[Any]:
        """Return all values."""
        return list(self.options)

    def is_edge(self, value: Any) -> bool:
        """Tell whether a number is the least or the largest of several."""
        numbers = [v for v in self.options if type(v) in (int, float)]
        return len(numbers) == len(self.options) > 1 and value in (min(numbers), max(numbers))


@dataclass(frozen=True)
class Range(Dimension):
    """Numbers from ``low`` to ``high``, evenly (``lin``), by ratio (``log``), or whole (``int``).

    With ``points``, only so many of them, evenly spaced, both ends among them.

    Example:
        >>> Range(0.01, 1.0, "log", 3).values(2), Range(0.1, 10, "log").is_edge(0.1)
        ([0.01, 0.1, 1.0], True)
    """

    low: float
    high: float
    kind: Scale = "lin"
    points: int | None = None

    def __post_init__(self) -> None:
        ends = self.low, self.high
        if not all(map(math.isfinite, ends)) or not self.low < self.high:
            raise BadValue(f"must go from a number to a larger one, found {self}")
        if self.kind == "log" and self.low <= 0:
            raise BadValue(f"must begin above 0 to go by ratio, found {self}")
        if self.kind == "int" and any(end != int(end) for end in ends):
            raise BadValue(f"must have whole ends, found {self}")
        if self.points is not None and self.points < 2:
            raise BadValue(f"must have at least 2 points, found {self}")
        number_of_runs(str(self), self.points or 0)

    def __str__(self) -> str:
        points = "" if self.points is None else f":{self.points}"
        return f"{self.kind}:{write_value(self.low)}..{write_value(self.high)}{points}"

    def size(self, objectives: int) -> int | None:
        """Return how many points there are; None for real numbers."""
        if self.kind == "int" and not self.points:
            return int(self.high - self.low) + 1
        return self.points

    def values(self, objectives: int) -> list[Any]:
        """Return all points, in order."""
        number_of_runs(str(self), self.size(objectives) or 0)
        if self.points is None:
            return list(range(int(self.low), int(self.high) + 1))
        low, high = self._scaled(self.low), self._scaled(self.high)
        inside = [low + (high - low) * i / (self.points - 1) for i in range(1, self.points - 1)]
        back = [math.exp(v) if self.kind == "log" else v for v in inside]
        if self.kind == "int":
            return sorted({round(v) for v in (self.low, *back, self.high)})
        return [self.low, *(float(f"{v:.{_DIGITS}g}") for v in back), self.high]

    def ends(self, objectives: int) -> list[Any]:
        """Return the least and the largest number."""
        return [int(end) if self.kind == "int" else end for end in (self.low, self.high)]

    def is_edge(self, value: Any) -> bool:
        """Tell whether a number is at an end, or nearly."""
        low, high, at = map(self._scaled, (self.low, self.high, value))
        return min(at - low, high - at) <= _EDGE * (high - low)

    def suggest(self, trial: Any, name: str, objectives: Sequence[str]) -> Any:
        """Return what a trial of Optuna suggests, in as many digits as people type."""
        if self.points is not None:
            return super().suggest(trial, name, objectives)
        if self.kind == "int":
            return trial.suggest_int(name, int(self.low), int(self.high))
        drawn = trial.suggest_float(name, self.low, self.high, log=self.kind == "log")
        return min(max(float(f"{drawn:.{_TYPED}g}"), self.low), self.high)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.kind == "log" else value


@dataclass(frozen=True)
class Simplex(Dimension):
    """Weights of the objectives, above 0, that sum to one.

    With ``steps`` k, those that are multiples of 1/k, 0 among them.

    Example:
        >>> Simplex(2).values(2), Simplex(2).size(3)
        ([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]], 6)
    """

    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise BadValue(f"must have at least 1 step from corner to corner, found {self}")

    def __str__(self) -> str:
        return "simplex" if self.steps is None else f"simplex:{self.steps}"

    def size(self, objectives: int) -> int | None:
        """Return how many multiples there are; None for all weights."""
        return None if self.steps is None else math.comb(self.steps + objectives - 1, self.steps)

    def values(self, objectives: int) -> list[Any]:
        """Return all multiples, in order."""
        number_of_runs(str(self), self.size(objectives) or 0)
        return list(_lattice(self.steps or 1, objectives))

    def ends(self, objectives: int) -> list[Any]:
        """Return equal weights and, where 0 is among them, a corner."""
        corner = [1.0, *[0.0] * (objectives - 1)]
        return [[1 / objectives] * objectives, *([corner] if self.steps else [])]

    def suggest(self, trial: Any, name: str, objectives: Sequence[str]) -> Any:
        """Return what a trial of Optuna suggests, uniform on the simplex."""
        if self.steps is not None:
            return super().suggest(trial, name, objectives)
        # Exponential variables over their sum are uniform on the simplex.
        draws = [trial.suggest_float(f"{name}.{each}", 0.0, 1.0) for each in objectives]
        return share_out([-math.log(min(max(1 - draw, 1e-12), 1 - 1e-12)) for draw in draws])


def parse_dimension(text: str) -> Dimension | None:
    """Return the range or simplex that a text is; None for anything else, which may be a value.

    >>> parse_dimension("log:1e-3..10"), parse_dimension("simplex:4"), parse_dimension("0.1")
    (Range(low=0.001, high=10.0, kind='log', points=None), Simplex(steps=4), None)
    >>> parse_dimension("log:1e-3")
    Traceback (most recent call last):
    trimol._failures.BadValue: must be like log:1e-3..10, lin:0..1, int:1..8 or log:1e-3..10:5 \
(5 points), found 'log:1e-3'
    """
    word, _, rest = text.partition(":")
    if word == "simplex":
        return Simplex(_whole(rest, text) if rest else None)
    if word not in ("lin", "log", "int"):
        if re.fullmatch(r"[-+.\de]+\.\.[-+.\de]+(:\d+)?", text, re.IGNORECASE):
            raise BadValue(f"must be log:{text} (by ratio) or lin:{text} (evenly), found {text!r}")
        return None
    parts = _RANGE.fullmatch(text)
    if parts is None:
        raise BadValue(
            "must be like log:1e-3..10, lin:0..1, int:1..8 or log:1e-3..10:5 (5 points), found "
            f"{text!r}"
        )
    kind, low, high, points = parts.groups()
    try:
        ends = float(low), float(high)
    except ValueError:
        raise BadValue(f"must have numbers as ends, found {text!r}") from None
    return Range(*ends, kind, None if points is None else _whole(points, text))  # type: ignore[arg-type]


def make_dimension(given: Any) -> Dimension:
    """Make a dimension of one, its text, a list of values, or a single value.

    >>> make_dimension([0.1, 1]), make_dimension("linear")
    (Choice(options=(0.1, 1)), Choice(options=('linear',)))
    """
    if isinstance(given, Dimension):
        return given
    if isinstance(given, str):
        return parse_dimension(given) or Choice((given,))
    return Choice(tuple(given)) if isinstance(given, Sequence) else Choice((given,))


def share_out(sizes: Sequence[float]) -> list[float]:
    """Return shares of a whole, to four decimals and none of them 0, that sum to one.

    >>> share_out([1.0, 2.0, 1e-9])
    [0.3333, 0.6666, 0.0001]
    """
    shares = [max(1e-4, round(size / sum(sizes), 4)) for size in sizes]
    largest = shares.index(max(shares))
    shares[largest] = round(shares[largest] + 1 - sum(shares), 4)
    return shares


def write_value(value: Any) -> str:
    """Write a value as a user types it.

    >>> write_value(True), write_value(None), write_value(30.0), write_value([0.5, 0.5])
    ('true', 'none', '30', '[0.5,0.5]')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(write_value, value))}]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _lattice(steps: int, objectives: int) -> Iterator[list[float]]:
    """Yield the multiples of 1/k on the simplex: bars that part k stars."""
    places = steps + objectives - 1
    for bars in combinations(range(places), objectives - 1):
        edges = (-1, *bars, places)
        yield [(b - a - 1) / steps for a, b in pairwise(edges)]


def _whole(text: str, whole: str) -> int:
    if not text.isdecimal():
        raise BadValue(f"must end in a whole number of points, found {whole!r}")
    return int(text)
