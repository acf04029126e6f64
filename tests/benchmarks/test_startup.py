"""The benchmark runs as documented and prints what the documentation shows."""

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "startup.py"


def test_prints_a_row_for_every_command():
    names = ["python -c pass", "trimol --version"]
    command = [sys.executable, str(FILE), "--rounds", "1", "--json", "--contestants", *names]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row["command"] for row in rows] == names
    assert all(row["seconds"] >= row["least"] > 0 and row["processor"] > 0 for row in rows)
