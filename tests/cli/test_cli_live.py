"""What is seen while something runs: on a terminal, in a pipe."""

import io

import pytest
from rich.console import Console, RenderableType

from trimol.cli import _live as live
from trimol.cli._compare_view import CompareView
from trimol.cli._progress import Progress
from trimol.cli._run_view import RunView
from trimol.cli._tables import bar_of
from trimol.report._numbers import number

RECORD = {
    "step": 10,
    "loss/fit": 0.5,
    "loss/[b]slope": 2.0,
    "test_loss/fit": 0.75,
    "test_loss/[b]slope": 2.0,
    "weight/fit": 0.25,
    "weight/[b]slope": 0.75,
    "avoiding/fit": 0.5,
    "avoiding/[b]slope": 0.5,
    "R_opt": 1.25e-3,
    "R_gen": -2e-4,
}


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def drawn(what: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_pace_counts_the_steps_of_this_process_only() -> None:
    clock = Clock()
    progress = Progress("it", total=1000, clock=clock)
    assert progress.pace == ""
    progress.advance(500)  # done by an earlier process, which was stopped
    clock.now += 10
    progress.advance(600)
    assert progress.line() == "it: 600 of 1000 steps, 10 steps/s, 40 s left"


def test_a_run_is_seen_with_its_last_numbers() -> None:
    progress = Progress("line with modo", total=20)
    view = RunView(progress, ("fit", "[b]slope"))
    assert drawn(view)[0] == "line with modo"
    progress.advance(10)
    progress.measured({**RECORD, "R_opt": 1.0})
    progress.measured(RECORD)
    text = "\n".join(drawn(view))
    assert "10 of 20 steps" in text
    assert "fit            0.5  0.75  ▁▁     0.25  ██" in text
    assert "[b]slope         2     2  ▁▁     0.75" in text
    assert any(line.split()[:3] == ["R_opt", number(1.25e-3), "█▁"] for line in drawn(view))
    assert "E_ca" not in text  # it was not measured
    assert view.line().endswith(f"R_opt {number(1.25e-3)}, R_gen {number(-2e-4)}")


def test_a_comparison_knows_what_an_earlier_process_did() -> None:
    view = CompareView("digits", ("static", "modo"), seeds=3, steps=100)
    view.advance("modo", 1, 0.5, RECORD)  # so seed 0 of both, and seed 1 of static, are done
    assert (view.done("static"), view.done("modo")) == (2.0, 1.5)
    assert view.progress.done == 350
    text = "\n".join(drawn(view))
    assert "2 of 3" in text
    assert number(1.25e-3) in text
    view.finish()
    assert view.line() == "digits: 600 of 600 steps (runs: static 3/3, modo 3/3)"


def test_runs_that_train_together_say_nothing_about_the_others() -> None:
    view = CompareView("digits", ("static", "modo"), seeds=3, steps=100)
    for seed in range(3):  # all seeds of a method start at once
        view.advance("static", seed, 0.1, None)
    assert view.done("static") == pytest.approx(0.3)
    assert view.done("modo") == 0
    view.advance("modo", 2, 0.1, None)  # seeds 0 and 1 were done by an earlier process
    assert (view.done("static"), view.done("modo")) == (pytest.approx(0.3), 2.1)


def test_a_pipe_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock, progress = Clock(), Progress("it", total=100)
    lines = live._Lines(RunView(progress, ()), clock)
    for second in range(100):
        clock.now += 1
        progress.done = second + 1
        lines.changed()
    lines.say()
    lines.say()  # nothing new
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "it: 0 of 100 steps"
    assert said[1] == "it: 5 of 100 steps"
    assert said[-1] == "it: 100 of 100 steps"
    assert len(said) < 15


class Terminal(io.StringIO):
    """What a program writes to a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    file = Terminal()
    monkeypatch.setattr("sys.stderr", file)
    monkeypatch.setenv("TERM", "xterm-256color")
    return file


def test_a_terminal_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, file = Progress("it", total=100), on_a_terminal(monkeypatch)
    with live.shown(RunView(progress, ())):
        progress.advance(50)
    assert "50 of 100 steps" in file.getvalue()
    assert "\x1b[" in file.getvalue()


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    file = on_a_terminal(monkeypatch)
    with live.shown(RunView(Progress("it", total=100), ()), quiet=True) as changed:
        changed()
    assert file.getvalue() == ""


@pytest.mark.parametrize("done", [1, 2])
def test_bars_are_calm(done: int) -> None:
    """Rich's own are pink, and green at the end."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system="256", width=40)
    console.print(bar_of(done, 2))
    assert "\x1b[36m" in console.file.getvalue()
    assert "38;5;197" not in console.file.getvalue()
    assert "38;5;70m" not in console.file.getvalue()
