"""The commands, called as a program would call them."""

import json
import math
from pathlib import Path

import pytest

from trimol import _extras, methods, tasks
from trimol.cli import COMMANDS, main
from trimol.runs import store

LINE = '''
import torch
from torch import nn
from trimol.tasks import Data, Task


class Line(Task):
    """A line through points that a second loss wants to be flat."""

    name = "line"
    objectives = ("fit", "slope")

    def __init__(self, slope: float = 3.0) -> None:
        self.slope = slope

    def model(self):
        return nn.Linear(1, 1)

    def losses(self, model, batch):
        x, y = batch
        return [(model(x) - y).square().mean(), model.weight.square().sum()]

    def data(self):
        x = torch.linspace(-1, 1, 200)[:, None]
        y = self.slope * x
        return Data(train=(x[::2], y[::2]), test=(x[1::2], y[1::2]))
'''
SMALL = ["--steps", "20", "--quiet"]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write below the folder they are called in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("line.py").write_text(LINE)


def refused(*arguments: str, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """What is said about arguments that do not work: one line."""
    assert main(arguments) == code
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("trimol: ")
    return line


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        assert any(line.split()[:1] == [name] and line.endswith(".") for line in lines), name


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert not stop.value.code
    said = capsys.readouterr().out
    assert f"usage: trimol {command}" in said
    assert "--json" in said
    assert "default: '" not in said  # tyro quotes what a shell would


def test_a_run_is_trained_shown_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "line.py:Line", "--out", "here", *SMALL]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "Saved in here. Next: trimol report here" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    for name in ("fit", "slope", "R_opt", "R_pop", "R_gen", "E_ca"):
        assert name in said.out
    run = store.load("here")
    assert run.config.method == "modo"
    assert run.metrics["step"].to_list() == list(range(21))


def test_flags_reach_the_configuration() -> None:
    flags = "--method moco --beta 0.25 --zero-start --gamma none --rho 0.5 --weights 0.25,0.75"
    own = "--lr 0.01 --seed 3 --batch-size 16 --measure-every 5 --checkpoint-every 7"
    task = "--option slope=2 --out here"
    assert main(["run", "line.py", *f"{flags} {own} {task}".split(), *SMALL]) == 0
    config = store.load("here").config
    assert config.hyperparameters == {
        "beta": 0.25,
        "zero_start": True,
        "gamma": None,
        "rho": 0.5,
        "weights": [0.25, 0.75],
    }
    assert config.task_options == {"slope": 2}
    found = (config.lr, config.seed, config.batch_size, config.measure_every, config.steps)
    assert found == (0.01, 3, 16, 5, 20)
    assert config.rho == 0.5  # the measure's is the method's, unless it is given


def test_products_and_cost_are_flags_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--method", "mgda", "--solver", "products", "--gap", "0.2", "--cost", "0.5"]
    assert main(["run", "line.py", *own, "--out", "a", *SMALL]) == 0
    given = store.load("a").config.hyperparameters
    assert given == {"solver": "products", "gap": 0.2, "cost": 0.5}
    capsys.readouterr()
    line = refused("run", "line.py", *own, "--every", "2", *SMALL, capsys=capsys)
    assert line == "trimol: every must be 1 with cost, which decides it, found 2"


def test_epochs_in_place_of_steps() -> None:
    own = ["--epochs", "3", "--batch-size", "40", "--score-every", "4", "--quiet"]
    assert main(["run", "line.py", *own, "--out", "a"]) == 0
    run = store.load("a")
    assert (run.config.steps, run.config.score_every) == (9, 4)  # 3 × ⌈100 / 40⌉
    assert run.scores["step"].to_list() == [4, 8]
    methods_ = ["--methods", "static,modo", "--seeds", "1", "--jobs", "1"]
    assert main(["compare", "line.py", *methods_, *own, "--out", "b"]) == 0
    assert {(r.config.steps, r.config.score_every) for r in store.find("b")} == {(9, 4)}


def test_the_measure_may_have_a_rho_of_its_own() -> None:
    assert (
        main(["run", "line.py", "--rho", "0.5", "--measure-rho", "0.1", "--out", "a", *SMALL]) == 0
    )
    assert store.load("a").config.rho == 0.1
    assert main(["run", "line.py", "--method", "static", "--out", "b", *SMALL]) == 0
    assert store.load("b").config.rho == 0.0


def test_a_finished_run_is_not_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "line.py", "--steps", "5"]) == 0
    first = capsys.readouterr()
    assert main(["run", "line.py", "--steps", "5"]) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert second.err.endswith("is finished already: nothing was run\n")
    (run,) = store.find("runs")
    assert run.path.name.startswith("line-modo-seed0-")


