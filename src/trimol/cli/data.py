"""Data sets: which are there (trimol data), fetch one (trimol data get mnist), check one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import tyro

from trimol.cli._lines import echo, plain_console, say
from trimol.cli._parse import parse
from trimol.cli._reporting import FAILED, UsageError, print_json, usage
from trimol.cli._tables import CALM
from trimol.cli._values import Maybe, Texts
from trimol.data._files import datasets, fetch
from trimol.data._files.datasets import Source
from trimol.data._files.fetch import Watch


@dataclass(frozen=True)
class Options:
    """Say which data sets are there, or fetch some from the network and verify them."""

    action: tyro.conf.Positional[Literal["list", "get", "check"]] = "list"
    """list: what is there; get: fetch what is missing of those named; check: are they whole."""
    names: tyro.conf.Positional[Annotated[Texts, tyro.conf.arg(metavar="NAME")]] = ()
    """The data sets to fetch or check."""
    out: Annotated[Maybe[Path], tyro.conf.arg(metavar="DIR")] = None
    """Under which folder; by default $TRIMOL_DATA, or the user's cache if that is not set."""
    mirror: Annotated[Texts, tyro.conf.arg(metavar="ADDRESS")] = ()
    """Addresses to fetch from, instead of the known ones."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "data")
    if options.action == "list":
        if options.names:
            raise UsageError(f"to fetch a data set: trimol data get {' '.join(options.names)}")
        return _list(options)
    if not options.names:
        raise UsageError(f"name what to {options.action}: {', '.join(datasets.sources())}")
    with usage():
        wanted = [datasets.source(name) for name in options.names]
    return _get(wanted, options) if options.action == "get" else _check(wanted, options)


def words() -> Sequence[str]:
    """What may follow the command: see `trimol completion`."""
    return ["list", "get", "check", *datasets.sources()]


def _list(options: Options) -> int:
    states = [_state(source) for source in datasets.sources().values()]
    if options.json:
        print_json(states)
        return 0
    width = max(len(str(state["data"])) for state in states)
    for state in states:
        where = state["where"] or f"not here: trimol data get {state['data']}"
        say(f"{state['data']:<{width}} {state['title']}", indent=width + 1)
        licence = f"licence: {state['licence']} ({state['home']})"
        say(f"{'':<{width}} {licence}", indent=width + 3)
        echo(f"{'':<{width}} {where}")
    return 0


def _state(source: Source) -> dict[str, str | None]:
    """Where a data set is, if all of it is there; whether it is sound is for `get` and `check`."""
    where = fetch.find(source)
    return {
        "data": source.name,
        "title": source.title,
        "licence": source.licence,
        "home": source.home,
        "where": None if where is None else str(where),
    }


def _get(wanted: Sequence[Source], options: Options) -> int:
    mirrors = [_address(mirror) for mirror in options.mirror] or None
    paths = []
    for source in wanted:
        echo(f"{source.name}, licence: {source.licence} ({source.home})", error=True)
        with _progress() as watch:
            paths += fetch.get(source, options.out, mirrors=mirrors, watch=watch)
    _print(paths, options)
    return 0


def _address(mirror: str) -> str:
    """A mirror's address, with the slash that names of files go behind."""
    try:
        parts = urlsplit(mirror)
    except ValueError:  # of brackets, as around a half of an IPv6 address
        parts = urlsplit("")
    if parts.scheme not in ("http", "https", "ftp", "file") or not (parts.netloc or parts.path):
        raise UsageError(
            f"--mirror must be an address such as https://host/folder/, found {mirror!r}"
        )
    return mirror if mirror.endswith("/") else f"{mirror}/"


def _check(wanted: Sequence[Source], options: Options) -> int:
    paths, problems = [], []
    for source in wanted:
        expected, wrong = fetch.check(source, options.out)
        paths += expected
        problems += wrong
    if problems:
        echo("\n".join(f"trimol: {line}" for line in problems), error=True)
        return FAILED
    _print(paths, options)
    return 0


def _print(paths: Sequence[Path], options: Options) -> None:
    if options.json:
        print_json({"files": [str(path) for path in paths]})
    else:
        for path in paths:
            echo(f"{path}: there, {'with all its files' if path.is_dir() else 'verified'}")


@contextmanager
def _progress() -> Iterator[Watch]:
    """A bar for each file, on stderr."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    bar = BarColumn(complete_style=CALM, finished_style=CALM)
    columns = (TextColumn("{task.description}"), bar, DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=plain_console(error=True)) as progress:
        bars = {}

        def watch(name: str, done: int, total: int | None) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total)
            progress.update(bars[name], completed=done, total=total)

        yield watch
