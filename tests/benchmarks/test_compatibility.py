"""What the command that tries other releases of torch makes of its runs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "compatibility.py"
ROW = {"torch": "2.10.0+cu128", "python": "3.13.0", "passed": 2, "skipped": 0, "failed": 0}


@pytest.fixture(scope="module")
def compatibility() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compatibility", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_run_counts_what_passed_was_skipped_and_failed(
    compatibility: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "test_four.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_left_out(): pytest.skip('no')\n"
        "@pytest.fixture\n"
        "def broken(): raise ValueError\n"
        "def test_not_set_up(broken): pass\n"
    )
    found = compatibility.tested(Path(sys.executable), [str(tmp_path)], tmp_path / "report.xml")
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["torch"].startswith("2.")
    assert {k: found[k] for k in ("passed", "skipped", "failed")} == {
        "passed": 1,
        "skipped": 1,
        "failed": 2,
    }
    assert [name.split("::")[-1] for name in found["failures"]] == ["test_bad", "test_not_set_up"]


def test_a_new_run_takes_the_place_of_the_old_one_in_the_order_of_releases(
    compatibility: ModuleType,
) -> None:
    found = {"rows": [ROW]}
    for row in (ROW | {"torch": "2.6.0+cu124"}, ROW | {"passed": 3}, ROW | {"torch": "2.8.0"}):
        found = compatibility.with_row(found, row)
    assert [row["torch"] for row in found["rows"]] == ["2.6.0+cu124", "2.8.0", "2.10.0+cu128"]
    assert found["rows"][2]["passed"] == 3
