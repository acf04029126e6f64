"""What is tried of a contender in a trial: step sizes, schedules and its own hyper-parameters.

Which hyper-parameters a method has to be tuned by, it says itself (`trimol.methods.Method.search`).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from trimol import methods
from trimol.methods.base import Method, Range
from trimol.runs._candidates import Candidate
from trimol.runs.config import is_number
from trimol.tasks.task import Settings
from trimol.training.loop import Schedule

SCHEDULES: tuple[Schedule | None, ...] = (None, "linear", "cosine")
RATES = 3  # step sizes at least, one of them the task's own
FACTOR, FINE = 10**0.5, 10**0.25  # between step sizes: of a few, and of more than these
FEW = 4
_SEEN = 7e-7  # of two weights never
_CLOSE = 0.99  # factors are rounded
LEAN = 10.0  # how much more one objective weighs than the others


def usual_trials(objectives: int) -> int:
    """How many trials a contender has: for equal weights, and for more weight on each objective.

    >>> usual_trials(3)
    36
    """
    return (objectives + 1) * RATES * len(SCHEDULES)


def grid(method: str, objectives: int, settings: Settings, trials: int) -> list[Candidate]:
    """So many candidates of a method, the most usual ones first.

    A method without hyper-parameters to try has more step sizes instead, so that all have as many
    trials.

    Example:
        >>> [c.lr for c in grid("mgda", 2, Settings(lr=1.0), 4)]
        [1.0, 1.0, 0.316, 1.0]
        >>> grid("static", 2, Settings(lr=1.0), 27)[-1].hyperparameters["weights"]
        [0.0909091, 0.909091]
    """
    own = _own(methods.get(method), objectives)
    rates = _rates(settings.lr, math.ceil(trials / (len(own) * len(SCHEDULES))))
    ranked = sorted(
        product(range(len(own)), range(len(rates)), range(len(SCHEDULES))), key=lambda at: sum(at)
    )
    return [
        Candidate(lr=rates[rate], hyperparameters=own[place], schedule=SCHEDULES[schedule])
        for place, rate, schedule in ranked[:trials]
    ]


def along(method: str, objectives: int, rates: Sequence[float]) -> list[Candidate]:
    """A method with each of these step sizes, falling to 0.

    One with hyper-parameters of its own (for static weighting, the weights) has every second step
    size with each of several settings of them: which step size is best may hang on the weights.

    >>> [c.lr for c in along("mgda", 2, [0.1, 1.0, 10.0])]
    [0.1, 1.0, 10.0]
    >>> [(c.lr, c.hyperparameters["weights"][0]) for c in along("static", 2, [0.1, 0.2, 0.4])]
    [(0.1, 0.5), (0.4, 0.5), (0.1, 0.909091), (0.4, 0.909091), (0.1, 0.0909091), (0.4, 0.0909091)]
    """
    own = _own(methods.get(method), objectives)
    return [
        Candidate(lr=rate, hyperparameters=each, schedule="linear")
        for each in own
        for rate in (rates if len(own) == 1 else rates[::2])
    ]


def beyond(best: Candidate, rates: Sequence[float]) -> Candidate | None:
    """The best of a row of step sizes with the next one outside; None if it lies inside.

    >>> beyond(Candidate(1.0), [0.1, 0.316, 1.0]), beyond(Candidate(0.316), [0.1, 0.316, 1.0])
    (Candidate(lr=3.16, hyperparameters={}, task_options={}, schedule=None), None)
    """
    if best.lr == max(rates):
        return replace(best, lr=_rounded(best.lr * FACTOR))
    if best.lr == min(rates):
        return replace(best, lr=_rounded(best.lr / FACTOR))
    return None


def moves(candidate: Candidate, factor: float) -> list[tuple[str, Candidate]]:
    """What lies next to a candidate: one number changed at a time, and which.

    The step size and every positive number of the method's own by the factor, up and down; of
    weights, how much one objective weighs beside the others.

    Example:
        >>> near = moves(Candidate(1.0, {"weights": [0.5, 0.5]}), 10.0)
        >>> [(name, c.lr) for name, c in near[:2]]
        [('lr', 10.0), ('lr', 0.1)]
        >>> [(name, c.hyperparameters["weights"]) for name, c in near[2:]]
        [('weights 0', [0.909091, 0.0909091]), ('weights 0', [0.0909091, 0.909091])]
    """
    rates = [
        ("lr", replace(candidate, lr=_rounded(candidate.lr * by))) for by in (factor, 1 / factor)
    ]
    own = [
        (number, replace(candidate, hyperparameters={**candidate.hyperparameters, name: moved}))
        for name, value in candidate.hyperparameters.items()
        for number, moved in _moved(name, value, factor)
    ]
    return [*rates, *own]


def schedules(candidate: Candidate) -> list[Candidate]:
    """The candidate with every other schedule, and the step sizes that go with it.

    A step size that falls to 0 may begin larger than one that stays.

    >>> [(c.lr, c.schedule) for c in schedules(Candidate(1.0))[:4]]
    [(0.562, 'linear'), (1.0, 'linear'), (1.78, 'linear'), (3.16, 'linear')]
    """
    return [
        replace(candidate, schedule=other, lr=_rounded(candidate.lr * FINE**place))
        for other in SCHEDULES
        if other != candidate.schedule
        for place in _paces(candidate.schedule, other)
    ]


def _paces(before: Schedule | None, after: Schedule | None) -> tuple[int, ...]:
    """Which step sizes go with another schedule, in powers of `FINE`."""
    if before is None:
        return -1, 0, 1, 2
    return (1, 0, -1, -2) if after is None else (0,)


def apart(first: Candidate, second: Candidate, factor: float) -> bool:
    """Whether candidates differ in the schedule, or by at least a factor in some number.

    >>> apart(Candidate(1.0), Candidate(1.5), 2.0), apart(Candidate(1.0), Candidate(0.5), 2.0)
    (False, True)
    """
    if first.schedule != second.schedule:
        return True
    return any(
        abs(math.log(one / other)) >= _CLOSE * math.log(factor)
        for one, other in zip(_positive(first), _positive(second), strict=True)
    )


def _positive(candidate: Candidate) -> list[float]:
    """Its step size and the numbers of its own that are above 0; of weights, all."""
    own: list[float] = [candidate.lr]
    for value in candidate.hyperparameters.values():
        if _is_weights(value):
            own += [weight / value[0] for weight in value[1:]]
        elif is_number(value) and value > 0:
            own.append(value)
    return own


def _moved(name: str, value: Any, factor: float) -> list[tuple[str, Any]]:
    """A number or weights by a factor, up and down; nothing of what is neither."""
    if _is_weights(value):
        # Of two weights, one up is the other down.
        return [
            (f"{name} {place}", normal([*value[:place], weight * by, *value[place + 1 :]]))
            for place, weight in enumerate(value if len(value) > 2 else value[:1])
            for by in (factor, 1 / factor)
        ]
    if is_number(value) and value > 0:
        return [(name, _rounded(value * by)) for by in (factor, 1 / factor)]
    return []


def _own(method: type[Method], objectives: int) -> list[dict[str, Any]]:
    """Settings of the method's own: each value of every hyper-parameter once, shifted (Latin)."""
    count = objectives + 1
    values: dict[str, list[Any]] = {}
    if method.prefers is not None:
        values[method.prefers] = _leanings(objectives)
    values |= {name: _spread(ends, count) for name, ends in method.search.items()}
    if not values:
        return [{}]
    return [
        {name: own[(place + shift) % count] for shift, (name, own) in enumerate(values.items())}
        for place in range(count)
    ]


