"""The study of weights that are kept: all seeds in every row, and no row is made twice."""

import json


def test_rows_are_made_once(run_script, tmp_path):
    file = tmp_path / "found.json"
    command = ["benchmarks/staleness.py", "--tasks", "quadratic", "--methods", "modo"]
    command += ["--seeds", "3", "--steps", "37", "--json", file]
    first = run_script(*command)
    rows = json.loads(file.read_text())["rows"]
    assert [row["every"] for row in rows] == [1, 3, 10, 30]
    assert len(first.splitlines()) == 4
    assert all(len(row[name]) == 3 for row in rows for name in ("R_opt", "E_ca", "test"))
    # The same data and start; weights that are kept for longer make another run.
    assert rows[0]["R_opt"] != rows[3]["R_opt"]
    assert all("p E_ca" in row for row in rows[1:])
    assert run_script(*command) == ""
    assert json.loads(file.read_text())["rows"] == rows


def test_a_task_without_a_gamma_of_its_own(load_script):
    study = load_script("benchmarks/staleness.py")
    row = study.row_of("scenes", "modo", 3, seeds=1, steps=25)
    assert row["steps"] == 5
    assert all(value >= 0 for measure in ("R_opt", "E_ca", "test") for value in row[measure])