def test_a_run_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "line.py", "--json", "--out", "here", *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"study", "rows", "files"}
    rows = {row["metric"]: row for row in found["rows"]}
    assert list(rows) == ["fit", "slope", "R_opt", "R_pop", "R_gen", "E_ca", "|R_gen|"]
    assert found["study"] == "run line"  # the task's name, wherever its file is
    assert rows["R_opt"]["mean"] == store.load("here").record["R_opt"]
    assert rows["R_opt"]["method"] == "modo"
    assert "here/model.pt" in found["files"]


def test_methods_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", "line.py", "--methods", "static,modo", "--seeds", "5", "--jobs", "1"]
    arguments += ["--set", "modo.gamma=0.5", "--set", "static.lr=0.05", "--out", "here", *SMALL]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in said.out
    for method in ("static", "modo"):
        values = next(line for line in lines if line.split()[:1] == [method]).split()[1:]
        assert len(values) == 6
        assert all(math.isfinite(float(value.rstrip("*"))) for value in values)
    assert "static lr=0.05; modo lr=0.1, gamma=0.5." in said.out
    assert "modo − static: " in said.out
    assert "definition" not in said.out  # two readings of E_ca are for machines
    assert len(store.find("here")) == 10


def test_a_comparison_with_few_seeds_says_how_many_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare", "line.py", "--seeds", "2", "--jobs", "1", *SMALL]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 seeds cannot tell a difference from luck: 5 seeds at least to name one" in told
    assert not any(word in told for word in ("is better than", "is worse than", "beyond noise"))


def test_a_task_of_ones_own_is_named_by_its_name_and_how_to_read_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["compare", str(Path("line.py").resolve()), "--jobs", "1", *SMALL, "--seeds"]
    assert main([*arguments, "1"]) == 0
    first = capsys.readouterr().out
    assert "line: losses and metrics on test data" in first
    assert str(Path.cwd()) not in first
    assert "R_gen the gap R_pop − R_opt" in " ".join(first.split())
    assert main([*arguments, "2"]) == 0
    second = capsys.readouterr().out
    assert "R_opt is how much" not in second
    assert main(["run", str(Path("line.py").resolve()), *SMALL]) == 0
    assert capsys.readouterr().out.startswith("line, trained with modo")


