"""Write a page about the runs and studies in a folder, and its figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from trimol.cli._lines import echo
from trimol.cli._parse import parse
from trimol.cli._reporting import FAILED, UsageError, print_json
from trimol.cli._values import folder_path, typed


@dataclass(frozen=True)
class Options:
    """Write a page about the runs and studies in a folder, and its figures.

    The page is one file that opens without a network; the figures lie beside it as SVG and PDF.
    Runs that are not finished, and files that cannot be read, are named on stderr and on the page;
    the exit code is 1 if something could not be read, and the page has all the rest.
    """

    folder: Positional[Annotated[Path, typed(folder_path, "DIR")]]
    """The folder: of one run, of a comparison, or with several of them below it."""
    json: bool = False
    """Print the paths as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    options = parse(Options, arguments, "report")
    if not options.folder.is_dir():
        raise UsageError(f"DIR must be a folder with runs in it, found {str(options.folder)!r}")
    from trimol.report._page import write_page

    page, unfinished, left_out = write_page(options.folder)
    figures = sorted((options.folder / "figures").glob("*"))
    files = [str(path) for path in (page, *figures)]
    if options.json:
        print_json({"files": files, "unfinished": unfinished, "left_out": left_out})
    else:
        if figures:
            echo(f"{len(figures)} figures, as SVG and PDF, in {figures[0].parent}")
        echo(f"Open {page}")
    for line in (*unfinished, *(f"left out: {line}" for line in left_out)):
        echo(f"trimol: {line}", error=True)
    return FAILED if left_out else 0
