"""What the pages show first, runs; what they take from an example file is there."""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
# Pages whose first example is complete: copied into a file, it runs.
COMPLETE = [
    "index",
    "reference/api",
    "start/which-method",
    "howto/diagnose",
    "howto/distributed",
    "howto/heads",
    "howto/integrations",
    "howto/many-objectives",
    "howto/missing-labels",
    "howto/pinn",
    "howto/precision",
    "howto/preferences",
    "howto/resume",
    "howto/step-sizes",
]
FIRST = re.compile(r"```(?:\{code-block\} )?python\n(?::.*\n)*(.*?)```", re.DOTALL)
INCLUDES = re.compile(r"```\{literalinclude\} (\S+)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", COMPLETE)
def test_the_first_example_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torchrun = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    code = FIRST.search((DOCS / f"{page}.md").read_text())[1]
    torch.manual_seed(0)
    exec(compile(code, page, "exec"), {})


def _included():
    for page in sorted(DOCS.rglob("*.md")):
        for file, options in INCLUDES.findall(page.read_text()):
            yield pytest.param(page, file, options, id=f"{page.stem}-{Path(file).stem}")


@pytest.mark.parametrize(("page", "file", "options"), list(_included()))
def test_the_places_that_a_page_takes_from_a_file_are_there(page, file, options):
    source = (page.parent / file).read_text()
    places = re.findall(r":(?:start-at|end-before): \"?([^\"\n]+)", options)
    assert places
    assert all(place in source for place in places)
    assert source.index(places[0]) < source.index(places[-1])
