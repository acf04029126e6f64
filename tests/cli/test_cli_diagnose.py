"""`trimol diagnose`, as a user types it."""

import json
from pathlib import Path

import pytest

from trimol.cli import main

TUG = f"{Path(__file__).parents[1] / 'compare' / 'contest_tasks.py'}:Tug"
SMALL = "--steps 12 --batch-size 8 --budget 14 --jobs 1 --methods mgda"


def run(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    code = main(["diagnose", *given])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_from_the_command_to_the_page(capsys, tmp_path):
    out = str(tmp_path / "study")
    code, text, progress = run(capsys, TUG, *SMALL.split(), "--out", out)
    assert code == 0
    first = " ".join(text.split("\n\n")[0].split())
    assert first.startswith(("Stay with static, weights (", "Use mgda", "Undecided: mgda is "))
    assert "difference" in text
    assert "mgda" in text
    plan = " ".join(progress.split())
    assert "14 trainings: 4 try settings of static weights and a method, then the best" in plan
    assert "At most about 1 minute, 1 at a time." in plan
    code, text, progress = run(capsys, TUG, *SMALL.split(), "--out", out, "--json", "--quiet")
    found = json.loads(text)
    assert (code, progress) == (0, "")
    assert list(found)[:4] == ["regime", "use", "sentence", "evidence"]
    assert found["regime"] in ("none", "scales", "direction", "noise", "stationary")
    assert found["sentence"] == first
    wanted = {"static": 0, "mgda": 3, "undecided": 4}[found["use"]]
    assert run(capsys, TUG, *SMALL.split(), "--out", out, "--exit-code", "--quiet")[0] == wanted
    assert main(["report", out]) == 0
    page = (Path(out) / "report.html").read_text(encoding="utf-8")
    assert found["sentence"].partition(":")[0] in page
    # One verdict a page.
    assert "final runs of the diagnosis above" in page
    assert "better than static" not in page.replace(found["sentence"], "")


def test_a_look_alone(capsys, tmp_path):
    code, text, _ = run(capsys, TUG, "--look-only", "--batch-size", "8", "--out", str(tmp_path))
    assert code == 0
    said = " ".join(text.split())
    assert "No method was tried; conflict that comes later in training was not seen." in said
    assert "The losses (" not in said  # their evidence is in the sentence


def test_the_batch_size_is_the_tasks_own(capsys, tmp_path):
    """The toy has 20 samples, fewer than the batch that is usual elsewhere."""
    given = ["toy", "--option", "data=drawn", "--look-only", "--steps", "40"]
    code, text, _ = run(capsys, *given, "--out", str(tmp_path))
    assert (code, "No method was tried;" in " ".join(text.split())) == (0, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("nothing",), "task must be one of"),
        (("digits", "--methods", "nothing"), "unknown method 'nothing'"),
        (("digits", "--methods", "static"), "--methods must be other than static"),
        (("digits", "--methods", "smg"), "whose batches grow"),
        (("digits", "--budget", "0"), "budget"),
        (("digits", "--hours", "-1"), "hours"),
        (("digits", "--hours", "1", "--budget", "5"), "give --budget or --hours, not both"),
        (("digits", "--current", "gamma=1"), "--current must be weights=W,W,… or lr=ALPHA"),
        (("digits", "--current", "lr=fast"), "--current lr must be numbers, found 'fast'"),
        (("digits", "--option", "x=1"), "has no option 'x'"),
        ((TUG.replace("Tug", "Sampled"),), "sampled must have validation data"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, given, said):
    code, out, err = run(capsys, *given, "--out", str(tmp_path / "x"))
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "x").exists()
