"""Studies by name: what ``trimol reproduce NAME`` runs. They are listed in ``studies.toml``.

A name and its title are known without torch or polars; what a study needs is imported when it runs.
"""

import importlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from trimol._checks import number_of_runs
from trimol._failures import BadValue
from trimol._files import make_folder

if TYPE_CHECKING:
    from trimol.runs.study import Study

Watch = Callable[[int, int], None]
Regime = Literal["frozen", "finetune"]
Budget = Literal["equal", "paper"]
# What only some studies can be told, and what it may be; the first is what is done otherwise.
OPTIONS: dict[str, tuple[str, ...]] = {"regime": get_args(Regime), "budget": get_args(Budget)}


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
        regime: Whether a pretrained backbone is frozen, or trained with the rest.
        budget: Whether every method takes as many samples and steps as the others alone, or those
            that draw several batches also what the paper gave them.
        on: A Ray cluster for its runs (`trimol.runs.execute_all`).
    """

    folder: Path
    parts: Path
    root: Path
    quick: bool = False
    seeds: int | None = None
    watch: "Watch | None" = None
    full: bool = False
    regime: Regime = "frozen"
    budget: Budget = "equal"
    on: str | None = None

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
        options: Which of `OPTIONS` it takes.
        apart: Whether it is run by its own name only, as it needs data or a machine that few have.
        spread: Whether it consists of runs, which a cluster can take.
    """

    name: str
    title: str
    module: str
    function: str
    options: tuple[str, ...] = ()
    apart: bool = False
    spread: bool = False

    def checked(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Every option's value, or its default.

        Args:
            given: What a user said; None where nothing was said.

        Raises:
            ValueError: The study does not take an option, or not this value.
        """
        for option, value in given.items():
            if value is not None and option not in self.options:
                takes = " and ".join(self.options) or "no such option"
                raise BadValue(f"{self.name} takes {takes}, found {option} {value!r}")
            if value is not None and value not in OPTIONS[option]:
                known = ", ".join(OPTIONS[option])
                raise BadValue(f"{option} must be one of {known}, found {value!r}")
        return {name: given.get(name) or OPTIONS[name][0] for name in OPTIONS}

    def build(self) -> "Callable[[Context], Study]":
        """The function, imported."""
        function: Callable[[Context], Study] = getattr(
            importlib.import_module(self.module), self.function
        )
        return function


_STUDIES: dict[str, Entry] = {}


def register(
    name: str,
    title: str,
    module: str,
    function: str,
    *,
    options: Sequence[str] = (),
    apart: bool = False,
    spread: bool = False,
) -> None:
    """Add a study. Nothing is imported before it is run.

    Args:
        name: What it is called on the command line.
        title: One line for people.
        module: Where it is.
        function: The function in it, from a `Context` to a `Study`.
        options: Which of `OPTIONS` it takes.
        apart: Whether it is run by its own name only.
        spread: Whether it consists of runs, which a cluster can take.
    """
    if name in _STUDIES:
        raise BadValue(f"name must be new, found {name!r} twice")
    _STUDIES[name] = Entry(name, title, module, function, tuple(options), apart, spread)


def names() -> list[str]:
    """The names of all studies.

    >>> from trimol.paper import names
    >>> names()[:3]
    ['fig1', 'fig2', 'fig3']
    """
    return list(_STUDIES)


def get(name: str) -> Entry:
    """A study by name.

    >>> from trimol.paper import get
    >>> get("fig3").title
    'Figure 3: the three errors of MoDo in the strongly convex case, over T, α and γ'
    """
    if name not in _STUDIES:
        raise BadValue(f"study must be one of {', '.join(_STUDIES)}, found {name!r}")
    return _STUDIES[name]


def run(
    name: str,
    folder: Path | str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    watch: "Watch | None" = None,
    full: bool = False,
    regime: Regime | None = None,
    budget: Budget | None = None,
    on: str | None = None,
) -> "Study":
    """Run a study and save it in ``folder/name/``; what is done already is not done again.

    The regime that is not the default has a folder of its own, ``folder/name-regime/``. A budget
    adds rows to a study and stays in its folder.

    Args:
        name: One of `names()`.
        folder: Where studies are kept.
        quick: Fewer seeds and steps: to see whether it works, not what is true.
        seeds: How many seeds (or trials), instead of the study's own number.
        watch: Called with (done, total), now and then.
        full: As far as the paper went, where a study goes less far by default: hours.
        regime: ``"frozen"`` or ``"finetune"``, for studies with a pretrained backbone.
        budget: ``"equal"`` or ``"paper"``, for studies where the paper's budgets were unequal.
        on: A Ray cluster for the study's runs (`trimol.runs.execute_all`); a study of formulas,
            which has none, is computed here.

    Returns:
        The study, as it was saved.
    """
    from trimol.runs import study as results
    from trimol.runs._environment import environment

    entry = get(name)
    if seeds is not None and seeds < 1:
        raise BadValue(f"seeds must be at least 1, found {seeds}")
    number_of_runs("seeds", seeds or 0)
    given = {"regime": regime, "budget": budget}
    chosen = entry.checked(given)
    root = Path(folder)
    context = Context(
        root / _home(name, chosen["regime"]),
        root / "parts",
        root,
        quick,
        seeds,
        watch,
        full,
        cast("Regime", chosen["regime"]),
        cast("Budget", chosen["budget"]),
        on,
    )
    make_folder(context.folder)
    try:
        study = entry.build()(context)
    except BaseException:
        with suppress(OSError):  # an empty folder is nothing to go on from; another one stays
            context.folder.rmdir()
        raise

    flags = [f"--{flag}" for flag, on in (("quick", quick), ("full", full)) if on]
    flags += [f"--{option} {value}" for option, value in given.items() if value is not None]
    flags += [] if seeds is None else [f"--seeds {seeds}"]
    command = " ".join(["trimol reproduce", name, *flags])
    return results.save(replace(study, command=command, environment=environment()), context.folder)


def _home(name: str, regime: str) -> str:
    """The name of a study's folder.

    >>> _home("table4", "frozen"), _home("table4", "finetune")
    ('table4', 'table4-finetune')
    """
    return name if regime == OPTIONS["regime"][0] else f"{name}-{regime}"


for _name, _entry in tomllib.loads(
    Path(__file__).with_name("studies.toml").read_text(encoding="utf-8")
).items():
    _module, _, _function = _entry["run"].partition(":")
    register(
        _name,
        _entry["title"],
        f"trimol.paper.{_module}",
        _function,
        options=_entry.get("options", ()),
        apart=_entry.get("apart", False),
        spread=_entry.get("spread", False),
    )