def test_a_comparison_for_machines_takes_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", "line.py", "--methods", "static,mgda", "--jobs", "1", "--json", *SMALL]
    assert main([*arguments, "--seeds", "1"]) == 0
    capsys.readouterr()
    made = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in store.find("runs")}
    assert main([*arguments, "--seeds", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"study", "rows", "files"}
    assert {"method", "metric", "mean", "std", "n", "paper", "lr"} <= found["rows"][0].keys()
    assert {row["n"] for row in found["rows"]} == {2}
    assert [row["method"] for row in found["rows"]] == ["static"] * 9 + ["mgda"] * 9
    assert len(found["files"]) == 4
    for path, time in made.items():
        assert (path / "summary.json").stat().st_mtime_ns == time


def test_a_report_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "line.py", "--out", "here", *SMALL]) == 0
    capsys.readouterr()
    assert main(["report", "here", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert Path(files[0]).read_text().lstrip().lower().startswith("<!doctype html>")
    assert {Path(file).suffix for file in files[1:]} == {".svg", ".pdf"}
    assert all(Path(file).stat().st_size > 0 for file in files)


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == methods.names()
    assert main(["methods", "modo"]) == 0
    said = capsys.readouterr().out
    assert "--gamma auto" in said
    assert "@article{chen2023three" in said
    assert main(["methods", "--json"]) == 0
    assert [entry["method"] for entry in json.loads(capsys.readouterr().out)] == methods.names()


def test_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{said}" for name in tasks.names())
    assert main(["tasks", "--json"]) == 0
    assert [entry["task"] for entry in json.loads(capsys.readouterr().out)] == tasks.names()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "line.py", "--out", "a\0b"], "an argument must be text without null bytes, found"),
        (["report", "\ud800"], "an argument must be text without null bytes, found '\\ud800'"),
        (["report", "--foo"], "unknown flag --foo (see trimol report --help)"),
        (["report", "--jsno", "."], "unknown flag --jsno (did you mean --json?)"),
        (["walk"], "unknown command 'walk': the commands are run, compare,"),
        (["run"], "TASK"),
        (["run", "dgits"], "task must be one of digits"),
        (["run", "line.py:Curve"], "line.py: found no task 'Curve'; its tasks are Line"),
        (["run", "nowhere.py:Line"], "cannot read the task file nowhere.py"),
        (
            ["run", "line.py", "--method", "mood"],
            "unknown method 'mood' (did you mean modo?): the methods are static,",
        ),
        (
            ["run", "line.py", "--gama", "1"],
            "unknown flag --gama (did you mean --gamma?): the hyper-parameters of modo are",
        ),
        (["run", "line.py", "--gamma", "much"], "--gamma must be a finite number, found 'much'"),
        (["run", "line.py", "--gamma", "-1"], "gamma must be a finite number of at least 0"),
        (["run", "line.py", "--weights", "1,1"], "weights must sum to 1"),
        (["run", "line.py", "--weights", "1"], "weights must have 2 entries"),
        (["run", "line.py", "--steps", "many"], "--steps must be a whole number of at least 1"),
        (["run", "line.py", "--steps", "5", "--epochs", "5"], "--steps or --epochs, not both"),
        (["run", "line.py", "--epochs", "0"], "--epochs must be a whole number of at least 1"),
        (["run", "line.py", "--score-every", "-1"], "--score-every must be a whole number of at"),
        (["compare", "line.py", "--steps", "5", "--epochs", "5"], "--steps or --epochs, not both"),
        (["run", "line.py", "--lr", "0"], "--lr must be a finite number above 0, found '0'"),
        (["run", "line.py", "--precision", "fp8"], "'fp8'"),
        (["run", "line.py", "--option", "slope"], "--option must be NAME=VALUE, found 'slope'"),
        (["run", "line.py", "--option", "tilt=1"], "has no option 'tilt': it has slope"),
        (["run", "digits", "--option", "width=1"], "digits has no option 'width': it has hidden,"),
        (["run", "digits", "--option", "hidden=x"], "hidden must be a whole number of at least 0"),
        (["run", "digits", "--option", "hidden=0"], "hidden must be a whole number of at least 1"),
        (["run", "toy", "--option", "variant=x"], "variant must be one of corrected, printed"),
        (["run", "quadratic", "--option", "std=1,2"], "std must be a finite number, found '1,2'"),
        (["run", "quadratic", "--option", "b1=none"], "b1 must be numbers with commas between"),
        (["compare", "nyuv2", "--option", "image_size=1.5"], "must be height and width"),
        (["compare", "line.py", "--methods", "static,mood"], "unknown method 'mood'"),
        (["compare", "line.py", "--methods", "modo,modo"], "--methods must be different names"),
        (["compare", "line.py", "--seeds", "0"], "--seeds must be a whole number of at least 1"),
        (["compare", "line.py", "--set", "uw.lr=1"], "--set must name one of static, mgda, modo"),
        (
            ["compare", "line.py", "--set", "modo.gama=1"],
            "--set modo.gama is unknown (did you mean --set modo.gamma?): modo has gam",
        ),
        (["compare", "line.py", "--set", "modo.gamma=x"], "--set modo.gamma must be a finite num"),
        (["compare", "line.py", "--set", "modo.lr=no"], "--set modo.lr must be a finite number ab"),
        (["run", "line.py", "--seed", "9" * 23], "--seed must be a whole number below 2**63"),
        (["run", "line.py", "--seed", "1e300"], "--seed must be a whole number below 2**63"),
        (["compare", "line.py", "--seeds", "9" * 5000], "--seeds must be a whole number of at"),
        (["run", "digits", "--option", "seed=" + "9" * 23], "seed must be a whole number below"),
        (["data", "get", "mnist", "--mirror", "notaurl"], "--mirror must be an address such as"),
        (["data", "get", "mnist", "--mirror", "http://"], "--mirror must be an address such as"),
        (["compare", "line.py", "--set", "modo.gamma=-1"], "gamma must be a finite number of at"),
        (["report", "nowhere"], "DIR must be a folder with runs in it, found 'nowhere'"),
        (["methods", "mood"], "unknown method 'mood'"),
        (["methods", ""], "unknown method ''"),
        (["compare", "line.py", "--methods", "modo,"], "--methods must be different names with"),
        (["compare", "line.py", "--methods", ",modo"], "--methods must be different names with"),
        (["diagnose", "line.py", "--methods", "modo,,mgda"], "--methods must be different names w"),
        (["front", "line.py", "--by", "stch,"], "--by must be different names with commas"),
        (["run", "line.py", "--out", ""], "--out must be a folder, found ''"),
        (["report", ""], "DIR must be a folder, found ''"),
        (["tasks", "more"], "unknown task 'more'"),
    ],
    ids=lambda found: " ".join(found) if isinstance(found, list) else "",
)
def test_wrong_usage_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(*arguments, capsys=capsys)
    assert not Path("runs").exists()


