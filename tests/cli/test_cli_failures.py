"""Failures: which become one line, which keep their traceback, and the exit codes."""

import pytest

from trimol import methods
from trimol._extras import MissingExtra
from trimol.cli._reporting import UsageError, explained, reported
from trimol.runs import Interrupted, StoreError
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


def noted(line: int) -> ValueError:
    """An error from another process, with its traceback as a note."""
    error = ValueError("x must be 1, found 2")
    error.add_note(f'  File "{methods.registry.__file__}", line {line}, in get')
    return error


def test_an_error_of_another_process_is_judged_by_its_own_place() -> None:
    with open(methods.registry.__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    raised = next(i for i, line in enumerate(lines, 1) if line.lstrip().startswith("raise "))
    assert explained(noted(raised)) == "x must be 1, found 2"
    assert explained(noted(1)) is None
