"""The benchmark of real models on tiny ones: what each contestant says, and that rows are kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "real_models.py"
NAMES = ["plain", "MoDo", "MoDo, cost=0.25", "MGDA"]


@pytest.mark.slow
def test_tiny_models_are_measured_once(tmp_path):
    for needed in ("transformers", "torchjd"):
        pytest.importorskip(needed)
    file = tmp_path / "found.json"
    command = [sys.executable, "-W", "ignore", str(FILE), "--tiny", "--models", "gpt2", "--rounds"]
    command += ["1", "--objectives", "3", "--json", str(file), "--contestants", *NAMES]
    subprocess.run(command, capture_output=True, check=True)
    rows = {row["contestant"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == NAMES
    assert all(row["ratio"] > 0 and row["MB"] > 0 for row in rows.values())
    assert rows["MoDo"]["said"]["route"] == "tangents"
    assert rows["MGDA"]["said"]["extra"] == pytest.approx(2 / 1.5)
    # 0.67 of a step, paid by three of 0.25 each: weights are new at every third step.
    assert (rows["MoDo, cost=0.25"]["said"]["steps"], rows["MoDo, cost=0.25"]["said"]["waits"]) == (
        3,
        2,
    )
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '"contestant"' not in again.stdout
