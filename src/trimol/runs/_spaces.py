"""What a search may try of one setting: some values, a range, or weights that sum to one."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any, Literal

from trimol._checks import number_of_runs
from trimol._failures import BadValue

# How the columns of the table of trials begin.
SETTING, GOAL = "setting/", "goal/"
Kind = Literal["lin", "log", "int"]
Point = dict[str, Any]
_RANGE = re.compile(r"(lin|log|int):([^:]+?)\.\.([^:]+?)(?::([^:]+))?")
_DIGITS = 12  # of a grid's numbers: 0.30000000000000004 is nothing that anybody would type


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise BadValue("must have values to choose from, found none")
        texts = list(map(typed, self.values))
        if len(set(texts)) < len(texts):
            raise BadValue(f"must be different values, found {text(self)!r}")


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, evenly (``lin``), by ratio (``log``), or whole (``int``).

    With ``points``, only so many of them, evenly spaced, both ends among them.
    """

    low: float
    high: float
    kind: Kind = "lin"
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
        return f"{self.kind}:{typed(self.low)}..{typed(self.high)}{points}"


@dataclass(frozen=True)
class Simplex:
    """Weights of the objectives, above 0, that sum to one.

    With ``steps`` k, those that are multiples of 1/k, 0 among them.
    """

    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise BadValue(
                f"must have at least 1 step from corner to corner, found simplex:{self.steps}"
            )


Space = Choice | Range | Simplex
Spaces = Mapping[str, Space]


def parse(text: str) -> Space | None:
    """The range or simplex that a text is; None for anything else, which may be a value.

    >>> parse("log:1e-3..10"), parse("simplex:4"), parse("0.1")
    (Range(low=0.001, high=10.0, kind='log', points=None), Simplex(steps=4), None)
    >>> parse("log:1e-3")
    Traceback (most recent call last):
    trimol._failures.BadValue: must be like log:1e-3..10, lin:0..1, int:1..8 or log:1e-3..10:5 \
(5 points), found 'log:1e-3'
    """
    word, _, rest = text.partition(":")
    if word == "simplex":
        return Simplex(None if rest == text or not rest else _whole(rest, text))
    if word not in ("lin", "log", "int"):
        if re.fullmatch(r"[-+.\de]+\.\.[-+.\de]+(:\d+)?", text, re.IGNORECASE):
            raise BadValue(f"must be log:{text} (by ratio) or lin:{text} (evenly), found {text!r}")
        return None
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BadValue(
            "must be like log:1e-3..10, lin:0..1, int:1..8 or log:1e-3..10:5 (5 points), found "
            f"{text!r}"
        )
    kind, low, high, points = found.groups()
    ends = _number(low, text), _number(high, text)
    return Range(*ends, kind, None if points is None else _whole(points, text))  # type: ignore[arg-type]


def space(given: Any) -> Space:
    """A space from what a user of the library gives: one, its text, a list of values, or a value.

    >>> space([0.1, 1]), space("linear")
    (Choice(values=(0.1, 1)), Choice(values=('linear',)))
    """
    if isinstance(given, Choice | Range | Simplex):
        return given
    if isinstance(given, str):
        return parse(given) or Choice((given,))
    return Choice(tuple(given)) if isinstance(given, Sequence) else Choice((given,))


def size(own: Space, objectives: int) -> int | None:
    """How many values a space has, at most; None if they cannot be counted.

    >>> size(Range(1, 10**12, "int"), 2), size(Simplex(2), 3), size(Range(0, 1), 2)
    (1000000000000, 6, None)
    """
    if isinstance(own, Choice):
        return len(own.values)
    if isinstance(own, Simplex):
        return None if own.steps is None else math.comb(own.steps + objectives - 1, own.steps)
    return int(own.high - own.low) + 1 if own.kind == "int" and not own.points else own.points


def values(own: Space, objectives: int) -> list[Any]:
    """All values of a space that has a `size`, in their order.

    >>> values(Range(0.01, 1.0, "log", 3), 2), values(Simplex(2), 2)
    ([0.01, 0.1, 1.0], [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    """
    number_of_runs(text(own), size(own, objectives) or 0)
    if isinstance(own, Choice):
        return list(own.values)
    if isinstance(own, Simplex):
        return list(_lattice(own.steps or 1, objectives))
    return _spaced(own) if own.points else list(range(int(own.low), int(own.high) + 1))


def grid(spaces: Spaces, objectives: int) -> list[Point]:
    """All points of a grid, the last setting changing fastest."""
    sizes = {name: size(own, objectives) for name, own in spaces.items()}
    for name, found in sizes.items():
        if found is None:
            hint = "simplex:4" if isinstance(spaces[name], Simplex) else f"{spaces[name]}:5"
            raise BadValue(f"{name} must have a number of points for a grid, such as {hint}")
    number_of_runs(f"the grid of {', '.join(spaces)}", math.prod(filter(None, sizes.values())))
    each = {name: values(own, objectives) for name, own in spaces.items()}
    return [dict(zip(each, point, strict=True)) for point in product(*each.values())]


