"""Several settings of one method, step sizes, schedules and bounds, as a user types them."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from test_cli_commands import LINE, refused

from trimol.cli import _tables as tables
from trimol.cli import main
from trimol.runs import store

SMALL = ["--seeds", "2", "--steps", "10", "--jobs", "1", "--quiet"]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("line.py").write_text(LINE)


def test_every_setting_reaches_its_own_runs() -> None:
    listed = "static,stch:mu=0.1,stch:mu=1:lr=0.5,static:schedule=constant:weights=[0.2,0.8]"
    flags = ["--lr", "0.02", "--schedule", "linear", "--set", "stch.lr=0.25"]
    assert main(["compare", "line.py", "--methods", listed, *flags, "--out", "a", *SMALL]) == 0
    found = {
        (c.method, c.lr, c.schedule, json.dumps(c.hyperparameters))
        for run in store.find("a")
        for c in [run.config]
    }
    assert found == {
        ("static", 0.02, "linear", "{}"),
        ("stch", 0.25, "linear", '{"mu": 0.1}'),
        ("stch", 0.5, "linear", '{"mu": 1.0}'),
        ("static", 0.02, None, '{"weights": [0.2, 0.8]}'),
    }
    assert len(store.find("a")) == 8


def test_a_schedule_changes_what_is_learned_and_constant_does_not(capsys) -> None:
    rows = {}
    for name in ("", "constant", "linear"):
        own = ["--schedule", name] if name else []
        assert main(["compare", "line.py", "--methods", "static", *own, "--json", *SMALL]) == 0
        said = json.loads(capsys.readouterr().out)
        rows[name] = {row["metric"]: row["mean"] for row in said["rows"]}
    assert rows[""] == rows["constant"]
    assert rows[""]["fit"] != rows["linear"]["fit"]
    assert len(store.find("runs")) == 4  # constant is what is run without a word


def test_rows_tell_variants_apart_and_say_whose_they_are(capsys) -> None:
    listed = "static,stch:mu=0.1,stch:mu=1"
    assert main(["compare", "line.py", "--methods", listed, "--json", *SMALL]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    fits = {row["method"]: row for row in rows if row["metric"] == "fit"}
    assert list(fits) == listed.split(",")
    assert [row.get("variant_of") for row in fits.values()] == [None, "stch", "stch"]
    assert [row.get("mu") for row in fits.values()] == [None, 0.1, 1.0]
    assert fits["stch:mu=0.1"]["mean"] != fits["stch:mu=1"]["mean"]


def test_variants_are_named_in_differences_and_fit_a_terminal(capsys) -> None:
    listed = "static,stch:mu=0.1,preference:bounds.slope=0.5:kappa=2:penalty=10,modo:gamma=0.125"
    assert main(["compare", "line.py", "--methods", listed, *SMALL, "--seeds", "5"]) == 0
    said = capsys.readouterr().out
    for label in listed.split(",")[1:]:
        assert f"{label} − static: " in " ".join(said.split())
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80


def test_the_same_run_has_one_folder_however_it_is_typed() -> None:
    assert main(["compare", "line.py", "--methods", "stch:mu=0.5", *SMALL]) == 0
    own = ["--set", "stch.mu=0.5"]
    assert main(["compare", "line.py", "--methods", "stch", *own, *SMALL]) == 0
    assert len(store.find("runs")) == 2


def test_a_variant_that_diverges_is_named(capsys) -> None:
    listed = "static,static:lr=1e30"
    assert main(["compare", "line.py", "--methods", listed, *SMALL]) == 0
    assert "static:lr=1e30, seed 0: " in capsys.readouterr().out


@pytest.mark.slow
def test_a_bound_is_kept_and_the_command_on_the_page_repeats_it() -> None:
    """The slope's loss is its square: without the bound it ends near 0.75² (see `Task`)."""
    from trimol.report._runs import command

    flags = ["--methods", "preference:bounds.slope=0.04:prefer.slope=0:prefer.fit=1,static"]
    own = ["--seeds", "1", "--steps", "300", "--jobs", "1", "--quiet", "--schedule", "cosine"]
    assert main(["compare", "line.py", *flags, *own, "--out", "a"]) == 0
    runs = {run.config.method: run for run in store.find("a")}
    bounded = runs["preference"]
    assert bounded.config.hyperparameters == {"bounds": {"slope": 0.04}, "prefer": [1.0, 0.0]}
    assert bounded.record["loss/slope"] == pytest.approx(0.04, rel=0.02)
    assert runs["static"].record["loss/slope"] > 0.3
    words = command(bounded.config).replace(str(Path("line.py").resolve()), "line.py").split()
    assert main([*words[1:], "--out", "b", "--quiet"]) == 0
    assert store.load("b").config.key == bounded.config.key


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("stch:mu", "--methods must be METHOD or METHOD:NAME=VALUE, found 'mu' in 'stch:mu'"),
        ("stch:mu=0", "mu must be a finite number above 0, found 0.0"),
        ("stch:nu=1", "--methods stch:nu=1: nu is unknown: stch has mu, prefer"),
        ("nobody:mu=1", "unknown method 'nobody'"),
        ("static:lr=-1", "--methods static:lr=-1: lr must be a finite number above 0, found '-1'"),
        ("static:schedule=up", "schedule must be one of constant, linear, cosine, found 'up'"),
        ("static,static:lr=0.1", "found static and static:lr=0.1 alike"),
        ("stch:mu=1,stch:mu=1", "must be different names"),
        ("static:weights=[1,2,3]", "weights must have 2 entries"),
        ("preference:bounds=1", "bounds must be given for one objective at a time"),
        ("preference:bounds.height=1", "(fit, slope), found 'height'"),
        ("preference:bounds.fit=low", "bounds.fit must be a finite number, found 'low'"),
        ("preference:prefer.fit=1", "prefer must have 'fit', 'slope', found none for 'slope'"),
        ("preference:prefer=[1,0]:prefer.fit=1", "found both of prefer"),
        ("stch:mu.fit=1", "mu is not by objective"),
    ],
)
def test_what_is_wrong_with_a_variant_is_one_line(listed: str, said: str, capsys) -> None:
    assert said in refused("compare", "line.py", "--methods", listed, capsys=capsys)
    assert not Path("runs").exists()


def test_tables_are_as_wide_as_allowed() -> None:
    labels = tuple(f"stch:mu={n}:lr={n}:every=1" for n in range(9))
    rows = [
        {"method": label, "metric": metric, "mean": 1.0, "ci": 0.1}
        for label in labels
        for metric in ("a long name of a metric", "b", "c", "d", "e", "f")
    ]
    for width in (60, 80, 200):
        console = Console(width=width, record=True, file=StringIO())
        console.print(tables.draw(tables.grid(rows), width))
        text = console.export_text()
        assert "…" not in text
        assert text.count("every=1") == len(labels)
