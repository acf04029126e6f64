"""Arguments, checked: one clear line that names the argument and the value found."""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, NoReturn, TypeVar

from trimol._failures import BadNumber, BadValue

if TYPE_CHECKING:
    from torch import Tensor

    Vector = Tensor | Sequence[float] | Mapping[str, float]  # M numbers, in order or by name

Objectives = int | Sequence[str]  # M, or the names of the M objectives
Names = tuple[str | int, ...]
Value = TypeVar("Value")
MOST_OBJECTIVES = 100_000  # the weights of a few more would fit in memory, their Gramian not
MOST_RUNS = 20_000  # of a study: each is a folder, and all are listed before the first begins


def whole_number(name: str, value: int, *, least: int) -> int:
    """A whole number (Python's or NumPy's) of at least ``least``.

    >>> whole_number("k", 0, least=1)
    Traceback (most recent call last):
    trimol._failures.BadValue: k must be a whole number of at least 1, found 0
    """
    said = f"{name} must be a whole number of at least {least}, found {value!r}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise BadNumber(said)
    if value < least:
        raise BadValue(said)
    return int(value)


def number_of_runs(name: str, value: int) -> int:
    """Refuse more runs than a study may have; to be asked before they are listed.

    >>> number_of_runs("seeds", 10**9)
    Traceback (most recent call last):
    trimol._failures.BadValue: seeds must ask for at most 20000 runs, found 1000000000
    """
    if value > MOST_RUNS:
        raise BadValue(f"{name} must ask for at most {MOST_RUNS} runs, found {value}")
    return value


def count(name: str, value: int) -> int:
    """A whole number of at least 1."""
    return whole_number(name, value, least=1)


def names(objectives: Objectives) -> Names:
    """What the objectives are called: the names given, else their numbers.

    >>> names(["ctr", "cvr"]), names(2)
    (('ctr', 'cvr'), (0, 1))
    >>> names(["a", "a"])
    Traceback (most recent call last):
    trimol._failures.BadValue: objectives must be different names, or a number, found ['a', 'a']
    """
    if isinstance(objectives, Integral):
        many = count("objectives", objectives)  # type: ignore[arg-type]
        if many > MOST_OBJECTIVES:
            raise BadValue(f"objectives must be at most {MOST_OBJECTIVES}, found {many}")
        return tuple(range(many))
    if isinstance(objectives, str) or not isinstance(objectives, Sequence):
        raise BadNumber(
            f"objectives must be a list of different names, or a whole number, found {objectives!r}"
        )
    given = tuple(objectives)
    if not given or not all(isinstance(n, str) for n in given) or len({*given}) < len(given):
        raise BadValue(f"objectives must be different names, or a number, found {list(given)}")
    return given


def number(objectives: Objectives) -> int:
    """M."""
    return len(names(objectives))


def in_order(name: str, values: Mapping[str, Value], known: Names, lack: str = "") -> list[Value]:
    """What was given by the objectives' names, in their order: each exactly once.

    ``lack`` says what to do about one that is not there.

    >>> in_order("losses", {"cvr": 2.0, "ctr": 1.0}, ("ctr", "cvr"))
    [1.0, 2.0]
    >>> in_order("losses", {"cvr": 2.0}, ("ctr", "cvr"))
    Traceback (most recent call last):
    trimol._failures.BadValue: losses must have 'ctr', 'cvr', found none for 'ctr'
    """
    listed = ", ".join(map(repr, known))
    for key in values:
        if key not in known:
            hint = "" if isinstance(known[0], str) else " (give the method names: objectives=[…])"
            raise BadValue(f"{name} must be by the names {listed}, found {key!r}{hint}")
    for each in known:
        if each not in values:
            raise BadValue(f"{name} must have {listed}, found none for {each!r}{lack}")
    return [values[each] for each in known]  # type: ignore[index]


def seed(value: int) -> int:
    """A whole number of at least 0, the seed of a method's own random numbers."""
    return whole_number("seed", value, least=0)


def finite(name: str, value: float) -> float:
    """A finite number.

    >>> finite("beta", float("inf"))
    Traceback (most recent call last):
    trimol._failures.BadValue: beta must be a finite number, found inf
    """
    if not _is_finite(value):
        raise BadValue(f"{name} must be a finite number, found {value!r}")
    return float(value)


def nonnegative(name: str, value: float) -> float:
    """A finite number of at least 0."""
    if not _is_finite(value) or value < 0:
        raise BadValue(f"{name} must be a finite number of at least 0, found {value!r}")
    return float(value)


def _is_finite(value: object) -> bool:
    """Whether a value is a number that a float can hold; True and False are not numbers.

    >>> _is_finite(1), _is_finite(True), _is_finite(10**400)
    (True, False, False)
    """
    try:
        return _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fraction(name: str, value: float) -> float:
    """A number from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise BadValue(f"{name} must be a number from 0 to 1, found {value!r}")
    return float(value)


def below_one(name: str, value: float) -> float:
    """A number of at least 0 and below 1."""
    if not _is_number(value) or not 0 <= value < 1:
        raise BadValue(f"{name} must be a number of at least 0 and below 1, found {value!r}")
    return float(value)


def positive(name: str, value: float) -> float:
    """A finite number above 0."""
    if not _is_finite(value) or value <= 0:
        raise BadValue(f"{name} must be a finite number above 0, found {value!r}")
    return float(value)


def flag(name: str, value: bool) -> bool:
    """True or false, and nothing that is only taken for one.

    >>> flag("normalize", "no")
    Traceback (most recent call last):
    trimol._failures.BadValue: normalize must be True or False, found 'no'
    """
    if not isinstance(value, bool):
        raise BadValue(f"{name} must be True or False, found {value!r}")
    return value


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse a word that is none of a few.

    >>> one_of("regime", "cold", ("frozen", "finetune"))
    Traceback (most recent call last):
    trimol._failures.BadValue: regime must be 'frozen' or 'finetune', found 'cold'
    """
    if value not in known:
        raise BadValue(f"{name} must be {' or '.join(map(repr, known))}, found {value!r}")


