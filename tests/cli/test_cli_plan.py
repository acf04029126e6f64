"""``trimol plan``: what it prints, and its one line for bad arguments."""

import json

import pytest

from trimol.cli import main, plan
from trimol.cli._reporting import UsageError


def test_text(capsys):
    assert plan.main(["10000", "--objective", "risk"]) == 0
    out = capsys.readouterr().out
    assert "T = 464" in out
    assert "given up: the distance from the conflict-avoiding direction" in out


def test_the_measured_alternative_is_offered_and_runs(tmp_path, monkeypatch, capsys):
    assert plan.main(["40", "--steps", "3"]) == 0
    out = capsys.readouterr().out
    assert "An order says how an error moves with n. It does not say how large" in out
    commands = [line.strip() for line in out.splitlines() if line.startswith("  trimol compare ")]
    assert len(commands) == 3
    assert plan.main(["40", "--steps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measure"] == commands
    monkeypatch.chdir(tmp_path)
    arguments = commands[0].replace("TASK", "quadratic").split()[1:]
    assert main([*arguments, "--batch-size", "8", "--seeds", "1", "--quiet"]) == 0


def test_json(capsys):
    flags = ["--ell-f", "1", "--ell-f1", "2", "--losses", "3", "--c-f", "1", "--mu", "0.5"]
    assert plan.main(["1e4", "--steps", "500", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n"], found["T"], found["strongly_convex"]) == (10_000, 500, True)
    assert found["bounds"].keys() == {"R_opt", "R_gen", "R_pop", "E_ca"}
    assert found["exponents"]["E_caw"] is None  # without ρ there is no bound: no exponent
    assert found["refused"] == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing"),
        (["1"], "N must be a whole number of at least 2, found '1'"),
        (["100", "--ell-f", "1"], "given together, missing --ell-f1 and --losses"),
        (["100", "--objective", "speed"], "speed"),
        (
            ["100", "--ell-f", "1", "--ell-f1", "2", "--losses", "3", "--mu", "4"],
            "mu must be at most ell_f1 = 2, found 4",
        ),
    ],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(UsageError, match=said):
        plan.main(arguments)
