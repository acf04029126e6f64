"""Passes of weights by products are counted in a training, as docs/understand/cost.md has them."""

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "products.py"


def test_products_take_fewer_passes_than_all_gradients(tmp_path):
    command = [sys.executable, str(FILE), "--networks", "digits", "--objectives", "32"]
    command += ["--steps", "10", "--no-time", "--json", str(tmp_path / "found.json")]
    subprocess.run(command, capture_output=True, check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    passes = {row["contestant"]: row["passes"] for row in found["rows"]}
    assert set(passes) == {"MGDA, gap 0.3", "MGDA, gap 0.1", "MGDA, gap 0.01", "CAGrad, gap 0.1"}
    # Few steps, and the first of a training: how they compare with each other is chance.
    assert passes["MGDA, gap 0.3"] < 1
    assert passes["MGDA, gap 0.1"] < 1
    assert passes["CAGrad, gap 0.1"] < 1
