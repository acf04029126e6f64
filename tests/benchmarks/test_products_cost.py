"""Passes of weights by products are counted in a training, as docs/cost.md has them."""

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[2] / "benchmarks" / "products.py"


def test_products_take_fewer_passes_than_all_gradients():
    command = [sys.executable, str(FILE), "--networks", "digits", "--objectives", "32"]
    command += ["--steps", "10", "--no-time", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    passes = {row["contestant"]: row["passes"] for row in json.loads(run.stdout)["rows"]}
    assert set(passes) == {"MGDA, gap 0.3", "MGDA, gap 0.1", "MGDA, gap 0.01", "CAGrad, gap 0.1"}
    # Few steps, and the first of a training: how they compare with each other is chance.
    assert passes["MGDA, gap 0.3"] < 1
    assert passes["MGDA, gap 0.1"] < 1
    assert passes["CAGrad, gap 0.1"] < 1
