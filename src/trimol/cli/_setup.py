"""What to run, from what a user typed (task, options, method, steps), and what machines get of it.

What is wrong with them is said before anything is imported, as far as their sources show it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trimol._failures import BadValue
from trimol._outline import Parameter
from trimol.cli._parse import pairs
from trimol.cli._reporting import UsageError, known_name, usage
from trimol.cli._values import any_value, of_types
from trimol.methods._registry import names
from trimol.tasks.loading import examine, known_options

if TYPE_CHECKING:
    from trimol.runs import Comparison


def checked_method(name: str) -> str:
    """The name of a method, or one line that lists them all."""
    return known_name("method", name, names())


def checked_options(task: str, texts: Sequence[str]) -> dict[str, Any]:
    """Options of a task that is there: numbers, true, false, none, or plain text.

    >>> checked_options("toy", ["seed=3", "variant=printed"])
    {'seed': 3, 'variant': 'printed'}
    """
    given = {name.replace("-", "_"): text for name, text in pairs(texts, "option").items()}
    with usage():
        examine(task, given)
    known, _ = known_options(task, given)
    return {
        name: _option(known[name], text) if name in known else any_value(text)
        for name, text in given.items()
    }


def _option(parameter: Parameter, text: str) -> Any:
    """A value of the parameter's type; a whole number stays one where any number will do."""
    try:
        value, plain = of_types(text, parameter.types), any_value(text)
    except BadValue as error:
        raise UsageError(f"{parameter.name} {error}") from None
    return plain if isinstance(value, float | list) and plain == value else value


def current(texts: Sequence[str]) -> dict[str, Any]:
    """What somebody has now: weights, one number an objective, and a learning rate.

    >>> current(["weights=1,0.1,5", "lr=3e-4"])
    {'weights': [1.0, 0.1, 5.0], 'lr': 0.0003}
    """
    given, found = pairs(texts, "current"), dict[str, Any]()
    for name, text in given.items():
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            raise UsageError(f"--current {name} must be numbers, found {text!r}") from None
        if name not in ("weights", "lr") or (name == "lr" and len(numbers) > 1):
            raise UsageError(f"--current must be weights=W,W,… or lr=ALPHA, found {name}={text}")
        if not all(0 < number < float("inf") for number in numbers):
            raise UsageError(f"--current {name} must be above 0, found {text!r}")
        found[name] = numbers if name == "weights" else numbers[0]
    return found


def steps(options: Any, task_options: dict[str, Any], *, default: int) -> int:
    """How many steps a command's options ask for, by ``steps``, or ``epochs`` of the task."""
    if options.steps is not None and options.epochs is not None:
        raise UsageError("give --steps or --epochs, not both")
    if options.epochs is None:
        return default if options.steps is None else int(options.steps)
    from trimol.runs.config import steps_per_epoch

    with usage():
        each = steps_per_epoch(options.task, options.batch_size, task_options)
    return int(options.epochs) * each


def name_of(task: str, task_options: Mapping[str, Any]) -> str:
    """The task's own name, which its folders have."""
    from trimol.tasks import load

    with usage():
        return load(task, task_options).name


def for_machines(command: str, comparison: "Comparison", files: Sequence[str]) -> dict[str, Any]:
    """What ``--json`` prints of runs: a row for each method and metric."""
    from trimol.runs import summarise
    from trimol.runs.study import Study

    rows = summarise(comparison)
    return {**Study(f"{command} {comparison.task}", "", rows).summary(), "files": files}
