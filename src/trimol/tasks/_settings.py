"""How methods are run on tasks, read from ``settings.toml`` beside the tasks.

No task knows a method by name. Under ``[digits]`` a method has the ``lr`` of the task's optimizer
and its own hyper-parameters; ``all`` is for every method that is not named there.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from trimol import methods
from trimol.tasks.task import Settings


def read_settings(file: str, task: str) -> dict[str, Settings]:
    """The settings of a task, by method.

    Args:
        file: The ``__file__`` of the task's module.
        task: Its name in ``settings.toml``.

    Example:
        >>> from trimol.tasks import digits
        >>> read_settings(digits.__file__, "digits")["modo"]
        Settings(lr=30.0, method={'gamma': 1.0})
    """
    tables = dict(_tables(Path(file).with_name("settings.toml"))[task])
    common = tables.pop("all", None)
    if common is not None:
        tables = dict.fromkeys(methods.names(), common) | tables
    return {name: _settings(**table) for name, table in tables.items()}


def _settings(lr: float, **method: Any) -> Settings:
    return Settings(lr=lr, method=method)


@cache
def _tables(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
