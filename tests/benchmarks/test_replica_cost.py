"""The benchmark of replicas runs as documented."""

import json


def test_prints_a_row_for_every_method(run_script):
    chosen = ["--cases", "2 k parameters, 10 seeds", "--methods", "static", "modo"]
    printed = run_script("benchmarks/replicas.py", "--rounds", 1, "--json", *chosen)
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["method"] for row in rows] == ["static", "modo"]
    assert all(row["ratio"] > 0 for row in rows)
