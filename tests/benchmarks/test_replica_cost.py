"""The benchmark of replicas runs as documented."""

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "replicas.py"


def test_prints_a_row_for_every_method():
    command = [sys.executable, str(FILE), "--rounds", "1", "--json"]
    command += ["--cases", "2 k parameters, 10 seeds", "--methods", "static", "modo"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row["method"] for row in rows] == ["static", "modo"]
    assert all(row["ratio"] > 0 for row in rows)
