"""What MoDo sends beyond a plain step: one gradient and a few numbers, as the docs say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "traffic.py"
OBJECTIVES = 5


@pytest.mark.slow
def test_modo_adds_one_gradient_and_a_few_numbers():
    command = [sys.executable, str(FILE), "--processes", "2", "--width", "16", "--steps", "2"]
    command += ["--objectives", str(OBJECTIVES), "--samples", "8", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = {row["contestant"]: row for row in map(json.loads, done.stdout.splitlines())}
    plain = rows["plain DDP"]
    gradient = 4 * plain["parameters"]
    assert (plain["own"], plain["other"]) == (gradient, 0)
    for name in ("MoDo", "MoDo simultaneous"):
        row = rows[name]
        assert row["own"] == gradient
        assert (row["large"], row["small"]) == (1, 2)
        # The product, M numbers, and what tells which objectives there are, in float64.
        assert 8 * OBJECTIVES < row["other"] - gradient <= 8 * (7 * OBJECTIVES + 12)
    assert rows["MGDA"]["other"] >= OBJECTIVES * gradient
