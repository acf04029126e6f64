"""Studies by name: what ``trimol reproduce NAME`` runs."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trimol.study import results
from trimol.study.environment import environment
from trimol.study.results import Study
from trimol.study.synthetic import Watch


@dataclass(frozen=True)
class Context:
    """Where and how a study is to run.

    Attributes:
        folder: The study's own folder: figures go there.
        parts: Where parts are kept that several studies share; a finished one is not run again.
        root: The folder that holds all studies.
        quick: Whether to be quick rather than exact: fewer seeds and steps.
        seeds: How many seeds, where the user said so.
        watch: Called with (done, total).
        full: Whether to go as far as the paper did where that takes hours.
    """

    folder: Path
    parts: Path
    root: Path
    quick: bool = False
    seeds: int | None = None
    watch: Watch | None = None
    full: bool = False

    def pick(self, normal: int, quick: int) -> int:
        """How many seeds to take: the user's number, or one of these."""
        if self.seeds is not None:
            return self.seeds
        return quick if self.quick else normal


@dataclass(frozen=True)
class Entry:
    """A study that can be run.

    Attributes:
        name: What it is called on the command line.
        title: One line for people.
        module: Where it is; imported only when it is run.
        function: The function in it, from a `Context` to a `Study`.
    """

    name: str
    title: str
    module: str
    function: str

    def build(self) -> Callable[[Context], Study]:
        """The function, imported."""
        found: Callable[[Context], Study] = getattr(
            importlib.import_module(self.module), self.function
        )
        return found


_STUDIES: dict[str, Entry] = {}


def register(name: str, title: str, module: str, function: str) -> None:
    """Add a study. Nothing is imported before it is run.

    Args:
        name: What it is called on the command line.
        title: One line for people.
        module: Where it is.
        function: The function in it, from a `Context` to a `Study`.
    """
    if name in _STUDIES:
        raise ValueError(f"name must be new, found {name!r} twice")
    _STUDIES[name] = Entry(name, title, module, function)


def names() -> list[str]:
    """The names of all studies.

    >>> from trimol.reproduce import names
    >>> names()[:3]
    ['fig1', 'fig2', 'fig3']
    """
    return list(_STUDIES)


def get(name: str) -> Entry:
    """A study by name.

    >>> from trimol.reproduce import get
    >>> get("fig3").title
    'Figure 3: the three errors of MoDo in the strongly convex case, over T, α and γ'
    """
    if name not in _STUDIES:
        raise ValueError(f"study must be one of {', '.join(_STUDIES)}, found {name!r}")
    return _STUDIES[name]


def run(
    name: str,
    folder: Path | str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    watch: Watch | None = None,
    full: bool = False,
) -> Study:
    """Run a study and save it in ``folder/name/``; what is done already is not done again.

    Args:
        name: One of `names()`.
        folder: Where studies are kept.
        quick: Fewer seeds and steps: to see whether it works, not what is true.
        seeds: How many seeds (or trials), instead of the study's own number.
        watch: Called with (done, total), now and then.
        full: As far as the paper went, where a study goes less far by default: hours.

    Returns:
        The study, as it was saved.
    """
    entry = get(name)
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, found {seeds}")
    root = Path(folder)
    context = Context(root / name, root / "parts", root, quick, seeds, watch, full)
    context.folder.mkdir(parents=True, exist_ok=True)
    study = entry.build()(context)
    flags = "".join(f" --{flag}" for flag, on in (("quick", quick), ("full", full)) if on)
    options = f"{flags}{'' if seeds is None else f' --seeds {seeds}'}"
    return results.save(
        replace(study, command=f"trimol reproduce {name}{options}", environment=environment()),
        context.folder,
    )
