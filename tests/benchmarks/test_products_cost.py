"""Passes of weights by products are counted in a training, as docs/understand/cost.md has them."""

import json


def test_products_take_fewer_passes_than_all_gradients(run_script, tmp_path):
    file = tmp_path / "found.json"
    few = ["--networks", "digits", "--objectives", 32, "--steps", 10, "--no-time"]
    run_script("benchmarks/products.py", *few, "--json", file)
    found = json.loads(file.read_text())
    passes = {row["contestant"]: row["passes"] for row in found["rows"]}
    assert set(passes) == {"MGDA, gap 0.3", "MGDA, gap 0.1", "MGDA, gap 0.01", "CAGrad, gap 0.1"}
    # Few steps, and the first of a training: how they compare with each other is chance.
    assert passes["MGDA, gap 0.3"] < 1
    assert passes["MGDA, gap 0.1"] < 1
    assert passes["CAGrad, gap 0.1"] < 1