def test_failures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nan.py").write_text(LINE.replace(".square().mean()", ".log().mean()"))
    said = refused("run", "nan.py", "--out", "a", *SMALL, capsys=capsys, code=1)
    assert "the loss 'fit' is nan at step 0" in said

    Path("raises.py").write_text(LINE.replace("x, y = batch", "x, y = batch; 1 / 0"))
    number = LINE.splitlines().index("        x, y = batch") + 1
    said = refused("run", "raises.py", "--out", "b", *SMALL, capsys=capsys, code=1)
    assert f"raises.py, line {number}: ZeroDivisionError: division by zero" in said

    Path("more.py").write_text(LINE.replace(".sum()]", ".sum(), x.sum()]"))
    refused("run", "more.py", "--out", "c", *SMALL, capsys=capsys, code=1)

    returned = {
        "return nn.Linear(1, 1)": "model() of Line must return a module, found NoneType",
        "return [": "losses must be a 1-D tensor or a sequence of scalar tensors, found NoneType",
        "return Data(": "data() of Line must return a trimol.tasks.Data, found NoneType",
    }
    for number, (forgotten, said) in enumerate(returned.items()):
        Path("forgets.py").write_text(LINE.replace(forgotten, forgotten.replace("return ", "")))
        out = f"forgets{number}"
        assert said in refused("run", "forgets.py", "--out", out, *SMALL, capsys=capsys, code=1)
    Path("forgets.py").write_text(f"{LINE}\n    def metrics(self, model, batch):\n        {{}}\n")
    said = refused("run", "forgets.py", "--out", "forgets", *SMALL, capsys=capsys, code=1)
    assert "metrics() of Line must return a mapping, found NoneType" in said

    Path("file").write_text("")
    said = refused("run", "line.py", "--out", "file/x", *SMALL, capsys=capsys, code=1)
    assert "file/x: Not a directory" in said

    assert main(["run", "line.py", "--out", "d", *SMALL]) == 0
    capsys.readouterr()
    said = refused("run", "line.py", "--lr", "1", "--out", "d", *SMALL, capsys=capsys, code=1)
    assert "d holds another run (lr is 0.1 there, 1.0 here)" in said

    Path("d/metrics.parquet").write_bytes(b"half")
    said = refused("report", "d", capsys=capsys, code=1)
    assert "d/metrics.parquet is another file than the one that was written here" in said

    Path("empty").mkdir()
    refused("report", "empty", capsys=capsys, code=1)


@pytest.mark.parametrize("missing", ["rich", "tyro"])
def test_a_missing_package_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = _extras.import_module

    def some(module: str) -> object:
        if module == missing:
            raise ModuleNotFoundError(f"No module named {module!r}")
        return real(module)

    monkeypatch.setattr(_extras, "import_module", some)
    said = refused("run", "line.py", capsys=capsys, code=1)
    assert said == f"trimol: the command line needs {missing}: pip install 'trimol[studies]'"


def test_a_study_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("fig1 ")
    assert main(["reproduce", "table1", "--out", "here", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Table 1: ")
    assert max(map(len, said.splitlines())) <= 80
    assert "here/table1/study.json" in said.splitlines()
    assert main(["reproduce", "table1", "table2", "--out", "here", "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"study", "rows", "files"}
    assert {row["study"] for row in found["rows"]} == {"table1", "table2"}
    assert all(Path(file).exists() for file in found["files"])
    assert "unknown study 'fig99'" in refused("reproduce", "fig99", capsys=capsys)


def test_studies_refuse_what_they_do_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("reproduce", "table1", "--regime", "finetune", capsys=capsys)
    assert said == "trimol: table1 takes no such option, found regime 'finetune'"
    said = refused("reproduce", "table6", "--regime", "frozen", capsys=capsys)
    assert said == "trimol: table6 takes budget, found regime 'frozen'"
    said = refused("reproduce", "table4", "--regime", "cold", capsys=capsys)
    assert said == "trimol: regime must be one of frozen, finetune, found 'cold'"
    said = refused("reproduce", "table4", "fig1", "--budget", "paper", capsys=capsys)
    assert said == "trimol: fig1 takes no such option, found budget 'paper'"
    assert not Path("runs").exists()  # nothing ran


def test_options_of_a_study_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trimol.paper import multitask_tables as multitask
    from trimol.runs.study import Study

    found = []

    def study(name: str, context: object, *_: object) -> Study:
        found.append(context)
        return Study(name, "T", rows=[])

    monkeypatch.setattr(multitask, "study", study)
    flags = ["--regime", "finetune", "--budget", "paper", "--out", "here", "--quiet", "--json"]
    assert main(["reproduce", "table4", *flags]) == 0
    (context,) = found
    assert (context.regime, context.budget) == ("finetune", "paper")
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file == "here/table4-finetune/study.json"
