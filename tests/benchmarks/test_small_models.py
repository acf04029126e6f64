"""The benchmark runs as documented and writes what the documentation shows."""

import json

import pytest

pytest.importorskip("torchjd", reason="needs the extra 'torchjd'")


@pytest.mark.filterwarnings("ignore")
def test_writes_a_row_for_every_contestant_and_shape(run_script, tmp_path):
    file = tmp_path / "found.json"
    few = ["--networks", "small mlp", "--objectives", 2, "--seconds", 0]
    run_script("benchmarks/small_models.py", *few, "--json", file)
    rows = json.loads(file.read_text())["rows"]
    ratios = {(row["shape"], row["contestant"]): row["ratio"] for row in rows}
    assert {name for shape, name in ratios if shape == "heads"} == {"plain, two halves", "MoDo"}
    assert {name for shape, name in ratios if shape == "vector"} == {
        *("plain, two halves", "MoDo", "MGDA", "upgrad", "bare loop"),
        *("TorchJD MoDo", "TorchJD MGDA"),
    }
    assert all(value > 0 for value in ratios.values())
