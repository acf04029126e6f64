"""The README's examples run, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
import torch

import trimol

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_first_example_runs(capsys):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    torch.manual_seed(0)
    exec(compile(code, "README.md", "exec"), {})
    assert re.match(r"opt \S+ · pop \S+ · gen \S+ · conflict \S+", capsys.readouterr().out)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#]+)", prose)
    local = [link for link in links if not link.startswith("http")]
    missing = [link for link in local if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", trimol.methods.names())
def test_every_method_is_in_the_documentation(name):
    method = trimol.methods.get(name)
    page = (ROOT / "docs" / "reference" / "methods.md").read_text()
    assert f"| `{method.__name__}` | {method.summary}" in page
    assert f"\nmethods/{name}\n" in page
    assert f"\n| {name} | " in page  # in the table of R_opt
