"""A built-in task runs with every command, with nothing given but a small budget."""

from pathlib import Path

import pytest

from trimol.cli import main
from trimol.compare import diagnose
from trimol.runs import front
from trimol.runs.config import configure, task_of
from trimol.runs.look import look
from trimol.tasks import names

COMMANDS = {
    "run": ["--steps", "2"],
    "compare": ["--steps", "2", "--seeds", "1", "--jobs", "1"],
    "diagnose": ["--steps", "2", "--check-only"],
    "tune": ["--steps", "2", "--budget", "2", "--jobs", "1"],
    "sweep": ["--steps", "2", "--jobs", "1"],
    "front": ["--steps", "2", "--points", "2", "--jobs", "1"],
}
DOWNLOADED = {
    *("adult", "compas", "german", "credit", "census", "qm9"),
    *("mnist", "fashion", "office-31", "office-home", "nyuv2"),
}
SLOW = {"burgers", "schroedinger", "kovasznay", "helmholtz", "scenes", "funnel"}


def _marked(task: str) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.data, pytest.mark.timeout(3600)] if task in DOWNLOADED else []
    return marks + ([pytest.mark.slow] if task in SLOW | DOWNLOADED else [])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("task", [pytest.param(name, marks=_marked(name)) for name in names()])
def test_every_task_runs_with_the_defaults_of_every_command(
    task: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if task in DOWNLOADED:
        task_of(task).data()  # or the test is skipped
    monkeypatch.chdir(tmp_path)
    assert main([command, task, *COMMANDS[command], "--quiet"]) == 0, capsys.readouterr().err


def test_a_task_of_few_samples_has_batches_of_all_of_them(tmp_path: Path) -> None:
    """In Python too, and where samples are held out to choose settings on."""
    assert configure("quadratic", "modo", steps=1).batch_size == 20
    assert configure("quadratic", "modo", steps=1, hold_out=4).batch_size == 16
    assert configure("quadratic", "modo", steps=1, batch_size=5).batch_size == 5
    assert configure("toy", "modo", steps=1).batch_size == 16  # the task's own
    assert look("quadratic", steps=2).steps == 2
    assert diagnose("toy", folder=tmp_path / "a", steps=2, check_only=True).use == "static"
    assert len(front("quadratic", folder=tmp_path / "b", steps=2, points=2).points) == 2


def test_a_sweep_of_nothing_said_tries_step_sizes_around_the_tasks_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["sweep", "quadratic", "--methods", "static", "--steps", "2", "--jobs", "1"]
    assert main([*arguments, "--quiet"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Searched by grid; trials: static 5. Each is 2 steps of 16 samples" in said
    assert "The task has no validation data: 4 samples of train served as such." in said
    assert main([*arguments, "--trials", "2", "--out", "other", "--quiet"]) == 0
    assert "Searched by tpe; trials: static 2." in " ".join(capsys.readouterr().out.split())