def vector(name: str, value: "Vector", objectives: Objectives) -> "Tensor":
    """Finite numbers, one per objective, in order or by name, in float64."""
    import torch  # where there are tensors it is there; what checks numbers only does not need it

    if isinstance(value, Mapping):
        value = in_order(name, value, names(objectives))
    objectives = number(objectives)
    try:
        tensor = torch.as_tensor(value, dtype=torch.float64).detach().cpu().clone()
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise BadNumber(f"{name} must be numbers, one per objective, found {value!r}") from None
    if tensor.shape != (objectives,):
        raise BadValue(
            f"{name} must have {objectives} entries, one per objective, found shape "
            f"{tuple(tensor.shape)}"
        )
    if not tensor.isfinite().all():
        raise BadValue(f"{name} must be finite, found {tensor.tolist()}")
    return tensor


def above_zero(name: str, values: "Tensor") -> "Tensor":
    """Values that are all above 0.

    >>> import torch
    >>> above_zero("prefer", torch.tensor([0.5, 0.0]))
    Traceback (most recent call last):
    trimol._failures.BadValue: prefer must be above 0, found [0.5, 0.0]
    """
    if not (values > 0).all():
        raise BadValue(f"{name} must be above 0, found {values.tolist()}")
    return values


def first_losses_above_zero(losses: "Tensor", why: str, called: Names) -> "Tensor":
    """The losses of the first step, (…, M), if all are above 0; else one of them is named.

    >>> import torch
    >>> first_losses_above_zero(torch.tensor([[0.5, 1.0], [0.0, 1.0]]), "being", ("ctr", "cvr"))
    Traceback (most recent call last):
    trimol._failures.BadValue: the first losses must be above 0, being, found 0 for objective 'ctr'
    """
    above = losses > 0
    if not above.all():
        _refuse_loss("the first losses must be above 0", losses, ~above, why, called)
    return losses


def losses_at_least_zero(losses: "Tensor", why: str, called: Names) -> None:
    """Refuse a negative loss, (…, M), and name it; NaN is for others to find.

    >>> import torch
    >>> losses_at_least_zero(torch.tensor([0.5, -2.0]), "being sizes", ("ctr", "cvr"))
    Traceback (most recent call last):
    trimol._failures.BadValue: losses must be at least 0, being sizes, found -2 for objective 'cvr'
    """
    if (losses < 0).any():
        _refuse_loss("losses must be at least 0", losses, losses < 0, why, called)


def _refuse_loss(rule: str, losses: "Tensor", wrong: "Tensor", why: str, called: Names) -> NoReturn:
    """Name the first loss, of one run or of many together, that breaks a rule."""
    place = int(wrong.flatten().int().argmax())
    raise BadValue(
        f"{rule}, {why}, found {losses.flatten()[place].item():g} "
        f"for objective {called[place % losses.shape[-1]]!r}"
    )


def weights(value: "Vector | None", objectives: Objectives, name: str = "weights") -> "Tensor":
    """Finite, non-negative weights, not all zero, in float64; uniform for ``None``."""
    if value is None:
        value = [1 / number(objectives)] * number(objectives)
    checked = vector(name, value, objectives)
    if (checked < 0).any() or not checked.any():
        raise BadValue(
            f"{name} must be finite, at least 0 and not all zero, found {checked.tolist()}"
        )
    return checked


def simplex(value: "Vector | None", objectives: Objectives, name: str = "weights") -> "Tensor":
    """Weights as :func:`weights`, that sum to one (to rounding, which is then removed)."""
    checked = weights(value, objectives, name)
    total = checked.sum()
    if abs(total.item() - 1) > 1e-6:
        raise BadValue(f"{name} must sum to 1, found a sum of {total.item():g}")
    return checked / total


def bounds(
    value: "Mapping[int, float] | Mapping[str, float]", objectives: Objectives
) -> dict[int, float]:
    """A finite bound for some of the objectives, by their name or number; numbers come back.

    >>> bounds({"cvr": 0.2}, ["ctr", "cvr"])
    {1: 0.2}
    """
    return by_objective("bounds", value, names(objectives))


def by_objective(
    name: str, value: "Mapping[int, float] | Mapping[str, float]", called: Names
) -> dict[int, float]:
    """A finite number for some of the objectives, by their name or number; numbers come back.

    >>> by_objective("bounds", {2: 0.2}, ("ctr", "cvr"))
    Traceback (most recent call last):
    trimol._failures.BadValue: bounds must be of objectives 0 to 1 (ctr, cvr), found 2
    """
    if not isinstance(value, Mapping):
        raise BadNumber(f"{name} must be numbers by objective, as {{0: 0.2}}, found {value!r}")
    places = {key: place for place, own in enumerate(called) for key in (place, own)}
    known = f"0 to {len(called) - 1}" + (f" ({', '.join(map(str, called))})" if called[0] else "")
    for key, bound in value.items():
        if isinstance(key, bool) or key not in places:
            raise BadValue(f"{name} must be of objectives {known}, found {key!r}")
        if isinstance(bound, bool) or not _is_finite(bound):
            raise BadValue(f"{name}[{key!r}] must be a finite number, found {bound!r}")
    return {places[key]: float(bound) for key, bound in value.items()}
