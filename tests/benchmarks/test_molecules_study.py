"""The study of molecules, quick and on few molecules: it runs, and goes on where it stopped."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from trimol.runs import _storage as files


@pytest.fixture
def molecules(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files in the layout of the package."""
    made = load_script("tests/tasks/molecules/test_qm9.py")
    monkeypatch.setenv("TRIMOL_DATA", str(tmp_path))
    monkeypatch.setenv("TRIMOL_CACHE", str(tmp_path / "cache"))
    made.qm9._held.cache_clear()
    (tmp_path / "qm9").mkdir()
    for number, name in enumerate(made.PARTS):
        lines = [made.line(n) for n in range(40 * number, 40 * number + 40)]
        (tmp_path / "qm9" / name).write_text("\n".join([",".join(made.HEADER), *lines, ""]))


@pytest.mark.slow
def test_a_quick_study_and_that_it_goes_on(
    molecules: None,
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = load_script("benchmarks/molecules.py")
    out = tmp_path / "found.json"
    given = ["molecules.py", "--quick", "--work", str(tmp_path / "runs"), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [*given, "--steps", "1", "--rounds", "1"])
    script.main()
    first = files.read_json(out)
    written = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("summary.json")}
    script.main()
    assert written == {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("summary.json")}
    assert len(written) == 2 + 11  # two methods, and single-task learning of each property
    assert files.read_json(out)["rows"] == first["rows"]
    told = {(row["method"], row["metric"]): row["mean"] for row in first["rows"]}
    assert len([key for key in told if key[0] == "static" and key[1].endswith("MAE")]) == 11
    assert set(first["costs"]) == {"plain", "static", "famo"}
    single = {m: told["alone", m] for who, m in told if who == "alone" and m.endswith("MAE")}
    drops = [told["static", m] / single[m] - 1 for m in single]
    assert told["static", "Δm"] == pytest.approx(100 * sum(drops) / 11, rel=1e-6)
    assert "Δm" in capsys.readouterr().out
