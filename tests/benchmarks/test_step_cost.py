"""The benchmark runs as documented and prints what the documentation shows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "step_cost.py"


@pytest.mark.slow
def test_prints_a_row_for_every_contestant():
    command = [sys.executable, str(FILE), "--networks", "mlp", "--objectives", "2", "--json"]
    command += ["--seconds", "0", "--contestants", "MoDo", "MGDA", "loop of backwards"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    times = {row["contestant"]: row["ratio"] for row in rows if "ratio" in row}
    assert set(times) == {"MoDo", "MGDA", "loop of backwards"}
    assert all(value > 0 for value in times.values())
    memory = {row["contestant"]: row["megabytes"] for row in rows if "megabytes" in row}
    assert set(memory) == {"plain", *times}
    assert all(value > 0 for value in memory.values())