def ends(own: Space, objectives: int) -> list[Any]:
    """Values by which it can be checked whether all of a space will do."""
    if isinstance(own, Choice):
        return list(own.values)
    if isinstance(own, Range):
        whole = own.kind == "int"
        return [int(end) if whole else end for end in (own.low, own.high)]
    corner = [1.0, *[0.0] * (objectives - 1)]
    return [[1 / objectives] * objectives, *([corner] if own.steps else [])]


def at_edge(value: Any, own: Space) -> bool:
    """Whether a number is at an end of what was to be tried: better ones may lie beyond.

    >>> at_edge(0.1, Range(0.1, 10, "log")), at_edge(1.0, Choice((0.1, 1.0, 10.0)))
    (True, False)
    """
    if isinstance(own, Choice):
        numbers = [v for v in own.values if isinstance(v, int | float) and not isinstance(v, bool)]
        return len(numbers) == len(own.values) > 1 and value in (min(numbers), max(numbers))
    if not isinstance(own, Range):
        return False
    low, high, at = (math.log(v) if own.kind == "log" else v for v in (own.low, own.high, value))
    return min(at - low, high - at) <= 0.02 * (high - low)


def suggest(trial: Any, name: str, own: Space, objectives: Sequence[str]) -> Any:
    """A value that a trial of Optuna suggests."""
    if isinstance(own, Choice) or (own.points if isinstance(own, Range) else own.steps):
        listed = values(own, len(objectives))
        if len(listed) == 1:
            return listed[0]
        named = {_plain(value): value for value in listed}
        return named[trial.suggest_categorical(name, list(named))]
    if isinstance(own, Range):
        if own.kind == "int":
            return trial.suggest_int(name, int(own.low), int(own.high))
        return _typed(trial.suggest_float(name, own.low, own.high, log=own.kind == "log"), own)
    # Exponential variables over their sum are uniform on the simplex.
    draws = [trial.suggest_float(f"{name}.{each}", 0.0, 1.0) for each in objectives]
    waits = [-math.log(min(max(1 - draw, 1e-12), 1 - 1e-12)) for draw in draws]
    return _shares(waits)


def _typed(value: float, own: Range) -> float:
    """A number in four digits, as people type it; inside the range all the same."""
    return min(max(float(f"{value:.4g}"), own.low), own.high)


def _shares(sizes: Sequence[float]) -> list[float]:
    """Shares of a whole, to four decimals and none of them 0, that sum to one all the same."""
    shares = [max(1e-4, round(size / sum(sizes), 4)) for size in sizes]
    largest = shares.index(max(shares))
    shares[largest] = round(shares[largest] + 1 - sum(shares), 4)
    return shares


def text(own: Space) -> str:
    """A space as a user types it.

    >>> text(Choice((0.1, [0.5, 0.5]))), text(Range(1, 8, "int")), text(Simplex(4))
    ('0.1,[0.5,0.5]', 'int:1..8', 'simplex:4')
    """
    if isinstance(own, Choice):
        return ",".join(map(typed, own.values))
    if isinstance(own, Simplex):
        return "simplex" if own.steps is None else f"simplex:{own.steps}"
    return str(own)


def typed(value: Any) -> str:
    """A value as a user types it.

    >>> typed(True), typed(None), typed(30.0), typed([0.5, 0.5])
    ('true', 'none', '30', '[0.5,0.5]')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(typed, value))}]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _plain(value: Any) -> Any:
    """A value as Optuna keeps it: lists as text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _spaced(own: Range) -> list[float]:
    assert own.points is not None
    low, high = (math.log(v) if own.kind == "log" else v for v in (own.low, own.high))
    inside = [low + (high - low) * i / (own.points - 1) for i in range(1, own.points - 1)]
    back = [math.exp(v) if own.kind == "log" else v for v in inside]
    if own.kind == "int":
        return sorted({round(v) for v in (own.low, *back, own.high)})
    return [own.low, *(float(f"{v:.{_DIGITS}g}") for v in back), own.high]


def _lattice(steps: int, objectives: int) -> Iterator[list[float]]:
    """The multiples of 1/k on the simplex: bars that part k stars."""
    places = steps + objectives - 1
    for bars in combinations(range(places), objectives - 1):
        edges = (-1, *bars, places)
        yield [(b - a - 1) / steps for a, b in pairwise(edges)]


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadValue(f"must have numbers as ends, found {whole!r}") from None


def _whole(text: str, whole: str) -> int:
    if not text.isdecimal():
        raise BadValue(f"must end in a whole number of points, found {whole!r}")
    return int(text)
