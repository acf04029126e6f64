"""The tables of docs/mnist.md are those of the committed results."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "results").glob("*.json"))


def test_the_page_holds_what_was_measured(load_script) -> None:
    measured = load_script("docs/measured.py")
    page = measured.PAGE.read_text(encoding="utf-8")
    assert measured.filled(page) == page
    for path in RESULTS:
        assert f"<!-- measured: {path.stem} -->" in page


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_say_where_they_are_from(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["study"] == path.stem
    assert found["command"] == f"trimol reproduce {path.stem}"
    assert found["created"].startswith("20")
    assert len(found["environment"]["commit"]) == 40


def test_a_number_that_changes_changes_the_page(load_script, monkeypatch) -> None:
    measured = load_script("docs/measured.py")
    page = "<!-- measured: table3 -->\nold\n<!-- end -->"
    found = measured.study("table3")
    found["rows"][0]["mean"] = 0.5
    monkeypatch.setattr(measured, "study", lambda name: found)
    assert "500.0 ±" in measured.filled(page)
    monkeypatch.setattr(measured, "study", lambda name: None)
    assert "Not measured yet: `trimol reproduce table3`." in measured.filled(page)
