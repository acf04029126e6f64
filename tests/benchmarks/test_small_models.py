"""The benchmark runs as documented and writes what the documentation shows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchjd", reason="needs the extra 'torchjd'")

FILE = Path(__file__).parents[2] / "benchmarks" / "small_models.py"


def test_writes_a_row_for_every_contestant_and_shape(tmp_path):
    command = [sys.executable, "-W", "ignore", str(FILE), "--networks", "small mlp"]
    command += ["--objectives", "2", "--seconds", "0", "--json", str(tmp_path / "found.json")]
    subprocess.run(command, capture_output=True, check=True)
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    ratios = {(row["shape"], row["contestant"]): row["ratio"] for row in rows}
    assert {name for shape, name in ratios if shape == "heads"} == {"plain, two halves", "MoDo"}
    assert {name for shape, name in ratios if shape == "vector"} == {
        *("plain, two halves", "MoDo", "MGDA", "upgrad", "bare loop"),
        *("TorchJD MoDo", "TorchJD MGDA"),
    }
    assert all(value > 0 for value in ratios.values())
