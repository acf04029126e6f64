"""Values that commands take: from the text a user typed to a number, or one clear line."""

import ast
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from tyro.constructors import PrimitiveConstructorSpec

from trimol._failures import BadValue
from trimol.training._optimizers import NAMES as OPTIMIZERS

# tyro knows these at a glance. For ``int | None`` or ``tuple[str, ...]`` it imports typeguard, and
# that takes as long as tyro itself.
ValueT = TypeVar("ValueT")
Maybe = Optional[ValueT]  # noqa: UP045
if TYPE_CHECKING:
    Names = tuple[str, ...]
    Texts = tuple[str, ...]
    Numbers = Sequence[float]
else:
    Names, Texts = Maybe[tuple], tuple  # the former with a default, whose types tyro would look at
    Numbers = tuple
SCHEDULES = ("constant", "linear", "cosine")
_LARGEST = 2**63  # whole numbers go to torch, to polars and to JSON, all of 64 bits
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def whole_number(text: str, *, least: int) -> int:
    """A whole number of at least ``least``.

    >>> whole_number("1000", least=1), whole_number("1e3", least=1)
    (1000, 1000)
    >>> whole_number("many", least=1)
    Traceback (most recent call last):
    trimol._failures.BadValue: must be a whole number of at least 1, found 'many'
    """
    value = _whole(text)
    if value is None or value < least:
        raise BadValue(f"must be a whole number of at least {least}, found {text!r}")
    if value >= _LARGEST:
        raise BadValue(f"must be a whole number below 2**63, found {text!r}")
    return value


def real_number(text: str, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """A finite number, above a bound or at least as large as one.

    >>> real_number("1e-3", above=0)
    0.001
    >>> real_number("nan", least=0)
    Traceback (most recent call last):
    trimol._failures.BadValue: must be a finite number of at least 0, found 'nan'
    """
    value = _float(text)
    if value is None or not value > above or not value >= least:
        raise BadValue(f"must be a finite number{_range(above, least)}, found {text!r}")
    return value


count = partial(whole_number, least=1)
whole = partial(whole_number, least=0)
positive = partial(real_number, above=0)
nonnegative = partial(real_number, least=0)


def numbers(text: str) -> list[float]:
    """Numbers between commas, in brackets or not."""
    try:
        return [real_number(part) for part in text.removeprefix("[").removesuffix("]").split(",")]
    except BadValue:
        raise BadValue(f"must be numbers with commas between them, found {text!r}") from None


def names(text: str) -> tuple[str, ...]:
    """Names between commas, each once; a comma in brackets is part of a name.

    >>> names("static,mgda, static:weights=[1,2]")
    ('static', 'mgda', 'static:weights=[1,2]')
    """
    parts = tuple(part.strip() for part in outside_brackets(text))
    if not all(parts) or len(set(parts)) != len(parts):
        raise BadValue(f"must be different names with commas between them, found {text!r}")
    return parts


def folder_path(text: str) -> Path:
    """A folder's path; an empty text is none, though Python takes it for the current folder."""
    if not text.strip():
        raise BadValue(f"must be a folder, found {text!r}")
    return Path(text)


def outside_brackets(text: str) -> list[str]:
    """What stands between the commas that are in no brackets.

    >>> outside_brackets("1,[2,3]")
    ['1', '[2,3]']
    """
    return re.split(r",(?![^\[]*\])", text)


def truth(text: str) -> bool:
    """True or false."""
    if text.lower() not in _TRUTH:
        raise BadValue(f"must be true or false, found {text!r}")
    return _TRUTH[text.lower()]


def choice(text: str, choices: Sequence[str]) -> str:
    """One of some words."""
    if text not in choices:
        raise BadValue(f"must be one of {', '.join(choices)}, found {text!r}")
    return text


optimizer_name = partial(choice, choices=OPTIMIZERS)
schedule_name = partial(choice, choices=SCHEDULES)


def any_value(text: str) -> Any:
    """What a text most likely means: a number, several (by commas), true, false, none, or itself.

    >>> [any_value(text) for text in ("3", "1e-3", "true", "none", "printed", "24,32", "[24, 32]")]
    [3, 0.001, True, None, 'printed', [24, 32], [24, 32]]
    """
    inside = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    parts = [any_value(part.strip()) for part in inside.split(",")] if "," in inside else []
    if parts and all(isinstance(part, int | float) for part in parts):
        return parts
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        value = _float(text)
        return text if value is None else value


def reader(kind: str) -> Callable[[str], Any] | None:
    """How to read a value of a type, as an annotation has it; None for what no text can give."""
    if kind.startswith("Literal["):
        return partial(choice, choices=ast.literal_eval(kind.removeprefix("Literal")))
    if kind.startswith(("Sequence[", "tuple[")):
        return numbers
    if kind.startswith("Mapping["):
        return _whole_mapping
    plain: dict[str, Callable[[str], Any]] = {
        "bool": truth,
        "int": whole,
        "float": real_number,
        "str": str,
    }
    return plain.get(kind)


def by_objective(kind: str) -> bool:
    """Whether values of a type may be given one objective at a time: ``bounds.NAME=VALUE``."""
    return kind.startswith(("Mapping[", "Sequence[float"))


def of_types(text: str, types: Sequence[str]) -> Any:
    """What a text is of some types: of the first that it can be.

    >>> of_types("0.5", ["float", "None"]), of_types("None", ["float", "None"])
    (0.5, None)
    >>> of_types("much", ["float", "None"])
    Traceback (most recent call last):
    trimol._failures.BadValue: must be a finite number, found 'much'
    """
    if "None" in types and text.lower() == "none":
        return None
    complaints = []
    for read in filter(None, map(reader, types)):
        try:
            return read(text)
        except BadValue as error:
            complaints.append(error)
    raise complaints[0]


def typed(read: Callable[[str], Any], metavar: str, *, unset: str = "") -> Any:
    """How tyro reads an option, and calls its value and the default None (one word) in the help."""
    return PrimitiveConstructorSpec[Any](
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: read(texts[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [unset if value is None else _shown(value)],
    )


def _whole_mapping(text: str) -> Any:
    raise BadValue(f"must be given for one objective at a time, NAME.OBJECTIVE, found {text!r}")


def _shown(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _float(text: str) -> float | None:
    """The finite number that a text is; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    """The whole number that a text is, with all its digits; None if it is none."""
    try:
        return int(text)
    except ValueError:
        value = _float(text)
        return int(value) if value is not None and value.is_integer() else None


def _range(above: float, least: float) -> str:
    if above > -math.inf:
        return f" above {above:g}"
    return f" of at least {least:g}" if least > -math.inf else ""
