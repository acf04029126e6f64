"""Arguments → a command's options, by tyro; what is wrong with them in one line."""

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import tyro

from trimol._failures import meant
from trimol.cli._lines import stream
from trimol.cli._reporting import UsageError

OptionsT = TypeVar("OptionsT")

# What tyro says, and how our other messages say it.
_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^Missing from [^:]*: (\S+)", r"missing \1:"),
    (r"^Missing value for argument '(\S+)'.*", r"\1 must have a value, found none"),
    (
        r"^invalid choice (.+) for argument '(\S+)'\. Expected one of \((.*)\)$",
        lambda m: f"{m[2]} must be one of {m[3].replace(chr(39), '')}, found {m[1]}",
    ),
    (r"^Error parsing (\S+): ", r"\1 "),
)


def parse(options: type[OptionsT], arguments: Sequence[str], command: str) -> OptionsT:
    """A command's options from its arguments; after help was printed, SystemExit."""
    _check_flags(options, arguments, command)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(stream()):
            return tyro.cli(
                options,
                prog=f"trimol {command}",
                args=list(arguments),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UsageError(f"{one_line(said.getvalue())} (see trimol {command} --help)") from None


def _check_flags(options: type[Any], arguments: Sequence[str], command: str) -> None:
    """Refuse a flag that the command does not have, before tyro misses what it took the place of.

    >>> from dataclasses import make_dataclass
    >>> _check_flags(make_dataclass("O", ["steps"]), ["--stesp", "5"], "x")
    Traceback (most recent call last):
    trimol.cli._reporting.UsageError: unknown flag --stesp (did you mean --steps?) (see trimol x --help)
    """  # noqa: E501
    own = [*(_flag(field.name) for field in fields(options)), "help"]
    for argument in arguments:
        name = _flag(argument.removeprefix("--").partition("=")[0])
        if argument.startswith("--") and name not in own and not name.startswith("tyro-"):
            near = meant(name, own, "--")
            raise UsageError(f"unknown flag --{name}{near} (see trimol {command} --help)")


def split_flags(
    arguments: Sequence[str], options: type[Any]
) -> tuple[list[str], dict[str, str | None]]:
    """A command's own arguments, and the other flags, as typed, with their values or None.

    >>> from dataclasses import make_dataclass
    >>> split_flags(["--gamma", "-1", "digits", "--steps=5"], make_dataclass("O", ["steps"]))
    (['digits', '--steps=5'], {'gamma': '-1'})
    """
    own = {_flag(field.name) for field in fields(options)} | {"help"}
    left: list[str] = []
    others: dict[str, str | None] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or _flag(name) in own:
            left.append(argument)
        elif equals:
            others[name] = value
        else:
            has_value = bool(waiting) and not waiting[0].startswith("--")
            others[name] = waiting.pop(0) if has_value else None
    return left, others


def pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping.

    >>> pairs(["hidden=128"], "option")
    {'hidden': '128'}
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--{flag} must be NAME=VALUE, found {text!r}")
        values[name] = value
    return values


def one_line(box: str) -> str:
    """What tyro says in a box on several lines, without the box, the title and the pointers.

    >>> box = '''
    ... ╭─ Value error ─────────────────────────────────────────────────────────────────╮
    ... │ Error parsing --steps: must be a whole number of at least 1, found 'x'        │
    ... │ ───────────────────────────────────────────────────────────────────────────── │
    ... │ For full helptext, see trimol run --help                                      │
    ... ╰───────────────────────────────────────────────────────────────────────────────╯'''
    >>> one_line(box)
    "--steps must be a whole number of at least 1, found 'x'"
    """
    # Without UTF-8 there is no frame, and a rule under the title.
    framed, lines = "│" in box, [line.strip(" │") for line in _plain(box).strip().splitlines()]
    rules = [i for i, line in enumerate(lines) if len(line) > 2 and not line.strip("─-")]
    first, last = (0, rules[:1]) if framed else (rules[0] if rules else 0, rules[1:2])
    inside = lines[first + 1 : last[0] if last else len(lines)]
    said = re.sub(r"\s+", " ", " ".join(inside)).strip()
    said = said.replace("(required)", "").strip().removesuffix(".")
    for theirs, ours in _WORDS:
        said = re.sub(theirs, ours, said)
    return said or "bad arguments"


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _flag(name: str) -> str:
    return name.replace("_", "-")
