"""Failures: which become one line, which keep their traceback, and the exit codes."""

import os
import pickle
from pathlib import Path

import pytest

from trimol import methods
from trimol._extras import MissingExtra
from trimol._failures import BadNumber, BadType, BadValue
from trimol.cli import main
from trimol.cli._reporting import UsageError, explained, reported, usage
from trimol.runs import Interrupted, StoreError
from trimol.tasks import TaskError
from trimol.training import Diverged


def raising(error: BaseException) -> int:
    return reported(lambda: (_ for _ in ()).throw(error))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no such flag"), 2, "no such flag"),
        (Diverged("the loss is nan"), 1, "the loss is nan"),
        (StoreError("x is damaged"), 1, "x is damaged"),
        (MissingExtra("it needs rich"), 1, "it needs rich"),
        (OSError(28, "No space left on device", "runs/x"), 1, "runs/x: No space left on device"),
        (Interrupted("interrupted at step 3", 130), 130, "interrupted at step 3"),
        (Interrupted("stopped", 143), 143, "stopped"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Diverged("one\n  line"), 1, "one line"),
    ],
)
def test_what_users_cause_is_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == code
    assert capsys.readouterr().err == f"trimol: {said}\n"


@pytest.mark.parametrize("error", [KeyError("x"), ZeroDivisionError(), ValueError("not ours")])
def test_programming_errors_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        raising(error)


def test_what_the_library_says_about_a_value_is_passed_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def call() -> int:
        methods.get("nothing")
        return 0

    assert reported(call) == 1
    assert capsys.readouterr().err.endswith("found 'nothing'\n")


@pytest.mark.parametrize("kind", [BadValue, BadType, BadNumber, TaskError])
def test_a_bad_value_on_the_command_line_is_wrong_usage(kind: type[Exception]) -> None:
    with pytest.raises(UsageError, match="x must be 1"), usage():
        raise kind("x must be 1")


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, MissingExtra, StoreError])
def test_what_no_value_caused_is_no_wrong_usage(kind: type[Exception]) -> None:
    with pytest.raises(kind), usage():
        raise kind("something else")


def test_an_error_of_another_process_is_judged_by_its_class() -> None:
    ours, foreign = (
        pickle.loads(pickle.dumps(kind("x must be 1, found 2"))) for kind in (BadValue, ValueError)
    )
    assert explained(ours) == "x must be 1, found 2"
    assert explained(foreign) is None


@pytest.mark.parametrize(
    "command",
    [
        ["run", "digits"],
        ["compare", "digits", "--jobs", "1"],
        ["front", "digits", "--points", "2", "--jobs", "1"],
        ["sweep", "digits", "--lr", "0.1,1", "--option", "validation=200", "--jobs", "1"],
        ["diagnose", "digits", "--option", "validation=200", "--jobs", "1"],
        ["reproduce", "fig1", "--quick"],
    ],
    ids=lambda command: command[0],
)
def test_folders_nested_too_deeply_are_one_line_and_none_is_made(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [] if command[0] == "reproduce" else ["--steps", "2"]
    assert main([*command, *steps, "--quiet", "--out", "a/" * 2000]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "at most 200 nested folders are allowed, found 2" in said
    assert len(said) < 500
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("sweep --lr log:1..2:99999999999", "--lr log:1..2:99999999999"),
        ("sweep --lr lin:1..2:200 --set modo.gamma=lin:1..2:200", "the grid of lr, gamma"),
        ("sweep --set static.weights=simplex:99999999999", "the grid of weights"),
        ("sweep --set pcgrad.seed=int:1..99999999999", "the grid of seed"),
        ("sweep --lr log:1e-3..1 --trials 99999999999", "methods × trials × seeds"),
        ("sweep --lr 0.1,1 --seeds 99999999999", "methods × trials × seeds"),
        ("front --points 99999999", "points"),
        ("front --refine 99999999", "(points + refine) × by × seeds"),
        ("front --seeds 99999999", "(points + refine) × by × seeds"),
        ("compare --seeds 99999999999", "seeds × methods"),
        ("diagnose --budget 99999999999", "budget"),
        ("tune --budget 99999999999", "budget"),
    ],
)
def test_more_runs_than_can_be_listed_are_refused_at_once(
    command: str,
    asked: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *rest = command.split()
    methods = ["--methods", rest[-1].partition(".")[0]] if "--set" in rest else []
    task = ["digits", "--option", "validation=200", "--steps", "9", "--jobs", "1", "--quiet"]
    assert main([name, *task, *rest, *methods]) in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith(f"trimol: {asked} must ask for at most 20000 runs, found ")
    assert said.count("\n") == 1
    assert os.listdir(tmp_path) == []
