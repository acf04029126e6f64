"""The code on the pages about tasks and runs does what they say."""

import re
from pathlib import Path

import pytest
import torch

PAGES = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_task_in_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    file, use = blocks("howto/own-task.md")
    Path("noise.py").write_text(file)
    torch.manual_seed(0)
    exec(compile(use, "howto/own-task.md", "exec"), {})
    assert re.match(r"opt \S+ · pop \S+ · gen \S+ · conflict \S+", capsys.readouterr().out)


def test_runs_and_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("reference/runs.md")
    exec(compile(code, "reference/runs.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"modo E_ca_definition \S+ None", said)
    assert re.search(r"modo − static R_opt \S+ \S+ (True|False)", said)
