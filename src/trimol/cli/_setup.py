"""What to run, from what a user typed: the task, its options, the method, the steps.

What is wrong with them is said before anything is imported, as far as their sources show it.
"""

import ast
from collections.abc import Sequence
from types import NoneType
from typing import Any

from trimol._outline import Parameter
from trimol.cli._parse import pairs
from trimol.cli._reporting import UsageError, usage
from trimol.cli._values import any_value
from trimol.methods._registry import names
from trimol.tasks._catalogue import outline
from trimol.tasks.loading import examine, file_of

# What a value of a type is in Python, and in words.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a word"),
    "None": ((NoneType,), "none"),
}
_LITERAL = "Literal["


def checked_method(name: str) -> str:
    """The name of a method, or one line that lists them all."""
    if name not in names():
        raise UsageError(f"unknown method {name!r}: the methods are {', '.join(names())}")
    return name


def checked_options(task: str, texts: Sequence[str]) -> dict[str, Any]:
    """Options of a task that is there: numbers, true, false, none, or plain text.

    >>> checked_options("toy", ["seed=3", "variant=printed"])
    {'seed': 3, 'variant': 'printed'}
    """
    given = pairs(texts, "option")
    with usage():
        examine(task, given)
    if file_of(task) is not None:
        return {name: any_value(text) for name, text in given.items()}
    known = {parameter.name: parameter for parameter in outline(task).parameters}
    return {name: _of_type(known[name], text) for name, text in given.items()}


def _of_type(parameter: Parameter, text: str) -> Any:
    """What a text most likely means, or the text itself, whichever is of the parameter's type."""
    for value in (any_value(text), text):
        if any(_fits(value, kind) for kind in parameter.types):
            return value
    words = dict.fromkeys(_in_words(kind) for kind in parameter.types)
    raise UsageError(f"{parameter.name} must be {' or '.join(words)}, found {text!r}")


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith(_LITERAL):
        return value in ast.literal_eval(kind.removeprefix("Literal"))
    return type(value) in _TYPES[kind][0] if kind in _TYPES else isinstance(value, list)


def _in_words(kind: str) -> str:
    if kind.startswith(_LITERAL):
        return f"one of {', '.join(ast.literal_eval(kind.removeprefix('Literal')))}"
    return _TYPES[kind][1] if kind in _TYPES else "numbers with commas between them"


def steps(options: Any, task_options: dict[str, Any], *, default: int) -> int:
    """How many steps a command's options ask for, by ``steps``, or ``epochs`` of the task."""
    if options.steps is not None and options.epochs is not None:
        raise UsageError("give --steps or --epochs, not both")
    if options.epochs is None:
        return default if options.steps is None else int(options.steps)
    from trimol.runs.config import steps_per_epoch

    with usage():
        return int(options.epochs) * steps_per_epoch(options.task, options.batch_size, task_options)