def _leanings(objectives: int) -> list[list[float]]:
    """Equal weights, and those that lean to one objective."""
    return [
        normal([LEAN if m == lean else 1.0 for m in range(objectives)])
        for lean in (None, *range(objectives))
    ]


def _spread(ends: Range, count: int) -> list[float]:
    """Values from one end to the other by equal factors, the middle first."""
    low, high = ends
    steps = [low * (high / low) ** (place / (count - 1)) for place in range(count)]
    middle = (count - 1) / 2
    return [_rounded(v) for v in sorted(steps, key=lambda v: abs(steps.index(v) - middle))]


def _rates(centre: float, count: int) -> list[float]:
    """Step sizes around the task's own, nearest first."""
    factor = FACTOR if count <= FEW else FINE
    places = sorted(range(-(count // 2), count - count // 2), key=lambda at: (abs(at), -at))
    return [_rounded(centre * factor**place) for place in places]


def normal(weights: Sequence[float]) -> list[float]:
    """Weights that sum to one, to six digits: where rounding is seen, the largest takes it up.

    >>> normal([1, 2]), normal([1, 1, 1])
    ([0.333333, 0.666667], [0.333333, 0.333333, 0.333334])
    """
    found = [float(f"{weight / sum(weights):.6g}") for weight in weights]
    if abs(sum(found) - 1) > _SEEN:
        largest = max(range(len(found)), key=lambda place: (found[place], place))
        found[largest] = round(1 - sum(found[:largest] + found[largest + 1 :]), 9)
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _is_weights(value: Any) -> bool:
    numbers = isinstance(value, list | tuple) and all(is_number(v) and v > 0 for v in value)
    return numbers and len(value) > 1
