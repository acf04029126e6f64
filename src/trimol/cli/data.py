"""Data sets: which are there (trimol data), and fetch one (trimol data get mnist)."""

import json as json_format
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from trimol.cli.failures import UsageError, usage
from trimol.cli.parse import parse
from trimol.data import files
from trimol.data.files import Source, Watch


@dataclass(frozen=True)
class Options:
    """Say which data sets are there, or fetch some from the network and verify them."""

    action: tyro.conf.Positional[Literal["list", "get"]] = "list"
    """list: what is there; get: fetch what is missing of the named data sets."""
    names: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")]] = ()
    """The data sets to fetch."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Under which folder; by default $TRIMOL_DATA, or the user's cache if that is not set."""
    mirror: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ADDRESS")] = ()
    """Addresses to fetch from, instead of the known ones."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "data")
    if options.action == "get":
        return _get(options)
    if options.names:
        raise UsageError(f"to fetch a data set: trimol data get {' '.join(options.names)}")
    return _list(options)


def _list(options: Options) -> int:
    found = [_state(source) for source in files.sources().values()]
    if options.json:
        print(json_format.dumps(found, indent=1))
        return 0
    for state in found:
        print(f"{state['data']:<9} {state['title']}")
        print(f"{'':<9} {state['where'] or 'not here: trimol data get ' + str(state['data'])}")
    return 0


def _state(source: Source) -> dict[str, str | None]:
    """Where a data set is, if all of its files are there; whether they are sound is for `get`."""
    try:
        where = [files.locate(source.name, file.name).parent for file in source.files]
    except files.MissingData:
        where = []
    return {
        "data": source.name,
        "title": source.title,
        "where": str(where[0]) if where else None,
    }


def _get(options: Options) -> int:
    if not options.names:
        raise UsageError(f"name what to get: {', '.join(files.sources())}")
    with usage():
        wanted = [files.source(name) for name in options.names]
    mirrors = [m if m.endswith("/") else f"{m}/" for m in options.mirror] or None
    paths = []
    for source in wanted:
        with _progress() as watch:
            paths += files.get(source, options.out, mirrors=mirrors, watch=watch)
    if options.json:
        print(json_format.dumps({"files": [str(path) for path in paths]}, indent=1))
    else:
        print("\n".join(f"{path}: there and verified" for path in paths))
    return 0


@contextmanager
def _progress() -> Iterator[Watch]:
    """A bar for each file, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True)) as progress:
        bars = {}

        def watch(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total)
            progress.update(bars[name], completed=done)

        yield watch
