"""Find a task: a built-in one by its name, your own by the path of its file."""

import hashlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from trimol._failures import BadValue, UserError, meant
from trimol._files import OF_FILES, from_here, read
from trimol.tasks._catalogue import get, names, outline

if TYPE_CHECKING:
    from trimol._attributes import Attribute
    from trimol._generators import Generators
    from trimol._outline import Parameter
    from trimol.tasks.task import Task


# The states of files' own generators and numbers when they were imported.
_fresh: "dict[str, tuple[Generators, dict[str, Attribute]]]" = {}


class TaskError(BadValue):
    """A task that cannot be found or made; the message is one line."""


def load(name: str, options: Mapping[str, Any] | None = None) -> "Task":
    """A task, ready to be trained.

    Args:
        name: A built-in task's name, or ``path/to/file.py:Class``. The class may be left out if
            the file defines one task only.
        options: Keyword arguments of the task's constructor.

    Example:
        >>> load("digits", {"hidden": 32}).hidden
        32
        >>> load("digits", {"width": 32})
        Traceback (most recent call last):
        trimol.tasks.loading.TaskError: digits has no option 'width': it has hidden, test, validation, seed
    """  # noqa: E501
    from trimol._generators import IN_FILES, seeding

    given = dict(options or {})
    with seeding(IN_FILES):
        task = find(name)
        _check_options(task, name, given)
        _begin_again(sys.modules[task.__module__])
        with blaming(name):
            made = _made(task, name, given)
    _check_names(name, made)
    return made


def _begin_again(module: ModuleType) -> None:
    """Give what a file and its classes remember the state of its import, for every task alike.

    In a process that makes several, each would otherwise depend on those before it.
    """
    from trimol._attributes import attributes, put_back
    from trimol._generators import Generators

    if module.__name__.startswith(OF_FILES):
        if module.__name__ not in _fresh:
            _fresh[module.__name__] = Generators(module, shared=False), attributes(module)
        generators, numbers = _fresh[module.__name__]
        generators.put_back()
        put_back(numbers, module)


def _made(task: "type[Task]", name: str, options: Mapping[str, Any]) -> "Task":
    """An instance; a constructor that cannot be called by keywords is named."""
    try:
        return task(**options)
    except TypeError as error:
        trace = error.__traceback__
        if trace is not None and trace.tb_next is not None:  # it was called, and raised
            raise
        raise TaskError(f"{name}: the class {task.__name__} cannot be made: {error}") from error


def find(name: str) -> "type[Task]":
    """The class of a task that `load` makes an instance of."""
    file = file_of(name)
    if file is not None:
        return _from_file(file, name)
    _check_built_in(name)
    return get(name)


def examine(name: str, options: Mapping[str, Any]) -> None:
    """Refuse what can be seen to be wrong with a task's name and options before any import.

    >>> examine("digits", {"width": 32})
    Traceback (most recent call last):
    trimol.tasks.loading.TaskError: digits has no option 'width': it has hidden, test, validation, seed
    """  # noqa: E501
    known, all_known = known_options(name, options)
    if all_known:
        _check_given(name, options, {p.name: p.required for p in known.values()})


def known_options(name: str, options: Mapping[str, Any]) -> "tuple[dict[str, Parameter], bool]":
    """The options that are known of a task without an import, and whether that is all of them.

    Those of a user's own task are not. A task around another one has that one's options, too.

    >>> known, all_known = known_options("population", {"of": "digits"})
    >>> list(known), all_known
    (['of', 'points', 'hidden', 'test', 'validation', 'seed'], True)
    """
    file = file_of(name)
    if file is not None:
        _text(file)
        return {}, False
    _check_built_in(name)
    known = {p.name: p for p in outline(name).parameters}
    if not outline(name).takes_others:
        return known, True
    others, all_known = known_options(str(options.get("of", known["of"].default)), {})
    return {**known, **{n: p for n, p in others.items() if n not in known}}, all_known


def file_of(name: str) -> Path | None:
    """The file in which a user's task is; None for a built-in one.

    >>> str(file_of("my/tasks.py:Mine")), file_of("digits")
    ('my/tasks.py', None)
    """
    path, _, after = name.rpartition(".py")
    if path and (not after or after.startswith(":")):
        return Path(f"{path}.py")
    return None


def _written_in(name: str, options: Mapping[str, Any] | None) -> Path | None:
    """The user's file: of a task around another one, that one's."""
    return file_of(name) or file_of(str((options or {}).get("of", "")))


def with_path(name: str, change: Callable[[Path], object]) -> str:
    """The name of a task with another path of its file; a built-in one's as it is.

    >>> with_path("my/tasks.py:Mine", lambda path: path.name)
    'tasks.py:Mine'
    """
    file = file_of(name)
    return name if file is None else f"{change(file)}{name.rpartition('.py')[2]}"


def source(name: str, options: Mapping[str, Any] | None = None) -> str | None:
    """SHA-256 of a user's task file: a run's configuration holds it. None for a built-in task.

    Of a task around another one, its option ``of``, it is the file of that one.

    >>> source("digits") is None
    True
    """
    file = _written_in(name, options)
    return None if file is None else hashlib.sha256(_text(file)).hexdigest()


def _from_file(file: Path, name: str) -> "type[Task]":
    from trimol.tasks.task import Task

    module = _module(file, name)
    wanted = name.rpartition(".py")[2].removeprefix(":")
    own = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Task)
        and value.__module__ == module.__name__
    }
    if not wanted and len(own) == 1:
        return next(iter(own.values()))
    if not wanted or wanted not in own:
        has = f"its tasks are {', '.join(own)}" if own else "it defines no class derived from Task"
        problem = f"found no task {wanted!r}" if wanted else "name the class after a colon"
        raise TaskError(f"{file}: {problem}; {has}")
    return own[wanted]


