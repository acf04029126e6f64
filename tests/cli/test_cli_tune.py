"""`trimol tune`, as a user types it."""

import json
from pathlib import Path

import pytest

from trimol.cli import main

TUG = f"{Path(__file__).parents[1] / 'compare' / 'contest_tasks.py'}:Kink"
SMALL = ["--steps", "30", "--batch-size", "8", "--budget", "6", "--jobs", "1", "--quiet"]


def test_weights_from_the_command_to_the_next(capsys, tmp_path):
    out = str(tmp_path / "tuning")
    assert main(["tune", TUG, *SMALL, "--out", out]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(("Use static, weights (", "Keep static, weights ("))
    assert "train with it on all data, the validation part included" in said
    assert main(["tune", TUG, *SMALL, "--out", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["spent"] <= 6
    assert found["sentence"] in said
    assert len(found["weights"]) == 2
    assert found["command"] in said
    given = found["command"].split()[1:]
    assert main([*given, "--steps", "5", "--batch-size", "8", "--out", str(tmp_path / "run")]) == 0


def test_few_trainings_for_what_somebody_has_now(capsys, tmp_path):
    """One loss is 17 times the other: equal weights are far from the best, and so is the rate."""
    now = ["--current", "weights=1,1", "--current", "lr=0.01"]
    given = [TUG, *SMALL, *now, "--budget", "16", "--json", "--out", str(tmp_path)]
    assert main(["tune", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"][0]["lr"] == 0.01
    assert found["lr"] > 0.01
    assert found["weights"][0] < 0.5
    assert found["gain"] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("nothing",), "task must be one of"),
        ((TUG, "--budget", "0"), "--budget must be a whole number of at least 1"),
        ((TUG, "--current", "weights=1,2,3"), "current weights must be 2 numbers above 0"),
        ((TUG, "--current", "weights"), "--current must be NAME=VALUE"),
        ((TUG, "--current", "lr=-1"), "--current lr must be above 0, found '-1'"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, given, said):
    code = main(["tune", *given, *SMALL[:4], "--quiet", "--out", str(tmp_path / "x")])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
