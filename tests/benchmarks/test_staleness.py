"""The study of weights that are kept: all seeds in every row, and no row is made twice."""

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "staleness.py"


def test_rows_are_made_once(tmp_path):
    file = tmp_path / "found.json"
    command = [sys.executable, str(FILE), "--tasks", "quadratic", "--methods", "modo"]
    command += ["--seeds", "3", "--steps", "37", "--json", str(file)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(file.read_text())["rows"]
    assert [row["every"] for row in rows] == [1, 3, 10, 30]
    assert len(first.stdout.splitlines()) == 4
    assert all(len(row[name]) == 3 for row in rows for name in ("R_opt", "E_ca", "test"))
    # The same data and start; weights that are kept for longer make another run.
    assert rows[0]["R_opt"] != rows[3]["R_opt"]
    assert all("p E_ca" in row for row in rows[1:])
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == ""
    assert json.loads(file.read_text())["rows"] == rows