def _module(file: Path, name: str) -> ModuleType:
    """The file's module, imported once for each content."""
    text = _text(file)
    label = f"{OF_FILES}{hashlib.sha256(str(file.resolve()).encode() + text).hexdigest()[:16]}"
    if label in sys.modules:
        return sys.modules[label]
    spec = importlib.util.spec_from_file_location(label, file)
    if spec is None:
        raise TaskError(f"{file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module  # dataclasses look their module up while it is being made
    try:
        with blaming(name):
            # This text, not what Python may have cached of one as long and of the same second.
            exec(_compiled(text, file), vars(module))
    except BaseException:
        del sys.modules[label]
        raise
    return module


def _compiled(text: bytes, file: Path) -> CodeType:
    """The code of a file, or one line that says why it is none."""
    try:
        return compile(text, str(file.resolve()), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # of null bytes; which of the two depends on Python
        line = getattr(error, "lineno", None)
        place = f"{from_here(file)}, line {line}" if line else f"{from_here(file)}"
        raise TaskError(f"{place}: {_words(error)}") from error


def _text(file: Path) -> bytes:
    try:
        return read(file)
    except (OSError, ValueError) as error:  # of a name with a null byte
        said = getattr(error, "strerror", None) or error
        raise TaskError(f"cannot read the task file {file}: {said}") from error


@contextmanager
def blaming(name: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn what a user's task file raises into one line that names the file and the line.

    The options say which task another one is around. Errors of a built-in task, and those that did
    not come up through the file, stay as they are.
    """
    file = _written_in(name, options)
    try:
        yield
    except KeyboardInterrupt as stop:
        line = None if file is None else _line(stop, file)
        if line is not None and not stop.args:
            stop.args = (f"interrupted in {from_here(Path(str(file)))}, line {line}",)
        raise
    except TaskError:
        raise
    except BaseException as stopped:  # SystemExit, too: the task must not end the program
        error = _raised(stopped)
        line = None if file is None else _line(error, file)
        if file is None or line is None:
            raise
        raise TaskError(f"{from_here(file)}, line {line}: {_words(error)}") from error


def _raised(error: BaseException) -> BaseException:
    """What a task raised: of a StopIteration in a generator, Python makes another error."""
    cause = error.__cause__
    return cause if isinstance(error, RuntimeError) and isinstance(cause, StopIteration) else error


def _words(error: BaseException) -> str:
    """An error in one line; ours speak for themselves, and a SyntaxError's line is said already."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{said}".split()).removesuffix(":")


def _line(error: BaseException, file: Path) -> int | None:
    """The line of the file at which an error came up; None if it did not."""
    names = {str(file), str(file.resolve())}
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename in names), None)


def _check_built_in(name: str) -> None:
    if name not in names():
        raise TaskError(
            f"task must be one of {', '.join(names())} or path/to/file.py:Class, found "
            f"{name!r}{meant(name, names())}"
        )


def _check_options(task: "type[Task]", name: str, options: Mapping[str, Any]) -> None:
    if task.__abstractmethods__:
        lacking = ", ".join(sorted(task.__abstractmethods__))
        raise TaskError(f"{name}: the class {task.__name__} must define {lacking}")
    parameters = inspect.signature(task).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    _check_given(name, options, {p.name: p.default is p.empty for p in named})


def _check_given(name: str, options: Mapping[str, Any], known: Mapping[str, bool]) -> None:
    """Of the options that a task knows, those that are true must be given."""
    for option in options:
        if option not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise TaskError(f"{name} has no option {option!r}: {has}")
    missing = [option for option, required in known.items() if required and option not in options]
    if missing:
        raise TaskError(f"{name} needs the option {missing[0]!r}")


def _check_names(name: str, task: "Task") -> None:
    """What a task says about itself, beside its methods."""
    for attribute in ("name", "objectives"):
        if not getattr(task, attribute, None):
            raise TaskError(f"{name}: the class {type(task).__name__} must set {attribute}")
    for attribute, fits, wanted in (
        ("name", _is_folder_name, "text that can name a folder"),
        ("objectives", _are_names, "a tuple of different names (text)"),
        ("goals", are_goals, 'metrics by objective, such as {"depth": {"error": "lower"}}'),
        ("settings", _are_settings, "a trimol.tasks.Settings by method"),
        ("batch_size", _is_count, "a whole number of at least 1"),
        ("at_once", _is_count, "a whole number of at least 1"),
    ):
        found = getattr(task, attribute)
        if not fits(found):
            raise TaskError(f"{name}: {attribute} must be {wanted}, found {found!r}")


def is_name(value: object) -> bool:
    """Whether it can name an objective or a metric: text on one line, not empty.

    >>> is_name("depth"), is_name(" "), is_name(1)
    (True, False, False)
    """
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _is_folder_name(value: object) -> bool:
    return is_name(value) and re.search(r"^[./\\]|\.\.", str(value)) is None


def _are_names(value: Any) -> bool:
    named = isinstance(value, tuple | list) and all(map(is_name, value))
    return named and len(set(value)) == len(value)


def are_goals(value: Any) -> bool:
    """Whether it says by which metrics objectives are judged, and which way is better.

    >>> are_goals({"depth": {"error": "lower"}}), are_goals({"depth": "error"})
    (True, False)
    """
    return isinstance(value, Mapping) and all(
        isinstance(metrics, Mapping)
        and all(is_name(metric) and way in ("higher", "lower") for metric, way in metrics.items())
        for metrics in value.values()
    )


def _are_settings(value: Any) -> bool:
    from trimol.tasks.task import Settings

    return isinstance(value, Mapping) and all(isinstance(v, Settings) for v in value.values())


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1
