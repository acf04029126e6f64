"""`trimol doctor` and `trimol completion`, and what is meant by a name that is nearly right."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trimol import tasks
from trimol.cli import COMMANDS, main
from trimol.cli._lines import wrapped
from trimol.cli._live import shown
from trimol.cli._progress import Progress
from trimol.methods import names
from trimol.testing import _self_test as self_test


def test_the_doctor_finds_the_engine_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"]["exact"]
    assert found["engine"]["off"] < 1e-12
    assert found["engine"]["route"] == "tangents"
    assert found["engine"]["ratio"] > 1
    assert found["versions"]["torch"].startswith("2.")
    assert found["extras"]["studies"] is not None


def test_an_engine_that_is_wrong_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = self_test.product
    monkeypatch.setattr(self_test, "product", lambda *given: 1.001 * right(*given))
    assert main(["doctor"]) == 1
    assert "WRONG by 1.0e-03: please report this" in capsys.readouterr().out


OWN = """
import torch
from trimol.tasks import Data, Task


class Clipped(Task):
    name, objectives = "clipped", ("a", "b")

    def model(self):
        return torch.nn.Linear(3, 2)

    def losses(self, model, batch):
        out = model(batch[0])
        if HOOK:
            out.register_hook(lambda u: u.clamp(-1e-3, 1e-3))
        return out.square().mean(0)

    def data(self):
        x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        return Data(train=(x[:40],), test=(x[40:],))
"""


@pytest.mark.parametrize("hook", [False, True])
def test_the_doctor_compares_a_step_on_a_task_of_ones_own_with_plain_backwards(
    hook: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hook that clips is not linear: the weighted sum of clipped gradients is another step."""
    (tmp_path / "own.py").write_text(f"HOOK = {hook}\n{OWN}")
    task = f"{tmp_path / 'own.py'}:Clipped"
    assert main(["doctor", task, "--methods", "mgda,static", "--batch-size", "8"]) == int(hook)
    said = capsys.readouterr().out.replace("\n ", "")
    verdict = "WRONG" if hook else "exact"
    assert said.startswith(f"MGDA: {verdict}. Largest relative difference to 2 plain backwards: ")
    assert "Static: exact." in said
    assert main(["doctor", task, "--methods", "modo", "--json", "--batch-size", "8"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["task"] == "clipped"
    assert found["checks"][0]["route"] == ("backwards" if hook else "tangents")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_tasks_methods_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    for word in (*COMMANDS, "digits", "measure-every", "upgrad"):
        assert word in said


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["dia"], ["diagnose"]),
        (["run", "digi"], ["digits"]),
        (["compare", "toy", "--score-e"], ["--score-every"]),
        (["run", "toy", "--method", "up"], ["upgrad"]),
        (["compare", "toy", "--methods", "static,upg"], ["static,upgrad"]),
        (["front", "toy", "--by", "upg"], ["upgrad"]),
        (["sweep", "toy", "--by", "upg"], []),
        (["completion", "f"], ["fish"]),
        (["reproduce", "fig1"], ["fig1"]),
        (["run", "toy", "--task"], []),
    ],
)
def test_bash_completes(
    typed: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    words = " ".join(f"'{word}'" for word in ("trimol", *typed))
    script = f"COMP_WORDS=({words}) COMP_CWORD={len(typed)}; _trimol; echo ${{COMPREPLY[@]}}"
    asked = ["bash", "-c", f"{capsys.readouterr().out}\n{script}"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert said.stdout.split() == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [("trimol dia", ["diagnose"]), ("trimol run x --method upg", ["upgrad"])],
)
def test_fish_completes(
    typed: str, expected: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["completion", "fish"])
    asked = ["fish", "-N", "-c", f'{capsys.readouterr().out}\ncomplete -C "{typed}"']
    said = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.split() == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_zsh_completes_where_nobody_started_its_completion(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["completion", "zsh"])
    asked = ["zsh", "-f", "-c", f"{capsys.readouterr().out}\nprint $_comps[trimol]"]
    said = subprocess.run(
        asked, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert "_trimol" in said.stdout
    assert not said.stderr


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bsh"]) == 2
    assert "found 'bsh' (did you mean bash?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["methods", "modu"], "unknown method 'modu' (did you mean modo?): the methods are"),
        (["run", "digits", "--method", "MGDA"], "unknown method 'MGDA' (did you mean mgda?)"),
        (["tasks", "Digit"], "unknown task 'Digit' (did you mean digits?): the tasks are"),
        (["run", "dgits"], "found 'dgits' (did you mean digits?)"),
        (["comapre"], "unknown command 'comapre' (did you mean compare?): the commands are"),
    ],
)
def test_what_may_have_been_meant(
    typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("method", names())
def test_every_hyperparameter_is_explained(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", method, "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert described["meaning"].keys() == described["hyperparameters"].keys()
    assert all(described["meaning"].values()), described["meaning"]


@pytest.mark.parametrize("task", tasks.names())
def test_every_option_of_a_task_is_explained(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", task, "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert described["meaning"].keys() == described["options"].keys()
    assert all(described["meaning"].values()), described["meaning"]


def test_a_task_is_shown_as_its_options_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "funnel"]) == 0
    said = capsys.readouterr().out
    for typed in ("seed=0", "strength=1.0", "sparse=true", "only=none"):
        assert f"--option {typed} " in said
    assert "Losses: click, conversion" in said


def test_the_toy_runs_with_defaults(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "toy", "--steps", "3", "--quiet", "--out", f"{tmp_path}/run"]) == 0
    assert "3 steps of 16 samples" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", [["methods"], ["tasks"], ["data"], ["doctor"], ["reproduce"]])
def test_on_a_terminal_lines_end_between_words(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(command)
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(command)
    narrow = capsys.readouterr().out
    if command != ["doctor"]:  # which measures anew
        assert narrow.split() == whole.split()
    assert len(narrow.splitlines()) > len(whole.splitlines())
    long = [line for line in narrow.splitlines() if len(line) > 60]
    assert all(len(line.split()) == 1 or line.startswith(" " * 12) for line in long), long


def test_of_several_processes_one_speaks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under torchrun, which tells each process its rank."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, speaks in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert main(["methods"]) == 0
        assert main(["methods", "modu"]) == 2
        with shown(Progress("it", 10)):
            pass
        said = capsys.readouterr()
        assert bool(said.out) == speaks
        assert ("did you mean modo?" in said.err) == speaks
        assert ("it: 0 of 10 steps" in said.err) == speaks


def test_what_is_to_be_copied_stays_on_one_line() -> None:
    said = "missing a, b, c, d: pip install 'trimol[NAME]'"
    lines = wrapped(said, 30, indent=2, whole="pip install 'trimol[NAME]'").splitlines()
    assert lines == ["missing a, b, c, d:", "  pip install 'trimol[NAME]'"]
    assert wrapped(said, None) == said
